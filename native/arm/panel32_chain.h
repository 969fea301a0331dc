// GEMV of panel32 weights with the dot product instructions. Each panel is read row by row of activations, from a cache
// after the first one: unpacking it once for all rows would take more instructions.
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

// Sums of a chunk in the order of units and links.
template <int Bits, bool Mixed>
struct ChainSums {
  int32x4_t of[Chain<Bits, Mixed>::kUnits][kChain<Bits, Mixed>.count];
};

template <int Bits, bool Mixed>
inline LOWBIT_INLINE void load_starts(const int32_t* starts, ChainSums<Bits, Mixed>& sums) {
  each_index<Chain<Bits, Mixed>::kUnits>([&](auto unit)
                                             LOWBIT_INLINE {
    int32x4_t* of = sums.of[unit];
    if constexpr (kChain<Bits, Mixed>.count == 1) of[0] = vld1q_s32(starts);
    each_index<kChain<Bits, Mixed>.count / 2>(
        [&](auto i) LOWBIT_INLINE { load_fresh<8 * i>(starts, of[2 * i], of[2 * i + 1]); });
  });
}

// Multiplies 4 k of all rows of a panel by one lane of activations.
template <int Bits, bool Mixed, int Lane>
inline LOWBIT_INLINE void chain_step(ChainSums<Bits, Mixed>& sums, const ChainConstants& constants,
                                                     const uint8_t* at, int8x16_t x) {
  each_index<Chain<Bits, Mixed>::kUnits>([&](auto unit) LOWBIT_INLINE {
    uint8x16_t bytes[Chain<Bits, Mixed>::kVectors];
    each_index<Chain<Bits, Mixed>::kVectors>([&](auto v) LOWBIT_INLINE {
      bytes[v] = vld1q_u8(at + 16 * (unit * Chain<Bits, Mixed>::kVectors + v));
    });
    each_index<kChain<Bits, Mixed>.count>([&](auto i) LOWBIT_INLINE {
      constexpr Link link = kChain<Bits, Mixed>.links[i];
      const uint8x16_t byte = bytes[link.vector];
      int32x4_t& sum = sums.of[unit][i];
      if constexpr (link.mixed) {
#ifdef __ARM_FEATURE_MATMUL_INT8
        sum = vusdotq_laneq_s32(sum, byte, x, Lane);
#endif
      } else {
        const uint8x16_t part = link.end == 8 ? byte : vandq_u8(byte, constants.masks[link.end % 8]);
        sum = vdotq_laneq_s32(sum, vreinterpretq_s8_u8(part), x, Lane);
      }
    });
  });
}

// Sum of a link's fields as a float, plus kMagic.
template <int Bits, bool Mixed, int Index>
inline LOWBIT_INLINE float32x4_t link_sum(const int32x4_t* sums) {
  const float32x4_t sum = vreinterpretq_f32_s32(sums[Index]);
  if constexpr (!kChain<Bits, Mixed>.links[Index].mixed) return sum;
  else return vmulq_n_f32(vaddq_f32(sum, vreinterpretq_f32_s32(sums[Index + 1])), 0.5f);
}

// Sum of a field's weights, times 2^(shift - at) of its first link.
template <int Bits, bool Mixed, int FieldIndex>
inline LOWBIT_INLINE float32x4_t field_sum(const ChainConstants& constants, const int32x4_t* sums) {
  constexpr Link first = first_link<Bits, Mixed>(FieldIndex);
  float32x4_t result{};
  bool started = false;
  each_index<kChain<Bits, Mixed>.count>([&](auto i) LOWBIT_INLINE {
    constexpr Link link = kChain<Bits, Mixed>.links[i];
    if constexpr (link.field == FieldIndex) {
      float32x4_t below = constants.magic;
      if constexpr (link.shift > 0) below = link_sum<Bits, Mixed, i - 1>(sums);
      const float32x4_t part = vsubq_f32(link_sum<Bits, Mixed, i>(sums), below);
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

// Conversion of a group's scales to floats. The bits of an f16 moved to their places in an f32 are the number times
// 2^-112, so totals are multiplied by 2^112 at the end. With activations in blocks, whose factors make sums small, sums
// and totals are multiplied by 2^56 each.
enum class Scales { kFloats, kHalves, kPositiveHalves };
constexpr float kHalfFactor = 0x1p112f, kHalfOfFactor = 0x1p56f;

template <Scales Kind>
inline LOWBIT_INLINE void load_scale_pair(const uint8_t* group, int pair, float32x4_t* scales) {
  if constexpr (Kind == Scales::kFloats) {
    scales[0] = load4(group + 32 * pair);
    scales[1] = load4(group + 32 * pair + 16);
  } else if constexpr (Kind == Scales::kPositiveHalves) {
    const uint16x8_t halves = vreinterpretq_u16_u8(vld1q_u8(group + 16 * pair));
    scales[0] = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(halves), 13));
    scales[1] = vreinterpretq_f32_u32(vshll_high_n_u16(halves, 13));
  } else {
    const int16x8_t halves = vreinterpretq_s16_u8(vld1q_u8(group + 16 * pair));
    const int32x4_t kept = vdupq_n_s32(static_cast<int32_t>(0x8fffffff));
    scales[0] = vreinterpretq_f32_s32(vandq_s32(vshll_n_s16(vget_low_s16(halves), 13), kept));
    scales[1] = vreinterpretq_f32_s32(vandq_s32(vshll_high_n_s16(halves, 13), kept));
  }
}

// Adds a chunk to the totals. `chunk_sum` is the sum of its activations, `factor` that of its sums.
template <int Bits, bool Mixed, Scales Kind, bool Zeros>
inline LOWBIT_INLINE void add_chunk(const Panels& w, const ChainConstants& constants,
                                                    const uint8_t* group, float chunk_sum, float factor,
                                                    const ChainSums<Bits, Mixed>& sums, float32x4_t* totals) {
  constexpr int kFields = Chain<Bits, Mixed>::kFieldsOfUnit;
  each_index<kQuads / 2>([&](auto pair) LOWBIT_INLINE {
    float32x4_t scales[2];
    load_scale_pair<Kind>(group, pair, scales);
    each_index<2>([&](auto i) LOWBIT_INLINE {
      constexpr int kQuad = 2 * pair + i, kField = kQuad % kFields;
      constexpr Link first = first_link<Bits, Mixed>(kField);
      float32x4_t sum = field_sum<Bits, Mixed, kField>(constants, sums.of[kQuad / kFields]);
      if constexpr (Zeros)
        sum = vfmsq_n_f32(sum, quad_zeros(w, group, kQuad), chunk_sum * power_of_two(first.shift - first.at));
      totals[kQuad] = vfmaq_f32(totals[kQuad], vmulq_n_f32(sum, factor), scales[i]);
    });
  });
}

template <int Bits, bool Mixed, Scales Kind, bool Zeros>
void chain_panel(const Linear32& args, uint32_t panel, uint32_t row) {
  const Panels w = args.weights;
  const uint32_t chunk_stride = args.rows.row_stride;
  const uint8_t* group = w.panel(panel);
  const int8_t* x = args.rows.values + static_cast<size_t>(row) * w.padded_k();
  const int32_t* starts =
      args.rows.starts + static_cast<size_t>(row) * args.chunk_count() * 4 * kChain<Bits, Mixed>.count;
  const float* chunk_sums = args.rows.sums + row;
  const float* factors = args.rows.factors + row;
  const float of_halves = Kind == Scales::kFloats ? 1 : args.rows.in_blocks ? kHalfOfFactor : 1;
  const float rest_of_halves = Kind == Scales::kFloats ? 1 : args.rows.in_blocks ? kHalfOfFactor : kHalfFactor;
  const ChainConstants constants = chain_constants<Bits, Mixed>();
  float32x4_t totals[kQuads];
  each_index<kQuads>([&](auto quad) LOWBIT_INLINE { totals[quad] = vdupq_n_f32(0); });
  for (const uint8_t* last = group + w.correction_offset; group < last; group += w.group_bytes) {
    const uint8_t* at = group + w.vectors_offset;
    const int8_t* group_end = x + w.group_length;
    do {
      const int8_t* end = group_end - x > args.chunk ? x + args.chunk : group_end;
      ChainSums<Bits, Mixed> sums;
      load_starts(starts, sums);
      do {
        const int8x16_t low = vld1q_s8(x), high = vld1q_s8(x + 16);
        each_index<4>([&](auto s) LOWBIT_INLINE {
          chain_step<Bits, Mixed, s>(sums, constants, at + 16 * Bits * s, low);
        });
        each_index<4>([&](auto s) LOWBIT_INLINE {
          chain_step<Bits, Mixed, s>(sums, constants, at + 16 * Bits * (s + 4), high);
        });
        x += 32;
        at += 128 * Bits;
      } while (x < end);
      forget(group);
      add_chunk<Bits, Mixed, Kind, Zeros>(w, constants, group, *chunk_sums, *factors * of_halves, sums, totals);
      starts += 4 * kChain<Bits, Mixed>.count;
      chunk_sums += chunk_stride;
      factors += chunk_stride;
    } while (x < group_end);
  }
  // A copy: an array whose address is taken would be in memory throughout.
  float32x4_t results[kQuads];
  each_index<kQuads>([&](auto quad) LOWBIT_INLINE {
    constexpr Link first = first_link<Bits, Mixed>(quad % Chain<Bits, Mixed>::kFieldsOfUnit);
    results[quad] = vmulq_n_f32(totals[quad], power_of_two(first.at - first.shift) * rest_of_halves);
  });
  finish_row(args, panel, row, results);
}

template <int Bits, bool Mixed, Scales Kind>
void chain_panels(const Linear32& args, uint32_t first, uint32_t last) {
  for (uint32_t panel = first; panel < last; panel++) {
    for (uint32_t row = 0; row < args.m; row++) {
      if (args.weights.has_zeros) chain_panel<Bits, Mixed, Kind, true>(args, panel, row);
      else chain_panel<Bits, Mixed, Kind, false>(args, panel, row);
    }
  }
}

template <int Bits, bool Mixed>
void chain_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t) {
  const Linear32& args = step.as<Linear32>();
  if (phase == 0) return quantize_rows<1>(args, tile, kChain<Bits, Mixed>.factors);
  const Panels& w = args.weights;
  const uint32_t first = tile * args.panels_per_tile, last = std::min(w.panel_count, first + args.panels_per_tile);
  if (!w.f16_scales) chain_panels<Bits, Mixed, Scales::kFloats>(args, first, last);
  else if (w.positive_scales) chain_panels<Bits, Mixed, Scales::kPositiveHalves>(args, first, last);
  else chain_panels<Bits, Mixed, Scales::kHalves>(args, first, last);
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
