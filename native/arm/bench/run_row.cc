// Runs one linear kernel once, on one thread, over random weights: for emulators that count instructions. For AQLM
// kernels, BITS and GROUP count nothing: weights have two codebooks of 8 bits.
//
// run_row ROW M N K BITS GROUP
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "../../../packages/aqlm/native/codes.h"
#include "../../families/linear/arguments.h"
#include "../../panels.h"

extern "C" lowbit::KernelLibrary lowbit_kernel_library();
namespace lowbit {
KernelRows linear_i8mm_rows();
KernelRows linear_dotprod_rows();
}  // namespace lowbit

using namespace lowbit;

namespace {

const KernelRow* find_row(const char* name) {
  for (const KernelRows& table : {linear_i8mm_rows(), linear_dotprod_rows(), lowbit_kernel_library().rows})
    for (size_t i = 0; i < table.count; i++)
      if (strcmp(table.rows[i].name, name) == 0) return &table.rows[i];
  return nullptr;
}

std::unique_ptr<uint8_t[]> buffer(size_t size, uint8_t** aligned) {
  std::unique_ptr<uint8_t[]> memory(new uint8_t[size + 64]());
  *aligned = memory.get() + (64 - reinterpret_cast<uintptr_t>(memory.get()) % 64) % 64;
  return memory;
}

struct Shape {
  uint32_t m, n, k, bits, group;
};

// Writes the fields of a header that kernels read, for weights with positive f16 scales.
void write_header(uint8_t* at, const Shape& shape) {
  at[8] = static_cast<uint8_t>(shape.bits);
  at[9] = at[15] = 1;
  memcpy(at + 16, &shape.n, 4);
  memcpy(at + 20, &shape.k, 4);
  memcpy(at + 24, &shape.group, 4);
}

// Not inlined: the count takes functions whose names, types of arguments included, contain "lowbit".
__attribute__((noinline)) void fill(uint8_t* bytes, size_t size) {
  uint32_t state = 1;
  for (size_t i = 0; i < size; i++) bytes[i] = static_cast<uint8_t>((state = state * 1664525u + 1013904223u) >> 24);
}

__attribute__((noinline)) void fill(float* values, size_t count) {
  for (size_t i = 0; i < count; i++) values[i] = static_cast<float>(i % 17) - 8;
}

// Plans a call and runs its tiles, with scratch of its own.
template <class Arguments>
void run_tiles(const KernelRow& row, const Arguments& args) {
  CallOf<Arguments> to(args);
  const Call call = to.call(1);
  uint8_t* bytes;
  auto memory = buffer(row.scratch_bytes(call), &bytes);
  to.scratch() = bytes;
  Step step{};
  row.prepare(step, call);
  for (uint32_t phase = 0; phase < step.phases; phase++)
    for (uint32_t tile = 0; tile < step.tiles[phase]; tile++) step.run(step, phase, tile, 0);
}

void run_aqlm(const KernelRow& row, const Shape& shape, float* x, float* y) {
  constexpr uint8_t kBooks = 2, kBits = 8, kInputs = 8;
  uint8_t header[64] = {};
  const uint8_t fields[] = {1, kBooks, kBits, kInputs, 1};
  memcpy(header + 6, fields, sizeof fields);
  memcpy(header + 16, &shape.n, 4);
  memcpy(header + 20, &shape.k, 4);
  const aqlm::Codes sizes = aqlm::read_codes(header);
  const size_t count = size_t{sizes.tiles} * aqlm::kTile * sizes.groups * kBooks;
  uint8_t *codes, *vectors, *scales;
  auto codes_memory = buffer(64 + count, &codes);
  auto vectors_memory = buffer(sizeof(float) * kBooks * 256 * kInputs, &vectors);
  auto scales_memory = buffer(sizeof(float) * shape.n, &scales);
  memcpy(codes, header, sizeof header);
  fill(codes + 64, count);
  fill(reinterpret_cast<float*>(vectors), size_t{kBooks} * 256 * kInputs);
  fill(reinterpret_cast<float*>(scales), shape.n);
  aqlm::AqlmArguments to{};
  to.m = shape.m;
  to.x = x;
  to.codes = codes;
  to.vectors = vectors;
  to.scales = scales;
  to.y = y;
  run_tiles(row, to);
}

void run_linear(const KernelRow& row, const Shape& shape, float* x, float* y) {
  uint8_t header[64] = {};
  write_header(header, shape);
  const Panels panels = read_panels(header, strcmp(row.layout, "panel32") == 0 ? 32 : 16, shape.n);
  const size_t size = panels.panel_count * panels.panel_bytes;
  uint8_t* weights;
  auto weights_memory = buffer(64 + size, &weights);
  fill(weights + 64, size);
  memcpy(weights, header, sizeof header);
  PackedLinearArguments to{};
  to.m = shape.m;
  to.x = x;
  to.weights = weights;
  to.n = shape.n;
  to.k = shape.k;
  to.group_size = shape.group;
  to.y = y;
  run_tiles(row, to);
}

void run(const KernelRow& row, const Shape& shape) {
  uint8_t *x, *y;
  auto x_memory = buffer(sizeof(float) * shape.m * shape.k, &x);
  auto y_memory = buffer(sizeof(float) * shape.m * shape.n, &y);
  fill(reinterpret_cast<float*>(x), size_t{shape.m} * shape.k);
  const auto run_family = strcmp(row.family, "aqlm") == 0 ? run_aqlm : run_linear;
  run_family(row, shape, reinterpret_cast<float*>(x), reinterpret_cast<float*>(y));
}

}  // namespace

int main(int count, char** words) {
  const KernelRow* row = count == 7 ? find_row(words[1]) : nullptr;
  if (!row || (row->needs & ~cpu_features()) != 0) {
    fprintf(stderr, "run_row: expected ROW M N K BITS GROUP with a row that this CPU has\n");
    return 1;
  }
  uint32_t numbers[5];
  for (int i = 0; i < 5; i++) numbers[i] = static_cast<uint32_t>(strtoul(words[2 + i], nullptr, 10));
  run(*row, {numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]});
  return 0;
}
