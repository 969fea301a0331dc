// Runs one linear row once, on one thread, over weights of random bits: for emulators that count instructions.
//
//   run_row ROW M N K BITS GROUP
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "../../kernel.h"
#include "../../panel16.h"

using namespace lowbit;

namespace {

const KernelRow* find_row(const char* name) {
  for (size_t t = 0; t < kernel_table_count(); t++) {
    const KernelRows table = kernel_rows(t);
    for (size_t i = 0; i < table.count; i++)
      if (strcmp(table.rows[i].name, name) == 0) return &table.rows[i];
  }
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

// The header of weights with positive f16 scales, as far as kernels read it.
void write_header(uint8_t* at, const Shape& shape) {
  at[8] = static_cast<uint8_t>(shape.bits);
  at[9] = at[15] = 1;
  memcpy(at + 16, &shape.n, 4);
  memcpy(at + 20, &shape.k, 4);
  memcpy(at + 24, &shape.group, 4);
}

void run(const KernelRow& row, const Shape& shape) {
  uint8_t header[64] = {};
  write_header(header, shape);
  const Panels panels = read_panels(header, strcmp(row.layout, "panel32") == 0 ? 32 : 16);
  uint8_t *weights, *x, *y, *scratch;
  auto weights_memory = buffer(64 + panels.panel_count * panels.panel_bytes, &weights);
  auto x_memory = buffer(sizeof(float) * shape.m * shape.k, &x);
  auto y_memory = buffer(sizeof(float) * shape.m * shape.n, &y);
  uint32_t state = 1;
  for (size_t i = 0; i < panels.panel_count * panels.panel_bytes; i++)
    weights[64 + i] = static_cast<uint8_t>((state = state * 1664525u + 1013904223u) >> 24);
  memcpy(weights, header, sizeof header);
  for (size_t i = 0; i < shape.m * shape.k; i++) reinterpret_cast<float*>(x)[i] = static_cast<float>(i % 17) - 8;
  const double m = shape.m;
  void* buffers[] = {x, weights, y, nullptr};
  Call call{&m, buffers, 1};
  auto scratch_memory = buffer(row.scratch_bytes(call), &scratch);
  buffers[3] = scratch;
  Step step{};
  row.prepare(step, call);
  for (uint32_t phase = 0; phase < step.phases; phase++)
    for (uint32_t tile = 0; tile < step.tiles[phase]; tile++) step.run(step, phase, tile, 0);
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
