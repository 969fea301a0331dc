// The lookup loop that AQLM's published CPU kernels are made of, in plain C++ on one thread: a table of sums for each
// group of inputs and each codebook, then for every group and output the sums of its codes. A library of kernels for
// bench/aqlm.js: c++ -O3 -march=native -std=c++17 -shared -fPIC -I native bench/lookup-loop.cc -o lookup-loop.so
// LOOP_TARGET is what it is compiled for, which its name ends with.
#include <cstring>

#include "kernel.h"

namespace {

constexpr uint32_t kEntries = 256, kGroup = 8, kBooks = 2;

struct Args {
  const float* x;
  // [groups][n][2]
  const uint8_t* codes;
  // [2][8][256]: turned, so that compilers make vectors of the products.
  const float* vectors;
  const float* scales;
  float* y;
  float* tables;
  uint32_t n, groups;
};

void build_tables(const Args& args) {
  for (uint32_t g = 0; g < args.groups; g++)
    for (uint32_t c = 0; c < kBooks; c++) {
      float* table = args.tables + (static_cast<size_t>(g) * kBooks + c) * kEntries;
      memset(table, 0, 4 * kEntries);
      for (uint32_t j = 0; j < kGroup; j++) {
        const float x = args.x[g * kGroup + j];
        const float* vectors = args.vectors + (c * kGroup + j) * kEntries;
        for (uint32_t e = 0; e < kEntries; e++) table[e] += x * vectors[e];
      }
    }
}

void run(const lowbit::Step& step, uint32_t, uint32_t, uint32_t) {
  const Args& args = step.as<Args>();
  build_tables(args);
  float* __restrict y = args.y;
  memset(y, 0, 4 * static_cast<size_t>(args.n));
  for (uint32_t g = 0; g < args.groups; g++) {
    const float* first = args.tables + static_cast<size_t>(g) * kBooks * kEntries;
    const float* second = first + kEntries;
    const uint8_t* codes = args.codes + static_cast<size_t>(g) * args.n * kBooks;
    for (uint32_t o = 0; o < args.n; o++) y[o] += first[codes[2 * o]] + second[codes[2 * o + 1]];
  }
  for (uint32_t o = 0; o < args.n; o++) y[o] *= args.scales[o];
}

// scalars: n, k; buffers: x, codes, vectors, scales, y, scratch.
void prepare(lowbit::Step& step, const lowbit::Call& call) {
  Args& args = step.init<Args>();
  args.n = static_cast<uint32_t>(call.scalars[0]);
  args.groups = static_cast<uint32_t>(call.scalars[1]) / kGroup;
  args.x = static_cast<const float*>(call.buffers[0]);
  args.codes = static_cast<const uint8_t*>(call.buffers[1]);
  args.vectors = static_cast<const float*>(call.buffers[2]);
  args.scales = static_cast<const float*>(call.buffers[3]);
  args.y = static_cast<float*>(call.buffers[4]);
  args.tables = static_cast<float*>(call.buffers[5]);
  step.phases = 1;
  step.tiles[0] = 1;
  step.run = run;
}

size_t scratch(const lowbit::Call& call) {
  return static_cast<size_t>(call.scalars[1]) / kGroup * kBooks * kEntries * 4;
}

constexpr lowbit::KernelRow kRows[] = {
    {"lookup_loop_f32_1x1x8_" LOOP_TARGET, "lookup_loop", nullptr, 0, 0, 1, 1, scratch, prepare},
};

}  // namespace

extern "C" __attribute__((visibility("default"))) lowbit::KernelLibrary lowbit_kernel_library() {
  return {lowbit::kContract, {kRows, 1}};
}
