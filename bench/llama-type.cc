// Rounds a matrix to a type of llama.cpp, by its own code in the library that @node-llama-cpp/linux-x64 carries, whose
// ggml.h this follows: llama-type <libggml-base.so> <type> <rows> <columns>. stdin: float32 importance of the columns,
// then the matrix; stdout: the matrix as the type has it.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

struct TypeTraits {
  const char* name;
  int64_t block_size, interleaved_block_size;
  size_t block_bytes;
  bool is_quantized;
  void (*to_float)(const void* from, float* to, int64_t count);
};

template <typename F>
static F symbol(void* library, const char* name) {
  void* found = dlsym(library, name);
  if (!found) {
    fprintf(stderr, "llama-type: %s\n", dlerror());
    exit(1);
  }
  return reinterpret_cast<F>(found);
}

int main(int argc, char** argv) {
  if (argc != 5) {
    fprintf(stderr, "usage: llama-type <libggml-base.so> <type> <rows> <columns>\n");
    return 2;
  }
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
  if (!library) {
    fprintf(stderr, "llama-type: %s\n", dlerror());
    return 1;
  }
  const int type = atoi(argv[2]);
  const int64_t rows = atoll(argv[3]), columns = atoll(argv[4]);
  std::vector<float> importance(columns), values(rows * columns);
  if (fread(importance.data(), sizeof(float), importance.size(), stdin) != importance.size() ||
      fread(values.data(), sizeof(float), values.size(), stdin) != values.size()) {
    fprintf(stderr, "llama-type: expected %lld rows of %lld float32\n", (long long)rows, (long long)columns);
    return 1;
  }
  symbol<void (*)(int)>(library, "ggml_quantize_init")(type);
  const auto* traits = symbol<const TypeTraits* (*)(int)>(library, "ggml_get_type_traits")(type);
  std::vector<uint8_t> blocks(rows * (columns / traits->block_size) * traits->block_bytes);
  symbol<size_t (*)(int, const float*, void*, int64_t, int64_t, int64_t, const float*)>(library, "ggml_quantize_chunk")(
      type, values.data(), blocks.data(), 0, rows, columns, importance.data());
  traits->to_float(blocks.data(), values.data(), values.size());
  return fwrite(values.data(), sizeof(float), values.size(), stdout) == values.size() ? 0 : 1;
}
