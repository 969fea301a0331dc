// Linear layers over panel16 weights for one to seven rows of activations. Panels are read as a few long streams, each
// of neighbouring panels in memory: hardware prefetchers fetch little of short streams. Loops over vectors are
// unrolled, so that little is computed besides the products.
#pragma once

#include "panel16_parts.h"

namespace lowbit {
namespace {

// The weights of 32 columns of `Parts` parts of panels, unpacked as they are needed: get<i>(u) gives those that quad i
// of activations multiplies, for i = 0 .. 7 in turn. `vectors` point at the weights of the parts.
template <class Isa, int Bits, bool Levels, int Parts>
struct PackedWeights {
  static constexpr int kVectors = Fields<Bits>::kVectors, kFields = Fields<Bits>::kFields;
  const uint8_t* vectors[Parts];
  typename Isa::Bytes levels;
  typename Isa::Bytes chunk[Parts][kVectors];

  template <int I>
  inline LOWBIT_INLINE void get(typename Isa::Bytes (&u)[Parts]) {
    if constexpr (I % kFields == 0)
      for (int part = 0; part < Parts; part++)
        for (int v = 0; v < kVectors; v++)
          chunk[part][v] = Isa::load_bytes(vectors[part] + 64 * (I / kFields * kVectors + v));
    for (int part = 0; part < Parts; part++) {
      u[part] = unpack_field<Isa, Bits, I % kFields>(chunk[part]);
      if constexpr (Levels) u[part] = Isa::lookup(levels, u[part]);
      else u[part] = Isa::template weight<Bits>(u[part]);
    }
  }
};

// Sums products over 32 columns of `Parts` parts of panels, or over each 32 / `Sets` of them. x(m, i) has quad i of
// activations of row m in all lanes. Without 16-bit sums it adds to the values in `sums`.
template <class Isa, int Bits, bool Levels, int Sets, int Parts, int Rows, class Weights, class X>
inline LOWBIT_INLINE void column_sums(Weights& weights, X&& x,
                                                      typename Isa::Ints (&sums)[Sets][Parts][Rows]) {
  constexpr int kSetSteps = 8 / Sets, kSteps = std::min(short_steps<Isa, Bits, Levels>(), kSetSteps);
  typename Isa::Ints shorts[Parts][Rows];
  each_index<8>([&](auto i) LOWBIT_INLINE {
    constexpr int kInSet = i % kSetSteps;
    auto& sum = sums[i / kSetSteps];
    typename Isa::Bytes u[Parts];
    weights.template get<i>(u);
    for (int m = 0; m < Rows; m++) {
      const auto four = x(m, i);
      for (int part = 0; part < Parts; part++) {
        if constexpr (Isa::kShortSums && kSteps > 0)
          add_step<Isa, kSteps, kInSet>(u[part], four, shorts[part][m], sum[part][m]);
        else
          sum[part][m] =
              Isa::dot_wide(Isa::kShortSums && kInSet == 0 ? Isa::broadcast_int(0) : sum[part][m], u[part], four);
      }
    }
  });
}

// The eight quads of activations of 32 columns of a row, in registers. It is no lambda, since column_sums would be
// compiled anew for that of each panel.
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

// A group that a row is multiplied with, for part of a panel's columns; `set` as in GroupPlace.
struct StartPlace {
  const Panel16& w;
  const QuantizedRows& rows;
  const uint8_t* group;
  int part, set;
};

// Initial sums of a row in a block of number `block`.
template <class Isa, int Bits, bool Levels>
inline LOWBIT_INLINE typename Isa::Ints start_of(const StartPlace& place, size_t block) {
  const auto& [w, rows, group, part, set] = place;
  constexpr int32_t kOffset = weight_offset<Isa, Bits, Levels>();
  const int32_t sums = rows.numbers[block].sum;
  if constexpr (Levels)
    if (w.odd_zero != 0) return Isa::odd_ints(group + 16 * set + Isa::kRows * part, rows.odd_sums[block], sums);
  if (!w.has_offsets || adds_offsets<Isa>(w)) return Isa::broadcast_int(sums);
  return Isa::scaled_zeros(group + w.zeros_offset + part * Isa::kRows, kOffset, -sums);
}

// What a stored group is: several runs of 32 columns; a run; a run with integer scales; two groups of 16 columns in a
// run, with scales that are integers or 8-bit floats.
enum class GroupKind { kRuns, kRun, kNested, kPair, kE4m3Pair };

// Multiplies `Rows` rows of activations by `Panels` panels, `stride` apart, of which those past `last` repeat it. All
// sums are in registers. With several rows, a vector is a whole panel, and two panels share loads of activations.
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
      return start_of<Isa, Bits, Levels>({w, rows, group[p], part, set}, block + m * block_stride + set);
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
    // With several rows, there are no registers for sums that are not used yet.
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
          PackedWeights<Isa, Bits, Levels, 1> weights{{group[p] + at + 4 * Isa::kRows * part}, levels, {}};
          column_sums<Isa, Bits, Levels>(weights, LoadedQuads<Isa>{quads}, run);
          each_index<kSets>([&](auto set) LOWBIT_INLINE { add_run(p, part, run[set][0], set); });
        } else if constexpr (p % 2 == 1) {
          Ints run[kSets][2][Rows];
          constexpr std::integral_constant<int, p - 1> kBefore;
          for (int set = 0; !Isa::kShortSums && set < kSets; set++)
            for (int m = 0; m < Rows; m++) {
              run[set][0][m] = begin(kBefore, part, m, set);
              run[set][1][m] = begin(p, part, m, set);
            }
          PackedWeights<Isa, Bits, Levels, 2> weights{{group[p - 1] + at, group[p] + at}, levels, {}};
          column_sums<Isa, Bits, Levels>(weights, StoredQuads<Isa>{x, x_stride}, run);
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

// Reads panels first .. last - 1 as `Panels` streams of neighbouring panels: calls block(panel, stride) for one panel
// of each stream, then for the panels that are left. With kNeighbours, a block is `Panels` neighbouring panels.
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

// Multiplies `Rows` rows, whose sums fit registers, by panels first .. last - 1.
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

}  // namespace
}  // namespace lowbit
