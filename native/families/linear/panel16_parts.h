// What the linear kernels over panel16 weights (panel16_linear.h) are made of, for all instruction sets: arguments,
// unpacking of fields, sums of steps, results.
#pragma once

#include <algorithm>

#include "../../each_index.h"
#include "../../kernel.h"
#include "fields.h"
#include "quantized_rows.h"

namespace lowbit {
// Anonymous: each file needs its own copy. The linker would keep one for all, compiled for one file's instructions.
namespace {

struct PackedLinear {
  Panel16 weights;
  QuantizedRows rows;
  const float* x;
  float* y;
  uint32_t m;
  // Panels of a tile of phase 1, rows of a tile of phase 0.
  uint32_t panels_per_tile, rows_per_tile;
  // Panels from a tile to the one that the same thread most likely takes next.
  uint32_t next_tile_panels;
};
static_assert(sizeof(PackedLinear) <= kArgsMax);

// What was added to weights to make them unsigned, or as the instruction set multiplies them.
template <class Isa, int Bits, bool Levels>
constexpr int32_t weight_offset() {
  return Levels ? Isa::kLevelOffset : Isa::template offset<Bits>();
}

// For instruction sets whose dot products give 32-bit sums. kShortSums: products are summed in 16 bits first. kStreams:
// panels are read as in panel16_streams.h. kNeighbours: streams have one panel each. kLevelBits: bits of codebook
// levels.
struct NoShortSums {
  static constexpr bool kShortSums = false, kStreams = false, kNeighbours = false;
  static constexpr int kLevelBits = 8;
};

// Bits of the unsigned integers that are multiplied.
template <class Isa, int Bits, bool Levels>
constexpr int factor_bits() {
  return Levels ? Isa::kLevelBits : Bits;
}

// Whether weights take more than 7 bits.
template <class Isa, int Bits, bool Levels>
constexpr bool is_wide() {
  return factor_bits<Isa, Bits, Levels>() == 8;
}

// Whether all levels of a codebook are -64 .. 63: with 64 added they take 7 bits.
inline bool has_narrow_levels(const Panel16& w) {
  return w.has_levels && std::all_of(w.levels, w.levels + (1 << w.bits), [&](int8_t level) {
           return std::min<int>(level, level - w.odd_zero) >= -64 && std::max<int>(level, level - w.odd_zero) < 64;
         });
}

// Steps of four columns whose sums, of two products each, fit 16 bits; 0 for weights of more than 7 bits.
template <class Isa, int Bits, bool Levels>
constexpr int short_steps() {
  if (is_wide<Isa, Bits, Levels>()) return 0;
  if constexpr (Isa::kShortSums) return Isa::template steps<factor_bits<Isa, Bits, Levels>()>();
  return 1;
}

// Adds a step of 32 columns to the 16-bit sums. Before these could overflow, they are added to the 32-bit sum, or set
// it the first time.
template <class Isa, int Steps, int Step>
inline LOWBIT_INLINE void add_step(typename Isa::Bytes u, typename Isa::Bytes four,
                                                   typename Isa::Ints& shorts, typename Isa::Ints& sum) {
  const auto products = Isa::products(u, four);
  // A local: compilers may keep referenced values in memory.
  typename Isa::Ints so_far = Step % Steps == 0 ? products : Isa::add_shorts(shorts, products);
  Isa::keep(so_far);
  if constexpr (Step % Steps < Steps - 1) {
    shorts = so_far;
  } else {
    const auto pairs = Isa::add_pairs(so_far);
    sum = Step == Steps - 1 ? pairs : Isa::add(sum, pairs);
  }
}

// A field of a chunk as a vector of unsigned bytes.
template <class Isa, int Bits, int Index>
inline LOWBIT_INLINE typename Isa::Bytes unpack_field(const typename Isa::Bytes* chunk) {
  constexpr Field field = Fields<Bits>::field(Index);
  typename Isa::Bytes value{};
  each_index<field.pieces>([&](auto p) {
    constexpr FieldPiece piece = Fields<Bits>::field(Index).piece[p];
    constexpr int kMask = ((1 << piece.width) - 1) << piece.at;
    auto part = Isa::template shift_and<piece.shift - piece.at, kMask>(chunk[piece.vector]);
    value = p == 0 ? part : Isa::or_bytes(value, part);
  });
  return value;
}

// Makes results of the totals over all groups, and stores those of part of a panel's columns.
template <class Isa, int Rows>
inline LOWBIT_INLINE void store_part(const PackedLinear& args, uint32_t panel, int part, uint32_t row,
                                                     const typename Isa::Floats* total) {
  using Floats = typename Isa::Floats;
  const Panel16& w = args.weights;
  const uint32_t column = 16 * panel + Isa::kRows * part;
  if (column >= w.n) return;
  const uint8_t* bytes = w.panel(panel);
  const Floats correction = Isa::load_floats(bytes + w.correction_offset + 4 * Isa::kRows * part);
  const Floats bias = w.has_bias ? Isa::load_floats(bytes + w.bias_offset + 4 * Isa::kRows * part) : Isa::zero_floats();
  each_index<Rows>([&](auto m) LOWBIT_INLINE {
    Floats value = total[m], scale = Isa::broadcast(1);
    if (!args.rows.in_blocks) {
      const float zero = static_cast<float>(args.rows.zeros[row + m]);
      value = Isa::multiply_add(correction, Isa::broadcast(-zero), value);
      scale = Isa::broadcast(args.rows.scales[row + m]);
    }
    value = Isa::multiply_add(value, scale, bias);
    float* y = args.y + static_cast<size_t>(row + m) * w.n + column;
    if (column + Isa::kRows <= w.n) Isa::store_floats(y, value);
    else Isa::store_some_floats(y, value, w.n - column);
  });
}

// Where the numbers of group g are, for part of a panel's columns. `set` 1 is the second of two groups of 16.
template <class Isa>
struct GroupPlace {
  const uint8_t* group;
  uint32_t g;
  int part, set;

  // Address of the numbers at `offset`, of `size` bytes each.
  const uint8_t* at(size_t offset, int size) const { return group + offset + size * (16 * set + Isa::kRows * part); }
};

// Scales, unless 8-bit floats, or minima as floats: `offset` from the start of a group, with integer factors `factor`
// after those of scales.
template <class Isa>
inline LOWBIT_INLINE typename Isa::Floats group_floats(const Panel16& w, const GroupPlace<Isa>& place,
                                                                       size_t offset, size_t factor) {
  // Compilers move unlikely code out of the loops of other weights.
  if (w.f16_scales) return Isa::load_halves(place.at(offset, 2));
  if (__builtin_expect(w.scale_bytes == 4, 1)) return Isa::load_floats(place.at(offset, 4));
  const uint8_t* factors = w.factors(place.group, place.g) + factor + 2 * Isa::kRows * place.part;
  return Isa::multiply(Isa::load_zeros(place.at(offset, 1)), Isa::load_halves(factors));
}

// Scales of a group as floats. MayE4m3: whether they may be 8-bit floats; code for weights of a known form skips the
// test.
template <class Isa, bool MayE4m3 = true>
inline LOWBIT_INLINE typename Isa::Floats group_scales(const Panel16& w, const GroupPlace<Isa>& place) {
  if (!MayE4m3 || !w.e4m3_scales) return group_floats<Isa>(w, place, 0, 0);
  const uint8_t* factors = w.factors(place.group, place.g) + 4 * Isa::kRows * place.part;
  return Isa::multiply(Isa::load_e4m3(place.at(0, 1)), Isa::load_floats(factors));
}

// Adds a block to the totals of a row: sum of products * scale of weights * scale of activations. Where the group has a
// minimum, or a zero point that 16-bit sums leave out, it adds -offsets_of * sum of activations. `factor` and `offset`
// are those of QuantizedRows. All kernels of an instruction set add in this order, so that a row's results have the
// same bits whatever rows are computed with it.
template <class Isa>
inline LOWBIT_INLINE typename Isa::Floats add_products(typename Isa::Ints sum,
                                                                       typename Isa::Floats scale, float factor,
                                                                       typename Isa::Floats total) {
  return Isa::multiply_add(Isa::to_floats(sum), Isa::multiply(scale, Isa::broadcast(factor)), total);
}
template <class Isa>
inline LOWBIT_INLINE typename Isa::Floats add_offsets(float offset, typename Isa::Floats offsets,
                                                                      typename Isa::Floats total) {
  return Isa::multiply_add(Isa::broadcast(offset), offsets, total);
}

// Whether groups add offsets, as add_block does. Otherwise zero points are part of the integer sums.
template <class Isa>
inline bool adds_offsets(const Panel16& w) {
  return Isa::kShortSums ? w.has_offsets : w.has_minima;
}

// What is subtracted from integer * scale to get a weight: zero point * scale; or -minimum, where integers are
// unsigned.
template <class Isa>
inline LOWBIT_INLINE typename Isa::Floats offsets_of(const Panel16& w, const GroupPlace<Isa>& place,
                                                                     typename Isa::Floats scale, int bits) {
  if (__builtin_expect(!w.has_minima, 1)) return Isa::multiply(Isa::load_zeros(place.at(w.zeros_offset, 1)), scale);
  const auto minima = group_floats<Isa>(w, place, w.minima_offset, 32);
  return Isa::multiply_add(scale, Isa::broadcast(-static_cast<float>(1 << (bits - 1))), minima);
}

// The factors of integer scales and minima of kSuperGroups groups as floats, for part of a panel's columns. They give
// the values of group_scales and offsets_of, but are converted once.
template <class Isa>
struct SuperFactors {
  typename Isa::Floats of_scales, of_minima;

  inline LOWBIT_INLINE void load(const Panel16& w, const uint8_t* group, uint32_t g, int part) {
    const uint8_t* factors = w.factors(group, g) + 2 * Isa::kRows * part;
    of_scales = Isa::load_halves(factors);
    of_minima = w.has_minima ? Isa::load_halves(factors + 32) : Isa::zero_floats();
  }
  inline LOWBIT_INLINE typename Isa::Floats scales(const GroupPlace<Isa>& place) const {
    return Isa::multiply(Isa::load_zeros(place.at(0, 1)), of_scales);
  }
  template <int Bits>
  inline LOWBIT_INLINE typename Isa::Floats offsets(const Panel16& w, const GroupPlace<Isa>& place,
                                                                    typename Isa::Floats scale) const {
    if (__builtin_expect(!w.has_minima, 0)) return offsets_of<Isa>(w, place, scale, Bits);
    const auto minima = Isa::multiply(Isa::load_zeros(place.at(w.minima_offset, 1)), of_minima);
    return Isa::multiply_add(scale, Isa::broadcast(-static_cast<float>(1 << (Bits - 1))), minima);
  }
};

}  // namespace
}  // namespace lowbit
