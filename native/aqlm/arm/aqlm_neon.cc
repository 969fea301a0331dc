// AQLM on NEON.
#include <arm_neon.h>

#include "../../generic/floats.h"
#include "../float_rows.h"
#include "../rows.h"

namespace lowbit {
namespace aqlm {
namespace {

struct Neon {
  static constexpr bool kConverts = true;
  struct F8 {
    float32x4_t a, b;
  };
  static F8 zero() { return {vdupq_n_f32(0), vdupq_n_f32(0)}; }
  static F8 load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
  static F8 load(const uint16_t* p) {
    const float16x8_t halves = vreinterpretq_f16_u16(vld1q_u16(p));
    return {vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)};
  }
  static F8 add(F8 x, F8 y) { return {vaddq_f32(x.a, y.a), vaddq_f32(x.b, y.b)}; }
  static F8 multiply_add(F8 x, F8 y, F8 z) { return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b)}; }
  static float sum(F8 x) { return vaddvq_f32(vaddq_f32(x.a, x.b)); }
};

constexpr KernelRow kRows[] = {
    LOWBIT_AQLM_FLOAT_ROWS("neon", kNeon, Neon, FloatsBaseline, 8)};

}  // namespace
}  // namespace aqlm

KernelRows aqlm_neon_rows() { return {aqlm::kRows, sizeof aqlm::kRows / sizeof *aqlm::kRows}; }

}  // namespace lowbit
