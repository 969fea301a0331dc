// Products of packed panel32 weights with activations, without unpacking the weights.
//
// A chain of dot products takes a byte: the whole byte, the byte without its highest field, and so on down to the
// lowest field alone. Each is a link. A field's sum is the difference of two neighbouring links, so that unpacking
// costs one mask a product and no shift. With 4 bits, byte = 16 high + low, and high . q = (byte . q - low . q) / 16.
//
// Where the CPU multiplies unsigned by signed bytes (`Mixed`), the lower 7 bits of a byte need no mask: (unsigned byte
// + signed byte) / 2 is their value.
#pragma once

#include "../families/linear/fields.h"
#include "panel32.h"

namespace lowbit {
namespace {

// A dot product with the lowest `end` bits of vector `vector`. The highest of them, from bit `shift` on, are a piece of
// field `field`: bits of a weight from bit `at` on.
struct Link {
  uint8_t vector, shift, end, field, at;
  // Whether the product is with the whole byte as an unsigned number.
  bool mixed;
};

template <int Bits, bool Mixed>
struct Chain {
  static constexpr int kFieldsOfUnit = Fields<Bits>::kFields, kVectors = Fields<Bits>::kVectors;
  // Units (fields that share vectors) of a panel's 8 quads at 4 k.
  static constexpr int kUnits = kQuads / kFieldsOfUnit;
  Link links[14];
  // What makes weights signed: a link's accumulators start with its factor times the chunk's sum of activations.
  int32_t factors[14];
  int count;
};

// Where a vector's last two links are the lower 7 bits and the whole signed byte, makes the former one the unsigned
// byte: 2 * (lower 7 bits) - signed byte.
template <int Bits, bool Mixed>
constexpr void mix_highest(Chain<Bits, Mixed>& chain) {
  const int last = chain.count - 1;
  if (last < 1 || chain.links[last].shift != 7) return;
  chain.links[last - 1].mixed = true;
  chain.factors[last - 1] = 2 * chain.factors[last - 1] - chain.factors[last];
}

// Makes the links in the order of vectors and shifts. A link's factor takes 2^(bits - 1) from each weight whose highest
// bit the link has, and gives a whole byte the 128 that its flipped highest bit lacks.
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

// The first link of a field.
template <int Bits, bool Mixed>
constexpr Link first_link(int field) {
  for (int i = 0; i < kChain<Bits, Mixed>.count; i++)
    if (kChain<Bits, Mixed>.links[i].field == field) return kChain<Bits, Mixed>.links[i];
  return {};
}

struct ChainConstants {
  // masks[n] keeps the lowest n bits.
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

// The bytes that a link multiplies, out of a unit's vectors.
template <int Bits, bool Mixed, int Index>
inline LOWBIT_INLINE int8x16_t link_part(const ChainConstants& constants, const uint8x16_t* bytes) {
  constexpr Link link = kChain<Bits, Mixed>.links[Index];
  if constexpr (link.end == 8 || link.mixed) return vreinterpretq_s8_u8(bytes[link.vector]);
  else return vreinterpretq_s8_u8(vandq_u8(bytes[link.vector], constants.masks[link.end % 8]));
}

// kMagic + a link's sum over a short chunk, for the fields below it, too.
template <int Bits, bool Mixed, int Index>
inline LOWBIT_INLINE float32x4_t link_sum(const int32x4_t* sums) {
  const float32x4_t sum = vreinterpretq_f32_s32(sums[Index]);
  if constexpr (!kChain<Bits, Mixed>.links[Index].mixed) return sum;
  else return vmulq_n_f32(vaddq_f32(sum, vreinterpretq_f32_s32(sums[Index + 1])), 0.5f);
}

// A link's sum over a long chunk, for the fields below it, too.
template <int Bits, bool Mixed, int Index>
inline LOWBIT_INLINE int32x4_t long_link_sum(const int32x4_t* sums) {
  if constexpr (!kChain<Bits, Mixed>.links[Index].mixed) return sums[Index];
  else return vhaddq_s32(sums[Index], sums[Index + 1]);
}

// A link's sum without the link below it: that of its own piece.
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

// 2^(shift - at) * sum s * q of a field, with shift and at of its first link.
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

// Links of a width: initial values that a chunk's accumulators need.
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
