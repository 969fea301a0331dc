// A panel's scales, and its zero points or offsets of minima, as floats in the order of a tile's sums.
#pragma once

#include "panel32.h"

namespace lowbit {
namespace {

// How a group's scales become floats. The bits of an f16, shifted to their places in an f32, are 2^-112 times the
// number, and totals are multiplied by 2^112 at the end. With activations in blocks, whose factors make sums small,
// sums and totals are multiplied by 2^56 each.
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

// [group][kScaleFloats] each; two groups of 16 count as two. zeros: zero points, or offsets of minima (quad_offsets);
// absent without either.
struct PanelNumbers {
  float* scales;
  float* zeros;
};

// Floats of a group's scales.
template <class Isa>
constexpr size_t kScaleFloats = kPanelRows * Isa::kScaleCopies;

// Floats of a panel's scales and zeros.
template <class Isa>
inline size_t number_floats(const Panels& w) {
  return (w.any_offsets() ? 2 : 1) * round_up(kScaleFloats<Isa> * w.part_count(), 16);
}

template <class Isa>
inline PanelNumbers panel_numbers(const Panels& w, float* at) {
  return {at, at + (w.any_offsets() ? kScaleFloats<Isa> * w.part_count() : 0)};
}

// Stores a panel's scales, which scales_of(place) reads, and its zeros, each times the factor of its quad.
template <class Isa, class Read>
inline void store_numbers(const Panels& w, uint32_t index, const PanelNumbers& numbers, const float* factors,
                          Read&& scales_of) {
  const uint32_t parts = w.parts, groups = w.groups, group_bytes = w.group_bytes;
  const bool has_offsets = w.any_offsets(), has_minima = w.has_minima;
  const uint8_t* group = w.panel(index);
  float *to = numbers.scales, *zeros_to = numbers.zeros;
  for (uint32_t g = 0; g < groups; g++, group += group_bytes)
    for (uint32_t set = 0; set < parts; set++, to += kScaleFloats<Isa>, zeros_to += kScaleFloats<Isa>) {
      float32x4_t scales[kQuads];
      each_index<kQuads>([&](auto quad) LOWBIT_INLINE {
        scales[quad] = scales_of(QuadPlace{group, g, quad, set});
        Isa::store_scales(to + 4 * Isa::kScaleCopies * quad, scales[quad]);
      });
      if (!has_offsets) continue;
      for (uint32_t quad = 0; quad < kQuads; quad++) {
        const QuadPlace place{group, g, quad, set};
        const float32x4_t zeros = has_minima ? quad_offsets(w, place, scales[quad]) : quad_zeros(w, place);
        Isa::store_scales(zeros_to + 4 * Isa::kScaleCopies * quad, vmulq_n_f32(zeros, factors[quad]));
      }
    }
}

constexpr float kNoFactors[kQuads] = {1, 1, 1, 1, 1, 1, 1, 1};

template <class Isa>
void read_numbers(const Panels& w, uint32_t index, const PanelNumbers& numbers, const float* factors = kNoFactors) {
  if (w.scale_bytes == 2)
    store_numbers<Isa>(w, index, numbers, factors,
                       [](const QuadPlace& place) { return load4_halves(place.group + 8 * place.quad); });
  else if (w.scale_bytes == 4)
    store_numbers<Isa>(w, index, numbers, factors,
                       [](const QuadPlace& place) { return load4(place.group + 16 * place.quad); });
  else store_numbers<Isa>(w, index, numbers, factors, [&](const QuadPlace& place) { return quad_scales(w, place); });
}

// Stores a panel's f16 scales times 2^-112 (1 / kHalfFactor), for weights without minima and zero points.
template <class Isa, Scales Kind>
inline void read_halves(const Panels& w, uint32_t index, float* to) {
  const uint32_t groups = w.groups, group_bytes = w.group_bytes;
  const uint8_t* group = w.panel(index);
  for (uint32_t g = 0; g < groups; g++, group += group_bytes, to += kScaleFloats<Isa>)
    each_index<kQuads / 2>([&](auto pair) LOWBIT_INLINE {
      float32x4_t scales[2];
      load_scale_pair<Kind>(group, pair, scales);
      Isa::store_scales(to + 8 * Isa::kScaleCopies * pair, scales[0]);
      Isa::store_scales(to + 8 * Isa::kScaleCopies * pair + 4 * Isa::kScaleCopies, scales[1]);
    });
}

}  // namespace
}  // namespace lowbit
