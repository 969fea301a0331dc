// llama.cpp's own quantizer, out of the library that @node-llama-cpp/linux-x64 carries (llama.cpp v0.5.0), whose
// llama.h this follows: llama-quantize <libllama.so> <in.gguf> <out.gguf> <ftype> [<importance>] importance: for each
// tensor a line "name count", then that many float32.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <string>
#include <vector>

struct ImatrixData {
  const char* name;
  const float* data;
  size_t size;
};

struct QuantizeParams {
  int32_t nthread;
  int32_t ftype;
  int32_t output_tensor_type;
  int32_t token_embedding_type;
  bool allow_requantize, quantize_output_tensor, only_copy, pure, keep_split, dry_run;
  const ImatrixData* imatrix;
  const void* kv_overrides;
  const void* tt_overrides;
  const int32_t* prune_layers;
  size_t max_buf_size;
};

template <typename F>
static F symbol(void* library, const char* name) {
  void* found = dlsym(library, name);
  if (!found) {
    fprintf(stderr, "llama-quantize: %s\n", dlerror());
    exit(1);
  }
  return reinterpret_cast<F>(found);
}

struct Importance {
  std::string name;
  std::vector<float> values;
};

static std::deque<Importance> read_importance(const char* path) {
  std::deque<Importance> all;
  std::ifstream file(path, std::ios::binary);
  std::string name;
  size_t count;
  while (file >> name >> count) {
    file.get();
    all.push_back({name, std::vector<float>(count)});
    file.read(reinterpret_cast<char*>(all.back().values.data()), count * sizeof(float));
  }
  return all;
}

int main(int argc, char** argv) {
  if (argc < 5) {
    fprintf(stderr, "usage: llama-quantize <libllama.so> <in.gguf> <out.gguf> <ftype> [<importance>]\n");
    return 2;
  }
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
  if (!library) {
    fprintf(stderr, "llama-quantize: %s\n", dlerror());
    return 1;
  }
  symbol<void (*)()>(library, "llama_backend_init")();
  auto params = symbol<QuantizeParams (*)()>(library, "llama_model_quantize_default_params")();
  params.ftype = atoi(argv[4]);
  params.nthread = 2;
  std::deque<Importance> importance;
  if (argc > 5) importance = read_importance(argv[5]);
  std::vector<ImatrixData> entries;
  for (const auto& [name, values] : importance) entries.push_back({name.c_str(), values.data(), values.size()});
  entries.push_back({nullptr, nullptr, 0});
  if (argc > 5) params.imatrix = entries.data();
  auto quantize =
      symbol<uint32_t (*)(const char*, const char*, const QuantizeParams*)>(library, "llama_model_quantize");
  return quantize(argv[2], argv[3], &params) == 0 ? 0 : 1;
}
