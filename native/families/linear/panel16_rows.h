// Linear layers over panel16 weights for up to 15 rows of activations. Two vectors of 32 columns, of two panels or of
// the halves of one, are unpacked once and multiplied by all rows, whose sums stay in the first-level cache.
#pragma once

#include "panel16_streams.h"

namespace lowbit {
namespace {

// Rows of activations that share unpacked weights.
constexpr uint32_t kSharedRows = 15;

// Most rows whose sums of several panels stay in registers, which is faster: with vectors of 64 bytes there are some.
// Vectors of 16 bytes do not share unpacked weights.
template <class Isa>
constexpr uint32_t kRegisterRows = Isa::kRows == 16  ? 4
                                   : Isa::kRows == 8 ? 1
                                                     : 7;

// Whether the two vectors are halves of a panel.
template <class Isa>
constexpr bool kHalves = Isa::kRows == 8;

// Which part of its panel vector `p` is.
template <class Isa>
constexpr int part_of(int p) {
  return kHalves<Isa> ? p : 0;
}

// Rows whose products are added at a time, so that their sums stay in registers. With vectors of 64 bytes, the weights
// of a run are in registers, too. Where 16-bit sums would overflow within a run, a row has two sums a vector.
template <class Isa, int Bits, bool Levels>
constexpr int pass_rows() {
  if (!kHalves<Isa>) return 2;
  return Isa::kShortSums && short_steps<Isa, Bits, Levels>() < 8 ? 2 : 4;
}

// Totals of the rows, and their sums in blocks of several runs of 32 columns.
template <class Isa>
struct SharedSums {
  typename Isa::Floats total[kSharedRows][2];
  typename Isa::Ints block[kSharedRows][2];
};

// A run: 32 columns of two vectors, at address `at` of their panels' groups. `begins` and `ends`: whether it is the
// first, and the last, of a block. `x` and `block` are those of the first row.
template <class Isa>
struct SharedRun {
  const uint8_t* group[2];
  uint32_t g, at, rows;
  bool begins, ends;
  const int8_t* x;
  size_t block;
};

// Unpacked weights of 32 columns of two vectors.
template <class Isa>
using SharedBytes = typename Isa::Bytes[8][2];

// PackedWeights that are stored as they are unpacked, for the next rows.
template <class Isa, int Bits, bool Levels>
struct StoringWeights {
  PackedWeights<Isa, Bits, Levels, 2> packed;
  SharedBytes<Isa>& stored;
  template <int I>
  inline LOWBIT_INLINE void get(typename Isa::Bytes (&u)[2]) {
    packed.template get<I>(u);
    stored[I][0] = u[0];
    stored[I][1] = u[1];
  }
};

template <class Isa>
struct StoredWeights {
  const SharedBytes<Isa>& stored;
  template <int I>
  inline LOWBIT_INLINE void get(typename Isa::Bytes (&u)[2]) {
    u[0] = stored[I][0];
    u[1] = stored[I][1];
  }
};

// Scales and offsets of a run's groups. A run has one group or part of one, or two groups of 16 columns.
template <class Isa>
struct SharedScales {
  typename Isa::Floats scales[2][2], offsets[2][2];
};

// Extent of a block of activations: a run of 32 columns; one run or several; half a run, where groups have 16 columns.
enum class RunBlocks { kRun, kRuns, kPair };

// Adds the products of `Rows` rows from `first` on to their sums.
template <class Isa, int Bits, bool Levels, RunBlocks Blocks, int Rows, class Weights>
inline LOWBIT_INLINE void add_shared(const PackedLinear& args, const SharedRun<Isa>& run,
                                                     Weights weights, const SharedScales<Isa>& of, uint32_t first,
                                                     SharedSums<Isa>& sums) {
  constexpr bool kWhole = Blocks != RunBlocks::kRuns;
  constexpr int kSets = Blocks == RunBlocks::kPair ? 2 : 1;
  const Panel16& w = args.weights;
  const size_t x_stride = w.padded_k(), block_stride = args.rows.block_count;
  const size_t block = run.block + first * block_stride;
  const BlockNumbers* numbers = args.rows.numbers + block;
  auto* block_sums = sums.block + first;
  auto* totals = sums.total + first;
  const auto begin = [&](int set, int p, int m) LOWBIT_INLINE {
    return kWhole || run.begins ? start_of<Isa, Bits, Levels>({w, args.rows, run.group[p], part_of<Isa>(p), set},
                                                              block + m * block_stride + set)
                                : block_sums[m][p];
  };
  typename Isa::Ints sum[kSets][2][Rows];
  if constexpr (!Isa::kShortSums)
    for (int set = 0; set < kSets; set++)
      for (int p = 0; p < 2; p++)
        for (int m = 0; m < Rows; m++) sum[set][p][m] = begin(set, p, m);
  column_sums<Isa, Bits, Levels>(weights, StoredQuads<Isa>{run.x + first * x_stride, x_stride}, sum);
  if constexpr (Isa::kShortSums)
    for (int set = 0; set < kSets; set++)
      for (int p = 0; p < 2; p++)
        for (int m = 0; m < Rows; m++) sum[set][p][m] = Isa::add(begin(set, p, m), sum[set][p][m]);
  if (!kWhole && !run.ends) {
    for (int m = 0; m < Rows; m++)
      for (int p = 0; p < 2; p++) block_sums[m][p] = sum[0][p][m];
    return;
  }
  each_index<kSets>([&](auto set) LOWBIT_INLINE {
    for (int m = 0; m < Rows; m++)
      for (int p = 0; p < 2; p++)
        totals[m][p] =
            add_products<Isa>(sum[set][p][m], of.scales[set][p], numbers[m * block_stride + set].factor, totals[m][p]);
    if (!adds_offsets<Isa>(w)) return;
    const float* offsets = args.rows.offsets + block + set;
    for (int m = 0; m < Rows; m++)
      for (int p = 0; p < 2; p++)
        totals[m][p] = add_offsets<Isa>(offsets[m * block_stride], of.offsets[set][p], totals[m][p]);
  });
}

// Multiplies all rows by a run: `Rows` of them, or `run.rows`, which are more than pass_rows. The first rows then
// unpack the weights for the others.
template <class Isa, int Bits, bool Levels, RunBlocks Blocks, int Rows>
inline LOWBIT_INLINE void shared_run(const PackedLinear& args, const SharedRun<Isa>& run,
                                                     typename Isa::Bytes levels, SharedSums<Isa>& sums) {
  constexpr bool kPair = Blocks == RunBlocks::kPair;
  const Panel16& w = args.weights;
  SharedScales<Isa> of{};
  if (Blocks != RunBlocks::kRuns || run.ends)
    each_index<kPair ? 2 : 1>([&](auto set) LOWBIT_INLINE {
      for (int p = 0; p < 2; p++) {
        const GroupPlace<Isa> place{run.group[p], run.g, part_of<Isa>(p), set};
        of.scales[set][p] = group_scales < Isa, kPair && kMayE4m3<Bits, Levels> > (w, place);
        if (adds_offsets<Isa>(w)) of.offsets[set][p] = offsets_of<Isa>(w, place, of.scales[set][p], Bits);
      }
    });
  const PackedWeights<Isa, Bits, Levels, 2> packed{
      {run.group[0] + run.at, run.group[1] + run.at + 4 * Isa::kRows * part_of<Isa>(1)}, levels, {}};
  if constexpr (Rows > 0) {
    add_shared<Isa, Bits, Levels, Blocks, Rows>(args, run, packed, of, 0, sums);
  } else {
    constexpr int kRows = pass_rows<Isa, Bits, Levels>();
    SharedBytes<Isa> u;
    add_shared<Isa, Bits, Levels, Blocks, kRows>(args, run, StoringWeights<Isa, Bits, Levels>{packed, u}, of, 0, sums);
    uint32_t m = kRows;
    const auto add = [&](auto rows) LOWBIT_INLINE {
      const SharedBytes<Isa>* stored = &u;
      // Registers of 32 bytes have no room for all weights: compilers would load each weight for every row anew.
      if constexpr (kHalves<Isa>) __asm__("" : "+r"(stored) : : "memory");
      add_shared<Isa, Bits, Levels, Blocks, rows>(args, run, StoredWeights<Isa>{*stored}, of, m, sums);
      m += rows;
    };
    while (m + kRows <= run.rows) add(std::integral_constant<int, kRows>{});
    if (kRows > 2 && m + 2 <= run.rows) add(std::integral_constant<int, 2>{});
    if (m < run.rows) add(std::integral_constant<int, 1>{});
  }
}

// Multiplies `rows` rows from `row` on by panels first and first + stride, of which one past `last` repeats it, or by
// the halves of `first`. `next` is the panel that is read after them. `Rows`: as for shared_run.
template <class Isa, int Bits, bool Levels, RunBlocks Blocks, int Rows>
__attribute__((noinline)) void shared_block(const PackedLinear& args, uint32_t first, uint32_t stride, uint32_t last,
                                            uint32_t row, uint32_t rows, uint32_t next) {
  const Panel16& w = args.weights;
  const uint32_t second = kHalves<Isa> ? first : std::min(first + stride, last);
  const auto levels = levels_of<Isa, Bits>(w);
  const uint32_t block_length = std::max(32u, args.rows.block_length);
  SharedRun<Isa> run{{w.panel(first), w.panel(second)}, 0, 0, rows, true, true, nullptr, 0};
  run.x = args.rows.values + static_cast<size_t>(row) * w.padded_k();
  run.block = static_cast<size_t>(row) * args.rows.block_count;
  SharedSums<Isa> sums;
  for (uint32_t m = 0; m < rows; m++)
    for (auto& total : sums.total[m]) total = Isa::zero_floats();
  // Past the end of a panel, prefetching goes on with the one that is read after it.
  const size_t jump = (static_cast<size_t>(next - first) - 1) * w.panel_bytes;
  const uint8_t* const end = w.panel(first) + w.panel_bytes;
  for (; run.g < w.groups; run.g++) {
    run.at = w.vectors_offset;
    for (uint32_t c = 0; c < w.group_length; c += 32, run.at += 64 * Bits, run.x += 32) {
      run.begins = c % block_length == 0;
      run.ends = (c + 32) % block_length == 0;
      const size_t from = run.at + (run.group[0] + run.at + Isa::kAhead >= end ? jump : 0);
      Isa::template prefetch<Bits>(run.group[0] + from);
      if (!kHalves<Isa>) Isa::template prefetch<Bits>(run.group[1] + from);
      shared_run<Isa, Bits, Levels, Blocks, Rows>(args, run, levels, sums);
      if (run.ends) run.block += Blocks == RunBlocks::kPair ? 2 : 1;
    }
    for (auto& group : run.group) group += w.group_bytes;
  }
  for (uint32_t m = 0; m < rows; m++) {
    store_part<Isa, 1>(args, first, 0, row + m, &sums.total[m][0]);
    store_part<Isa, 1>(args, second, part_of<Isa>(1), row + m, &sums.total[m][1]);
  }
}

}  // namespace
}  // namespace lowbit
