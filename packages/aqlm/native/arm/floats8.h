// Eight floats on NEON for codeword.h and vector_sizes.h.
#pragma once

#include <arm_neon.h>

namespace lowbit {
namespace aqlm {
namespace {

struct Neon {
  static constexpr bool kConverts = true;
  struct F8 {
    float32x4_t a, b;
  };
  static F8 zero() { return set(0); }
  static F8 set(float v) { return {vdupq_n_f32(v), vdupq_n_f32(v)}; }
  static F8 load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
  static F8 load(const uint16_t* p) {
    const float16x8_t halves = vreinterpretq_f16_u16(vld1q_u16(p));
    return {vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)};
  }
  static F8 add(F8 x, F8 y) { return {vaddq_f32(x.a, y.a), vaddq_f32(x.b, y.b)}; }
  static F8 multiply_add(F8 x, F8 y, F8 z) { return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b)}; }
  static F8 larger_magnitude(F8 peak, F8 v) {
    return {vmaxq_f32(peak.a, vabsq_f32(v.a)), vmaxq_f32(peak.b, vabsq_f32(v.b))};
  }
  static float largest(F8 x) { return vmaxvq_f32(vmaxq_f32(x.a, x.b)); }
  static float sum(F8 x) { return vaddvq_f32(vaddq_f32(x.a, x.b)); }
};

}  // namespace
}  // namespace aqlm
}  // namespace lowbit
