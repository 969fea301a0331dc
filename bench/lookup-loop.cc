// The lookup loop that AQLM's published CPU kernels are made of, in plain C++ on one thread: a table of sums for each
// group of inputs and each codebook, then for every group and output the sums of its codes. A library of kernels for
// bench/aqlm.js: c++ -O3 -march=native -std=c++17 -shared -fPIC -I native bench/lookup-loop.cc -o lookup-loop.so
// LOOP_TARGET is what it is compiled for, which its name ends with.
#include <cstring>

#include "kernel.h"

namespace {

constexpr uint32_t kEntries = 256, kGroup = 8, kBooks = 2;

// What bench/aqlm-layers.js gives a call.
using lowbit::BufferIndex, lowbit::ScalarIndex, lowbit::buffer_of, lowbit::scalar_of;
constexpr ScalarIndex kN{0}, kK{1};
constexpr BufferIndex kX{0}, kCodes{1}, kVectors{2}, kScales{3}, kY{4}, kScratch{5};

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

void prepare(lowbit::Step& step, const lowbit::Call& call) {
  Args& args = step.init<Args>();
  args.n = scalar_of<uint32_t>(call, kN);
  args.groups = scalar_of<uint32_t>(call, kK) / kGroup;
  args.x = buffer_of<const float>(call, kX);
  args.codes = buffer_of<const uint8_t>(call, kCodes);
  args.vectors = buffer_of<const float>(call, kVectors);
  args.scales = buffer_of<const float>(call, kScales);
  args.y = buffer_of<float>(call, kY);
  args.tables = buffer_of<float>(call, kScratch);
  step.phases = 1;
  step.tiles[0] = 1;
  step.run = run;
}

size_t scratch(const lowbit::Call& call) { return scalar_of<size_t>(call, kK) / kGroup * kBooks * kEntries * 4; }

constexpr lowbit::KernelRow kRows[] = {
    {"lookup_loop_f32_1x1x8_" LOOP_TARGET, "lookup_loop", nullptr, 0, 0, 1, 1, scratch, prepare},
};

}  // namespace

extern "C" __attribute__((visibility("default"))) lowbit::KernelLibrary lowbit_kernel_library() {
  return {lowbit::kContract, {kRows, 1}};
}
