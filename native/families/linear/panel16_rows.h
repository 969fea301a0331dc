// Linear layers over panel16 weights for 5 to 15 rows of activations, for vectors of a whole panel. 32 columns of two
// panels are unpacked into registers once and multiplied by all rows, whose sums stay in the first-level cache.
#pragma once

#include "panel16_streams.h"

namespace lowbit {
namespace {

// Rows of activations of one pass, and the most whose sums of several panels stay in registers, which is faster.
constexpr uint32_t kSharedRows = 15;
constexpr int kRegisterRows = 4;

// Totals of the rows, and their sums in blocks of several runs of 32 columns.
template <class Isa>
struct SharedSums {
  typename Isa::Floats total[kSharedRows][2];
  typename Isa::Ints block[kSharedRows][2];
};

// 32 columns of two panels, from address `at` in their groups. `begins` and `ends`: whether they are the first and the
// last ones of a block. `x` and `block` are those of the first row.
template <class Isa>
struct SharedRun {
  const uint8_t* group[2];
  uint32_t g, at, rows;
  bool begins, ends;
  const int8_t* x;
  size_t block;
};

// Unpacked weights of 32 columns of two panels.
template <class Isa>
using SharedBytes = typename Isa::Bytes[2][8];

template <class Isa, int Bits, bool Levels>
inline LOWBIT_INLINE void unpack_run(const SharedRun<Isa>& run, typename Isa::Bytes levels,
                                                     SharedBytes<Isa>& u) {
  constexpr int kVectors = Fields<Bits>::kVectors, kFields = Fields<Bits>::kFields;
  each_index<2>([&](auto p) LOWBIT_INLINE {
    each_index<8 / kFields>([&](auto i) LOWBIT_INLINE {
      typename Isa::Bytes chunk[kVectors];
      for (int v = 0; v < kVectors; v++) chunk[v] = Isa::load_bytes(run.group[p] + run.at + 64 * (i * kVectors + v));
      each_index<kFields>([&](auto f) LOWBIT_INLINE {
        const auto field = unpack_field<Isa, Bits, f>(chunk);
        if constexpr (Levels) u[p][i * kFields + f] = Isa::lookup(levels, field);
        else u[p][i * kFields + f] = Isa::template weight<Bits>(field);
      });
    });
  });
}

// Adds the products of `Rows` rows from `first` on to their sums. `Pair`: the run is two blocks of 16 columns.
template <class Isa, int Bits, bool Levels, bool Pair, int Rows>
inline LOWBIT_INLINE void add_shared(const PackedLinear& args, const SharedRun<Isa>& run,
                                                     const SharedBytes<Isa>& u,
                                                     const typename Isa::Floats (&scales)[2][2],
                                                     const typename Isa::Floats (&offsets)[2][2], uint32_t first,
                                                     SharedSums<Isa>& sums) {
  constexpr int kSets = Pair ? 2 : 1, kQuads = 8 / kSets;
  const Panel16& w = args.weights;
  const QuantizedRows& rows = args.rows;
  const size_t x_stride = w.padded_k(), block_stride = rows.block_count;
  const int8_t* x = run.x + first * x_stride;
  const size_t block = run.block + first * block_stride;
  each_index<kSets>([&](auto set)
                        LOWBIT_INLINE {
    typename Isa::Ints sum[Rows][2];
    for (int m = 0; m < Rows; m++)
      for (int p = 0; p < 2; p++)
        sum[m][p] = Pair || run.begins ? start_of<Isa, Bits, Levels>(w, run.group[p], 0,
                                                                     rows.numbers[block + m * block_stride + set].sum)
                                       : sums.block[first + m][p];
    each_index<kQuads>([&](auto i) LOWBIT_INLINE {
      for (int m = 0; m < Rows; m++) {
        const auto four = Isa::broadcast_quad(x + m * x_stride + 4 * (set * kQuads + i));
        for (int p = 0; p < 2; p++) sum[m][p] = Isa::dot_wide(sum[m][p], u[p][set * kQuads + i], four);
      }
    });
    for (int m = 0; m < Rows; m++) {
      const size_t at = block + m * block_stride + set;
      for (int p = 0; p < 2; p++) {
        if (!Pair && !run.ends) {
          sums.block[first + m][p] = sum[m][p];
          continue;
        }
        auto& total = sums.total[first + m][p];
        total = add_products<Isa>(sum[m][p], scales[set][p], rows.numbers[at].factor, total);
        if (adds_offsets<Isa>(w)) total = add_offsets<Isa>(rows.offsets[at], offsets[set][p], total);
      }
    }
  });
}

// All rows by 32 columns of two panels.
template <class Isa, int Bits, bool Levels, bool Pair>
inline LOWBIT_INLINE void shared_run(const PackedLinear& args, const SharedRun<Isa>& run,
                                                     typename Isa::Bytes levels, SharedSums<Isa>& sums) {
  const Panel16& w = args.weights;
  SharedBytes<Isa> u;
  unpack_run<Isa, Bits, Levels>(run, levels, u);
  typename Isa::Floats scales[2][2] = {}, offsets[2][2] = {};
  if (Pair || run.ends)
    each_index<Pair ? 2 : 1>([&](auto set) LOWBIT_INLINE {
      for (int p = 0; p < 2; p++) {
        const GroupPlace<Isa> place{run.group[p], run.g, 0, set};
        scales[set][p] = group_scales < Isa, Pair && kMayE4m3<Bits, Levels> > (w, place);
        if (adds_offsets<Isa>(w)) offsets[set][p] = offsets_of<Isa>(w, place, scales[set][p], Bits);
      }
    });
  uint32_t m = 0;
  for (; m + 2 <= run.rows; m += 2) add_shared<Isa, Bits, Levels, Pair, 2>(args, run, u, scales, offsets, m, sums);
  if (m < run.rows) add_shared<Isa, Bits, Levels, Pair, 1>(args, run, u, scales, offsets, m, sums);
}

// `rows` rows from `row` on by panels `first` and `first + stride`, where one past `last` repeats that one. `next` is
// the first panel that is read after them.
template <class Isa, int Bits, bool Levels, bool Pair>
inline void shared_block(const PackedLinear& args, uint32_t first, uint32_t stride, uint32_t last, uint32_t row,
                         uint32_t rows, uint32_t next) {
  const Panel16& w = args.weights;
  const auto levels = levels_of<Isa, Bits>(w);
  const uint32_t block_length = std::max(32u, args.rows.block_length);
  SharedRun<Isa> run{{w.panel(first), w.panel(std::min(first + stride, last))}, 0, 0, rows, true, true, nullptr, 0};
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
      for (const uint8_t* group : run.group) Isa::template prefetch<Bits>(group + from);
      shared_run<Isa, Bits, Levels, Pair>(args, run, levels, sums);
      if (run.ends) run.block += Pair ? 2 : 1;
    }
    for (auto& group : run.group) group += w.group_bytes;
  }
  for (uint32_t m = 0; m < rows; m++) {
    store_part<Isa, 1>(args, first, 0, row + m, &sums.total[m][0]);
    store_part<Isa, 1>(args, std::min(first + stride, last), 0, row + m, &sums.total[m][1]);
  }
}

}  // namespace
}  // namespace lowbit
