// Products of packed panel32 weights without unpacking them.
//
// The fields of a byte are multiplied as a chain: one dot product with the whole byte, one with all but its highest
// field, and so on down to the lowest. A field's sum is the difference of two neighbours, so that unpacking costs one
// mask per product and no shift. For 4 bits: x = 16 high + low, and high . q = (x . q - low . q) / 16.
//
// Where unsigned by signed products exist (`Mixed`), the lower 7 bits of a byte need no mask: their value is the mean
// of the byte's signed and unsigned values.
#pragma once

#include "../families/linear/fields.h"
#include "panel32.h"

namespace lowbit {
namespace {

// A dot product with the lowest `end` bits of byte vector `vector`.
struct Link {
  uint8_t vector, shift, end, field, at;
  // Whether the product is with the whole byte as an unsigned number.
  bool mixed;
};

template <int Bits, bool Mixed>
struct Chain {
  static constexpr int kFieldsOfUnit = Fields<Bits>::kFields, kVectors = Fields<Bits>::kVectors;
  // Units of vectors that cover a panel at 4 k.
  static constexpr int kUnits = kQuads / kFieldsOfUnit;
  Link links[14];
  // Factors of the links: a link's accumulators start with its factor times the sum of the chunk's activations.
  int32_t factors[14];
  int count;
};

// After the links of a vector: if the last two are the lower 7 bits and the whole byte, replaces the former by the
// unsigned byte, which is twice the mean less the signed byte.
template <int Bits, bool Mixed>
constexpr void mix_highest(Chain<Bits, Mixed>& chain) {
  const int last = chain.count - 1;
  if (last < 1 || chain.links[last].shift != 7) return;
  chain.links[last - 1].mixed = true;
  chain.factors[last - 1] = 2 * chain.factors[last - 1] - chain.factors[last];
}

// Makes the links in the order of vectors and shifts. The piece with a weight's highest bit subtracts the offset; a
// whole byte is 128 less than its fields, since its highest bit is flipped.
template <int Bits, bool Mixed>
constexpr Chain<Bits, Mixed> make_chain() {
  Chain<Bits, Mixed> chain{};
  for (int vector = 0; vector < Chain<Bits, Mixed>::kVectors; vector++) {
    int32_t offset = 0;
    for (int shift = 0; shift < 8; shift++) {
      for (int f = 0; f < Chain<Bits, Mixed>::kFieldsOfUnit; f++) {
        const Field field = Fields<Bits>::field(f);
        for (int p = 0; p < field.pieces; p++) {
          const FieldPiece piece = field.piece[p];
          if (piece.vector != vector || piece.shift != shift) continue;
          const int end = shift + piece.width;
          if (piece.at + piece.width == Bits) offset += 1 << (end - 1);
          chain.factors[chain.count] = (end == 8 ? 128 : 0) - offset;
          chain.links[chain.count++] = {piece.vector, piece.shift, static_cast<uint8_t>(end), static_cast<uint8_t>(f),
                                        piece.at,     false};
        }
      }
    }
    if (Mixed) mix_highest(chain);
  }
  return chain;
}

template <int Bits, bool Mixed>
constexpr Chain<Bits, Mixed> kChain = make_chain<Bits, Mixed>();

constexpr float power_of_two(int exponent) { return exponent < 0 ? 1.0f / (1u << -exponent) : 1.0f * (1u << exponent); }

template <int Bits, bool Mixed>
constexpr bool has_mask(int end) {
  for (int i = 0; i < kChain<Bits, Mixed>.count; i++)
    if (kChain<Bits, Mixed>.links[i].end == end && !kChain<Bits, Mixed>.links[i].mixed) return true;
  return false;
}

// First link of a field.
template <int Bits, bool Mixed>
constexpr Link first_link(int field) {
  for (int i = 0; i < kChain<Bits, Mixed>.count; i++)
    if (kChain<Bits, Mixed>.links[i].field == field) return kChain<Bits, Mixed>.links[i];
  return {};
}

struct ChainConstants {
  // Masks by the number of bits kept.
  uint8x16_t masks[8];
  float32x4_t magic, powers;
};

template <int Bits, bool Mixed>
inline LOWBIT_INLINE ChainConstants chain_constants() {
  ChainConstants constants;
  constants.magic = kept(vdupq_n_f32(kMagic));
  const float powers[4] = {2, 4, 8, 16};
  constants.powers = kept(vld1q_f32(powers));
  each_index<kChain<Bits, Mixed>.count>([&](auto i) LOWBIT_INLINE {
    constexpr int kEnd = kChain<Bits, Mixed>.links[i].end;
    if constexpr (kEnd < 8 && has_mask<Bits, Mixed>(kEnd)) constants.masks[kEnd] = vdupq_n_u8((1 << kEnd) - 1);
  });
  each_index<8>([&](auto end) LOWBIT_INLINE {
    if constexpr (end < 8 && has_mask<Bits, Mixed>(end)) constants.masks[end] = kept(constants.masks[end]);
  });
  return constants;
}

// The part of a unit's vectors that a link's product is with.
template <int Bits, bool Mixed, int Index>
inline LOWBIT_INLINE int8x16_t link_part(const ChainConstants& constants, const uint8x16_t* bytes) {
  constexpr Link link = kChain<Bits, Mixed>.links[Index];
  if constexpr (link.end == 8 || link.mixed) return vreinterpretq_s8_u8(bytes[link.vector]);
  else return vreinterpretq_s8_u8(vandq_u8(bytes[link.vector], constants.masks[link.end % 8]));
}

// Sum of a link's fields of a short chunk as a float, plus kMagic.
template <int Bits, bool Mixed, int Index>
inline LOWBIT_INLINE float32x4_t link_sum(const int32x4_t* sums) {
  const float32x4_t sum = vreinterpretq_f32_s32(sums[Index]);
  if constexpr (!kChain<Bits, Mixed>.links[Index].mixed) return sum;
  else return vmulq_n_f32(vaddq_f32(sum, vreinterpretq_f32_s32(sums[Index + 1])), 0.5f);
}

// Sum of a link's fields of a long chunk.
template <int Bits, bool Mixed, int Index>
inline LOWBIT_INLINE int32x4_t long_link_sum(const int32x4_t* sums) {
  if constexpr (!kChain<Bits, Mixed>.links[Index].mixed) return sums[Index];
  else return vhaddq_s32(sums[Index], sums[Index + 1]);
}

// Sum of a link's own field: without those below it.
template <int Bits, bool Mixed, bool Long, int Index>
inline LOWBIT_INLINE float32x4_t part_sum(const ChainConstants& constants, const int32x4_t* sums) {
  constexpr bool kIsLowest = kChain<Bits, Mixed>.links[Index].shift == 0;
  if constexpr (Long) {
    int32x4_t sum = long_link_sum<Bits, Mixed, Index>(sums);
    if constexpr (!kIsLowest) sum = vsubq_s32(sum, long_link_sum<Bits, Mixed, Index - 1>(sums));
    return vcvtq_f32_s32(sum);
  } else {
    float32x4_t below = constants.magic;
    if constexpr (!kIsLowest) below = link_sum<Bits, Mixed, Index - 1>(sums);
    return vsubq_f32(link_sum<Bits, Mixed, Index>(sums), below);
  }
}

// Sum of a field's weights, times 2^(shift - at) of its first link.
template <int Bits, bool Mixed, bool Long, int FieldIndex>
inline LOWBIT_INLINE float32x4_t field_sum(const ChainConstants& constants, const int32x4_t* sums) {
  constexpr Link first = first_link<Bits, Mixed>(FieldIndex);
  float32x4_t result{};
  bool started = false;
  each_index<kChain<Bits, Mixed>.count>([&](auto i) LOWBIT_INLINE {
    constexpr Link link = kChain<Bits, Mixed>.links[i];
    if constexpr (link.field == FieldIndex) {
      const float32x4_t part = part_sum<Bits, Mixed, Long, i>(constants, sums);
      constexpr int kPower = link.at - link.shift - first.at + first.shift;
      if (!started) result = part;
      else if constexpr (kPower == 0) result = vaddq_f32(result, part);
      else if constexpr (kPower <= 4) result = vfmaq_laneq_f32(result, part, constants.powers, kPower - 1);
      else result = vfmaq_n_f32(result, part, power_of_two(kPower));
      started = true;
    }
  });
  return result;
}

// Number of accumulators with initial values per chunk.
template <bool Mixed>
inline uint32_t chain_starts(const Panels& w) {
  constexpr uint32_t kCounts[] = {0,
                                  kChain<1, Mixed>.count,
                                  kChain<2, Mixed>.count,
                                  kChain<3, Mixed>.count,
                                  kChain<4, Mixed>.count,
                                  kChain<5, Mixed>.count,
                                  kChain<6, Mixed>.count,
                                  kChain<7, Mixed>.count,
                                  kChain<8, Mixed>.count};
  return kCounts[w.bits];
}

}  // namespace
}  // namespace lowbit
