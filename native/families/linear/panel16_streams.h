// Linear layers over panel16 weights for one to seven rows of activations. Panels are read as a few streams, each of
// neighbouring panels in memory, since the hardware prefetcher gets little out of short streams. Vectors are written
// out, so that little is computed besides the products.
#pragma once

#include "panel16_parts.h"

namespace lowbit {
namespace {

// Products summed over 32 columns of `Parts` parts of panels, or over each 32 / `Sets` of them. `vectors` point at the
// parts' weights; x(m, i) is quad i of activations of row m in all lanes. Without short sums they are added to the
// values in `sums`.
template <class Isa, int Bits, bool Levels, int Sets, int Parts, int Rows, class X>
inline LOWBIT_INLINE void column_sums(const uint8_t* const (&vectors)[Parts],
                                                      typename Isa::Bytes levels, X&& x,
                                                      typename Isa::Ints (&sums)[Sets][Parts][Rows]) {
  using Bytes = typename Isa::Bytes;
  constexpr int kVectors = Fields<Bits>::kVectors, kFields = Fields<Bits>::kFields;
  constexpr int kSetSteps = 8 / Sets, kSteps = std::min(short_steps<Isa, Bits, Levels>(), kSetSteps);
  typename Isa::Ints shorts[Parts][Rows];
  each_index<8 / kFields>([&](auto i) LOWBIT_INLINE {
    Bytes chunk[Parts][kVectors];
    for (int part = 0; part < Parts; part++)
      for (int v = 0; v < kVectors; v++) chunk[part][v] = Isa::load_bytes(vectors[part] + 64 * (i * kVectors + v));
    each_index<kFields>([&](auto f) LOWBIT_INLINE {
      constexpr int kStep = i * kFields + f, kInSet = kStep % kSetSteps;
      auto& sum = sums[kStep / kSetSteps];
      Bytes u[Parts];
      for (int part = 0; part < Parts; part++) {
        u[part] = unpack_field<Isa, Bits, f>(chunk[part]);
        if constexpr (Levels) u[part] = Isa::lookup(levels, u[part]);
        else u[part] = Isa::template weight<Bits>(u[part]);
      }
      for (int m = 0; m < Rows; m++) {
        const Bytes four = x(m, kStep);
        for (int part = 0; part < Parts; part++) {
          if constexpr (Isa::kShortSums && kSteps > 0)
            add_step<Isa, kSteps, kInSet>(u[part], four, shorts[part][m], sum[part][m]);
          else
            sum[part][m] =
                Isa::dot_wide(Isa::kShortSums && kInSet == 0 ? Isa::broadcast_int(0) : sum[part][m], u[part], four);
        }
      }
    });
  });
}

// The eight quads of activations of 32 columns of one row, in registers. Not a lambda: column_sums would be compiled
// anew for each panel's.
template <class Isa>
struct LoadedQuads {
  const typename Isa::Bytes* quads;
  inline LOWBIT_INLINE typename Isa::Bytes operator()(int, int i) const { return quads[i]; }
};

// Quads of activations of several rows, `stride` apart in memory.
template <class Isa>
struct StoredQuads {
  const int8_t* x;
  size_t stride;
  inline LOWBIT_INLINE typename Isa::Bytes operator()(int m, int i) const {
    return Isa::broadcast_quad(x + m * stride + 4 * i);
  }
};

// Initial sums of a row in a block; `sums` is BlockNumbers::sum.
template <class Isa, int Bits, bool Levels>
inline LOWBIT_INLINE typename Isa::Ints start_of(const Panel16& w, const uint8_t* group, int part,
                                                                 int32_t sums) {
  constexpr int32_t kOffset = weight_offset<Isa, Bits, Levels>();
  if (!w.has_offsets || adds_offsets<Isa>(w)) return Isa::broadcast_int(sums);
  return Isa::scaled_zeros(group + w.zeros_offset + part * Isa::kRows, kOffset, -sums);
}

// Shape of a group: several runs of 32 columns, one run, one run with integer scales, or two groups of 16 columns in a
// run, with integer or with 8-bit float scales.
enum class GroupKind { kRuns, kRun, kNested, kPair, kE4m3Pair };

// `Rows` rows of activations by `Panels` panels, `stride` apart, where panels past `last` repeat that one. All sums are
// in registers. With several rows, two panels share the loads of activations; their vectors are whole panels.
template <class Isa, int Bits, bool Levels, GroupKind Kind, int Panels, int Rows>
inline void row_block(const PackedLinear& args, uint32_t first, uint32_t stride, uint32_t last, uint32_t row) {
  using Ints = typename Isa::Ints;
  using Floats = typename Isa::Floats;
  constexpr int kPanels = Panels, kParts = 16 / Isa::kRows;
  constexpr bool kShort = Kind != GroupKind::kRuns;
  constexpr bool kNested = Kind == GroupKind::kNested || Kind == GroupKind::kPair;
  constexpr int kSets = Kind == GroupKind::kPair || Kind == GroupKind::kE4m3Pair ? 2 : 1;
  static_assert(Rows == 1 || (kPanels % 2 == 0 && kParts == 1));
  const Panel16& w = args.weights;
  const size_t x_stride = w.padded_k();
  const int8_t* x = args.rows.values + row * x_stride;
  const QuantizedRows& rows = args.rows;
  const size_t block_stride = rows.block_count;
  // Block of the current row, counted by the block's first set.
  size_t block = row * block_stride;
  const auto levels = levels_of<Isa, Bits>(w);
  const uint8_t* group[kPanels];
  for (int p = 0; p < kPanels; p++) group[p] = w.panel(std::min(first + p * stride, last));
  Floats total[kPanels][kParts][Rows];
  const auto each_part = [](auto&& body) LOWBIT_INLINE {
    each_index<kPanels * kParts>([&](auto i) LOWBIT_INLINE {
      body(std::integral_constant<int, i / kParts>{}, std::integral_constant<int, i % kParts>{});
    });
  };
  each_part([&](auto p, auto part) LOWBIT_INLINE {
    for (auto& each : total[p][part]) each = Isa::zero_floats();
  });
  SuperFactors<Isa> factors[kNested ? kPanels : 1][kParts];

  for (uint32_t g = 0; g < w.groups; g++) {
    if (kNested && g % kSuperGroups == 0)
      each_part([&](auto p, auto part) LOWBIT_INLINE { factors[p][part].load(w, group[p], g, part); });
    const auto start = [&](auto p, auto part, int m, int set = 0) LOWBIT_INLINE {
      return start_of<Isa, Bits, Levels>(w, group[p], part, rows.numbers[block + m * block_stride + set].sum);
    };
    const auto add_sums = [&](auto p, auto part, const Ints(&sum)[Rows], int set = 0) LOWBIT_INLINE {
      const GroupPlace<Isa> place{group[p], g, part, set};
      Floats scale;
      if constexpr (kNested) scale = factors[p][part].scales(place);
      else scale = group_scales<Isa, Kind == GroupKind::kE4m3Pair>(w, place);
      const size_t at = block + set;
      for (int m = 0; m < Rows; m++)
        total[p][part][m] =
            add_products<Isa>(sum[m], scale, rows.numbers[at + m * block_stride].factor, total[p][part][m]);
      if (!adds_offsets<Isa>(w)) return;
      Floats offset;
      if constexpr (kNested) offset = factors[p][part].template offsets<Bits>(w, place, scale);
      else offset = offsets_of<Isa>(w, place, scale, Bits);
      for (int m = 0; m < Rows; m++)
        total[p][part][m] = add_offsets<Isa>(rows.offsets[at + m * block_stride], offset, total[p][part][m]);
    };
    // With several rows, registers have no room for sums that are not in use yet.
    constexpr bool kStarted = !kShort || (Kind == GroupKind::kRun && Rows == 1);
    Ints block_sum[kPanels][kParts][Rows];
    const auto begin = [&](auto p, auto part, int m, int set) LOWBIT_INLINE {
      return kStarted ? block_sum[p][part][m] : start(p, part, m, set);
    };
    const auto add_run = [&](auto p, auto part, const Ints(&run)[Rows], int set) LOWBIT_INLINE {
      Ints sum[Rows];
      for (int m = 0; m < Rows; m++) sum[m] = Isa::kShortSums ? Isa::add(begin(p, part, m, set), run[m]) : run[m];
      if constexpr (kShort) add_sums(p, part, sum, set);
      else
        for (int m = 0; m < Rows; m++) block_sum[p][part][m] = sum[m];
    };
    uint32_t at = w.vectors_offset;
    const uint32_t length = kShort ? 32 : w.group_length, block_length = kShort ? 32 : rows.block_length;
    for (uint32_t c = 0; c < length; c += 32, at += 64 * Bits, x += 32) {
      if constexpr (kStarted)
        if (kShort || c % block_length == 0)
          each_part([&](auto p, auto part) LOWBIT_INLINE {
            for (int m = 0; m < Rows; m++) block_sum[p][part][m] = start(p, part, m);
          });
      typename Isa::Bytes quads[8];
      if constexpr (Rows == 1)
        each_index<8>([&](auto i) LOWBIT_INLINE { quads[i] = Isa::broadcast_quad(x + 4 * i); });
      each_part([&](auto p, auto part) LOWBIT_INLINE {
        if (part == 0) Isa::template prefetch_near<Bits, Rows == 1>(group[p] + at);
        if constexpr (Rows == 1) {
          Ints run[kSets][1][1];
          for (int set = 0; !Isa::kShortSums && set < kSets; set++) run[set][0][0] = begin(p, part, 0, set);
          column_sums<Isa, Bits, Levels>({group[p] + at + 4 * Isa::kRows * part}, levels, LoadedQuads<Isa>{quads}, run);
          each_index<kSets>([&](auto set) LOWBIT_INLINE { add_run(p, part, run[set][0], set); });
        } else if constexpr (p % 2 == 1) {
          Ints run[kSets][2][Rows];
          constexpr std::integral_constant<int, p - 1> kBefore;
          for (int set = 0; !Isa::kShortSums && set < kSets; set++)
            for (int m = 0; m < Rows; m++) {
              run[set][0][m] = begin(kBefore, part, m, set);
              run[set][1][m] = begin(p, part, m, set);
            }
          column_sums<Isa, Bits, Levels>({group[p - 1] + at, group[p] + at}, levels, StoredQuads<Isa>{x, x_stride},
                                         run);
          each_index<kSets>([&](auto set) LOWBIT_INLINE {
            add_run(kBefore, part, run[set][0], set);
            add_run(p, part, run[set][1], set);
          });
        }
      });
      if (!kShort && (c + 32) % block_length > 0) continue;
      if constexpr (!kShort)
        each_part([&](auto p, auto part) LOWBIT_INLINE { add_sums(p, part, block_sum[p][part]); });
      block += kSets;
    }
    for (int p = 0; p < kPanels; p++) group[p] += w.group_bytes;
  }
  each_part([&](auto p, auto part) LOWBIT_INLINE {
    store_part<Isa, Rows>(args, std::min(first + p * stride, last), part, row, total[p][part]);
  });
}

// Sums of several rows in a block.
template <class Isa>
struct RowSums {
  static constexpr int kParts = 16 / Isa::kRows;
  typename Isa::Ints block[kStreamedRows][Isa::kPanels][kParts];
  typename Isa::Floats total[kStreamedRows][Isa::kPanels][kParts];
};

// 32 columns of a panel: the address of the group, the offset of the weight vectors in it, whether they end the block,
// the first row's activations and the stride between rows.
template <class Isa>
struct Columns {
  const Panel16* weights;
  const uint8_t* group;
  uint32_t g, at;
  bool ends;
  typename Isa::Bytes levels;
  const int8_t* x;
  size_t x_stride;
  // Block of the first row; the next row's is rows->block_count further on.
  const QuantizedRows* rows;
  size_t block;
};

// Adds columns of panel p to the sums of `Rows` rows from `first` on. Not inlined: compilers would unpack weights for
// all rows of a block at once and spill them.
template <class Isa, int Bits, bool Levels, bool Pair, int Rows>
__attribute__((noinline)) void add_columns(const Columns<Isa>& columns, int first, int p, RowSums<Isa>& sums) {
  constexpr int kParts = RowSums<Isa>::kParts, kSets = Pair ? 2 : 1;
  const int8_t* x = columns.x + first * columns.x_stride;
  typename Isa::Ints run[kSets][kParts][Rows];
  const uint8_t* const vectors[kParts] = {columns.group + columns.at, columns.group + columns.at + 32};
  column_sums<Isa, Bits, Levels>(vectors, columns.levels, StoredQuads<Isa>{x, columns.x_stride}, run);
  const Panel16& w = *columns.weights;
  const QuantizedRows& rows = *columns.rows;
  each_index<kSets * kParts>([&](auto i) LOWBIT_INLINE {
    constexpr int kSet = i / kParts, kPart = i % kParts;
    const auto block = [&](int m) LOWBIT_INLINE {
      return columns.block + (first + m) * size_t{rows.block_count} + kSet;
    };
    const GroupPlace<Isa> place{columns.group, columns.g, kPart, kSet};
    const auto scale = group_scales < Isa, Pair && kMayE4m3<Bits, Levels> > (w, place);
    each_index<Rows>([&](auto m)
                         LOWBIT_INLINE {
      auto& sum = sums.block[first + m][p][kPart];
      auto& total = sums.total[first + m][p][kPart];
      const auto all =
          Isa::add(Pair ? start_of<Isa, Bits, Levels>(w, columns.group, kPart, rows.numbers[block(m)].sum) : sum,
                   run[kSet][kPart][m]);
      if (Pair || columns.ends) total = add_products<Isa>(all, scale, rows.numbers[block(m)].factor, total);
      else sum = all;
    });
    if (!adds_offsets<Isa>(w) || !columns.ends) return;
    const auto offset = offsets_of<Isa>(w, place, scale, Bits);
    each_index<Rows>([&](auto m) LOWBIT_INLINE {
      auto& total = sums.total[first + m][p][kPart];
      total = add_offsets<Isa>(rows.offsets[block(m)], offset, total);
    });
  });
}

// add_columns for two to kStreamedRows rows, in sets whose sums fit registers.
template <class Isa, int Bits, bool Levels, bool Pair>
inline void add_rows(const Columns<Isa>& columns, int rows, int p, RowSums<Isa>& sums) {
  const auto add = [&](int first, int count) {
    if (count == 2) add_columns<Isa, Bits, Levels, Pair, 2>(columns, first, p, sums);
    else if (count == 3) add_columns<Isa, Bits, Levels, Pair, 3>(columns, first, p, sums);
    else add_columns<Isa, Bits, Levels, Pair, 4>(columns, first, p, sums);
  };
  const int half = rows > 4 ? (rows + 1) / 2 : rows;
  add(0, half);
  if (half < rows) add(half, rows - half);
}

// row_block for `rows` rows, two or more: weights of 32 columns stay in the first-level cache for all sets of rows.
template <class Isa, int Bits, bool Levels>
inline void rows_block(const PackedLinear& args, uint32_t first, uint32_t stride, uint32_t last, uint32_t row,
                       int rows) {
  constexpr int kPanels = Isa::kPanels, kParts = 16 / Isa::kRows;
  const Panel16& w = args.weights;
  const size_t block_stride = args.rows.block_count;
  Columns<Isa> columns{&w,         nullptr,           0, 0, false, levels_of<Isa, Bits>(w), nullptr, w.padded_k(),
                       &args.rows, row * block_stride};
  columns.x = args.rows.values + row * columns.x_stride;
  const uint8_t* group[kPanels];
  for (int p = 0; p < kPanels; p++) group[p] = w.panel(std::min(first + p * stride, last));
  RowSums<Isa> sums;
  for (int m = 0; m < rows; m++)
    for (auto& panel : sums.total[m])
      for (auto& total : panel) total = Isa::zero_floats();

  for (uint32_t g = 0; g < w.groups; g++) {
    columns.g = g;
    columns.at = w.vectors_offset;
    for (uint32_t c = 0; c < w.group_length; c += 32, columns.at += 64 * Bits, columns.x += 32) {
      const uint32_t length = std::max(32u, args.rows.block_length);
      if (c % length == 0)
        for (int m = 0; m < rows; m++)
          for (int p = 0; p < kPanels; p++)
            for (int part = 0; part < kParts; part++)
              sums.block[m][p][part] = start_of<Isa, Bits, Levels>(
                  w, group[p], part, args.rows.numbers[columns.block + m * block_stride].sum);
      columns.ends = (c + 32) % length == 0;
      for (int p = 0; p < kPanels; p++) {
        columns.group = group[p];
        Isa::template prefetch_near<Bits, false>(group[p] + columns.at);
        if constexpr (kMayPair<Bits, Levels>)
          if (w.parts == 2) {
            add_rows<Isa, Bits, Levels, true>(columns, rows, p, sums);
            continue;
          }
        add_rows<Isa, Bits, Levels, false>(columns, rows, p, sums);
      }
      if (columns.ends) columns.block += w.parts;
    }
    for (int p = 0; p < kPanels; p++) group[p] += w.group_bytes;
  }
  // Not unrolled: it runs once per block, and would be most of the block's code.
#pragma GCC unroll 1
  for (int p = 0; p < kPanels; p++)
#pragma GCC unroll 1
    for (int part = 0; part < kParts; part++)
      for (int m = 0; m < rows; m++)
        store_part<Isa, 1>(args, std::min(first + p * stride, last), part, row + m, &sums.total[m][p][part]);
}

// Reads panels `first` .. `last - 1` as `Panels` streams of neighbouring panels and calls block(panel, stride) for one
// panel of each stream, then for the panels left over. With kNeighbours, a block is `Panels` neighbours instead.
template <class Isa, int Panels, class Block>
inline void in_streams(uint32_t first, uint32_t last, Block&& block) {
  if (Isa::kNeighbours) {
    for (uint32_t p = first; p < last; p += Panels) block(p, 1);
    return;
  }
  const uint32_t length = (last - first) / Panels, rest = first + Panels * length;
  for (uint32_t p = first; p < first + length; p++) block(p, length);
  if (rest < last) block(rest, 1);
}

// Panels `first` .. `last - 1` for `Rows` rows whose sums fit registers.
template <class Isa, int Bits, bool Levels, int Panels, int Rows>
inline void row_streams(const PackedLinear& args, uint32_t first, uint32_t last, uint32_t row) {
  in_streams<Isa, Panels>(first, last, [&](uint32_t panel, uint32_t stride) {
    const Panel16& w = args.weights;
    if constexpr (kMayE4m3<Bits, Levels>)
      if (w.e4m3_scales)
        return row_block<Isa, Bits, Levels, GroupKind::kE4m3Pair, Panels, Rows>(args, panel, stride, last - 1, row);
    if constexpr (kMayPair<Bits, Levels>)
      if (w.parts == 2)
        return row_block<Isa, Bits, Levels, GroupKind::kPair, Panels, Rows>(args, panel, stride, last - 1, row);
    if constexpr (kMayNest<Bits, Levels> && Rows == 1)
      if (w.scale_bytes == 1)
        return row_block<Isa, Bits, Levels, GroupKind::kNested, Panels, Rows>(args, panel, stride, last - 1, row);
    if (!Levels && w.group_length == 32)
      row_block<Isa, Bits, Levels, Levels ? GroupKind::kRuns : GroupKind::kRun, Panels, Rows>(args, panel, stride,
                                                                                              last - 1, row);
    else row_block<Isa, Bits, Levels, GroupKind::kRuns, Panels, Rows>(args, panel, stride, last - 1, row);
  });
}

// Panels `first` .. `last - 1` for `rows` rows, at most kStreamedRows.
template <class Isa, int Bits, bool Levels>
inline void panel_streams(const PackedLinear& args, uint32_t first, uint32_t last, uint32_t row, uint32_t rows) {
  if (rows == 1) return row_streams<Isa, Bits, Levels, Isa::kPanels, 1>(args, first, last, row);
  in_streams<Isa, Isa::kPanels>(first, last, [&](uint32_t panel, uint32_t stride) {
    rows_block<Isa, Bits, Levels>(args, panel, stride, last - 1, row, static_cast<int>(rows));
  });
}

}  // namespace
}  // namespace lowbit
