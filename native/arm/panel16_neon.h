// Operations of panel16 linear layers (panel16_linear.h) on NEON: a vector of 16 bytes is 4 k of 4 of a panel's 16
// rows. The files that include this supply `dot`.
#pragma once

#include <arm_neon.h>

#include "../families/linear/panel16_linear.h"

namespace lowbit {
namespace {

struct NeonVectors : NoShortSums, ScalarQuantizer {
  using Bytes = uint8x16_t;
  using Ints = int32x4_t;
  using Floats = float32x4_t;
  static constexpr int kRows = 4;
  static constexpr int kPanels = 1;
  static constexpr int32_t kLevelOffset = 0;

  // 8-bit weights are multiplied as signed integers: as unsigned ones they would not fit int8.
  template <int Bits>
  static constexpr int32_t offset() {
    return Bits == 8 ? 0 : 1 << (Bits - 1);
  }
  template <int Bits>
  static Bytes weight(Bytes u) {
    return Bits == 8 ? veorq_u8(u, vdupq_n_u8(0x80)) : u;
  }
  static Bytes load_bytes(const uint8_t* p) { return vld1q_u8(p); }
  static constexpr size_t kAhead = 0;
  template <int Bits>
  static void prefetch(const uint8_t*) {}
  template <int Shift, int Mask>
  static Bytes shift_and(Bytes v) {
    if constexpr (Shift > 0) v = vshrq_n_u8(v, Shift);
    if constexpr (Shift < 0) v = vshlq_n_u8(v, -Shift);
    return Mask == 255 ? v : vandq_u8(v, vdupq_n_u8(Mask));
  }
  static Bytes or_bytes(Bytes a, Bytes b) { return vorrq_u8(a, b); }
  static Bytes load_levels(const int8_t* levels, int count) {
    uint8_t table[16] = {};
    memcpy(table, levels, count);
    return vld1q_u8(table);
  }
  static Bytes lookup(Bytes table, Bytes u) { return vqtbl1q_u8(table, u); }
  static Ints broadcast_int(int32_t v) { return vdupq_n_s32(v); }
  static Ints scaled_zeros(const uint8_t* zeros, int32_t offset, int32_t factor) {
    uint32_t four;
    memcpy(&four, zeros, 4);
    const int32x4_t z = vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(four)))));
    return vmulq_n_s32(vaddq_s32(z, vdupq_n_s32(offset)), factor);
  }
  // `odd` where a byte is odd, else `even`.
  static Ints odd_ints(const uint8_t* bytes, int32_t odd, int32_t even) {
    const uint32x4_t is_odd = vtstq_s32(scaled_zeros(bytes, 0, 1), vdupq_n_s32(1));
    return vbslq_s32(is_odd, vdupq_n_s32(odd), vdupq_n_s32(even));
  }
  static Floats zero_floats() { return vdupq_n_f32(0); }
  static Floats broadcast(float v) { return vdupq_n_f32(v); }
  static Floats to_floats(Ints v) { return vcvtq_f32_s32(v); }
  static Floats load_floats(const uint8_t* p) { return vreinterpretq_f32_u8(vld1q_u8(p)); }
  static Floats load_halves(const uint8_t* p) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p))); }
  static Floats load_e4m3(const uint8_t* p) {
    const Ints bits = vandq_s32(vshlq_n_s32(scaled_zeros(p, 0, 1), 20), vdupq_n_s32(kE4m3Bits));
    return vmulq_n_f32(vreinterpretq_f32_s32(bits), kE4m3Scale);
  }
  static Floats load_zeros(const uint8_t* zeros) { return to_floats(scaled_zeros(zeros, 0, 1)); }
  static Floats multiply(Floats a, Floats b) { return vmulq_f32(a, b); }
  static Floats multiply_add(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }
  static void store_floats(float* y, Floats v) { vst1q_f32(y, v); }
  static void store_some_floats(float* y, Floats v, uint32_t count) {
    float all[4];
    vst1q_f32(all, v);
    for (uint32_t i = 0; i < count; i++) y[i] = all[i];
  }
};

}  // namespace
}  // namespace lowbit
