// GEMV over panel32 weights for one row of activations: dot products of packed bytes with activations, without
// unpacking (panel32_links.h). panel32.h has the formula.
#pragma once

#include "panel32_links.h"
#include "panel32_numbers.h"

namespace lowbit {
namespace {

// A chunk's accumulators: [unit][link] of four rows of weights each.
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

// Adds the products of 4 k of all rows of a panel with lane `Lane` of the activations.
template <int Bits, bool Mixed, int Lane>
inline LOWBIT_INLINE void chain_step(ChainSums<Bits, Mixed>& sums, const ChainConstants& constants,
                                                     const uint8_t* at, int8x16_t x) {
  each_index<Chain<Bits, Mixed>::kUnits>([&](auto unit) LOWBIT_INLINE {
    uint8x16_t bytes[Chain<Bits, Mixed>::kVectors];
    each_index<Chain<Bits, Mixed>::kVectors>([&](auto v) LOWBIT_INLINE {
      bytes[v] = vld1q_u8(at + 16 * (unit * Chain<Bits, Mixed>::kVectors + v));
    });
    each_index<kChain<Bits, Mixed>.count>([&](auto i) LOWBIT_INLINE {
      const int8x16_t part = link_part<Bits, Mixed, i>(constants, bytes);
      int32x4_t& sum = sums.of[unit][i];
#ifdef __ARM_FEATURE_MATMUL_INT8
      if constexpr (kChain<Bits, Mixed>.links[i].mixed) {
        sum = vusdotq_laneq_s32(sum, vreinterpretq_u8_s8(part), x, Lane);
        return;
      }
#endif
      sum = vdotq_laneq_s32(sum, part, x, Lane);
    });
  });
}

// values[quad] = 2^(shift - at) * sum s * q over a chunk, with shift and at of the first link of the quad's field.
template <int Bits, bool Mixed, bool Long>
inline LOWBIT_INLINE void chunk_sums(const ChainConstants& constants,
                                                     const ChainSums<Bits, Mixed>& sums, float32x4_t* values) {
  constexpr int kFields = Chain<Bits, Mixed>::kFieldsOfUnit;
  each_index<kQuads>([&](auto quad) LOWBIT_INLINE {
    values[quad] = field_sum<Bits, Mixed, Long, quad % kFields>(constants, sums.of[quad / kFields]);
  });
}

// A chunk's sum of activations, and their scale where they are in blocks.
struct ChunkNumbers {
  float sum, factor;
  bool has_factor;
};

// totals += scale * factor * (values - zero * sum) for a chunk.
template <int Bits, bool Mixed, Scales Kind>
inline LOWBIT_INLINE void add_chunk(const Panels& w, const uint8_t* group, const ChunkNumbers& chunk,
                                                    float32x4_t* values, float32x4_t* totals) {
  if (w.any_zeros())
    each_index<kQuads>([&](auto quad) LOWBIT_INLINE {
      constexpr Link first = first_link<Bits, Mixed>(quad % Chain<Bits, Mixed>::kFieldsOfUnit);
      const float factor = chunk.sum * power_of_two(first.shift - first.at);
      values[quad] = vfmsq_n_f32(values[quad], quad_zeros(w, {group, 0, quad, 0}), factor);
    });
  if (chunk.has_factor)
    each_index<kQuads>([&](auto quad) LOWBIT_INLINE { values[quad] = vmulq_n_f32(values[quad], chunk.factor); });
  each_index<kQuads / 2>([&](auto pair) LOWBIT_INLINE {
    float32x4_t scales[2];
    load_scale_pair<Kind>(group, pair, scales);
    totals[2 * pair] = vfmaq_f32(totals[2 * pair], values[2 * pair], scales[0]);
    totals[2 * pair + 1] = vfmaq_f32(totals[2 * pair + 1], values[2 * pair + 1], scales[1]);
  });
}

template <int Bits, bool Mixed, Scales Kind>
void chain_panel(const Linear32& args, uint32_t panel) {
  const Panels w = args.weights;
  const bool has_long = args.has_long_chunks(), in_blocks = args.rows.in_blocks;
  const uint8_t* group = w.panel(panel);
  const int8_t* x = args.rows.values;
  const int32_t* starts = args.rows.starts;
  const float* sums_of_x = args.rows.sums;
  const float* factors = args.rows.factors;
  const float of_halves = Kind == Scales::kFloats ? 1 : kHalfOfFactor;
  const float rest_of_halves = Kind == Scales::kFloats ? 1 : in_blocks ? kHalfOfFactor : kHalfFactor;
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
      float32x4_t values[kQuads];
      if (has_long) chunk_sums<Bits, Mixed, true>(constants, sums, values);
      else chunk_sums<Bits, Mixed, false>(constants, sums, values);
      const ChunkNumbers numbers{*sums_of_x++, *factors++ * of_halves, in_blocks};
      add_chunk<Bits, Mixed, Kind>(w, group, numbers, values, totals);
      starts += 4 * kChain<Bits, Mixed>.count;
    } while (x < group_end);
  }
  // A copy: an array whose address is taken would be in memory throughout.
  float32x4_t results[kQuads];
  each_index<kQuads>([&](auto quad) LOWBIT_INLINE {
    constexpr Link first = first_link<Bits, Mixed>(quad % Chain<Bits, Mixed>::kFieldsOfUnit);
    results[quad] = vmulq_n_f32(totals[quad], power_of_two(first.at - first.shift) * rest_of_halves);
  });
  finish_row(args, panel, 0, results);
}

template <int Bits, bool Mixed, Scales Kind>
void chain_panels(const Linear32& args, uint32_t first, uint32_t last) {
  for (uint32_t panel = first; panel < last; panel++) chain_panel<Bits, Mixed, Kind>(args, panel);
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

}  // namespace
}  // namespace lowbit
