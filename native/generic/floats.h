// Vectors of floats that every CPU of the architecture has: NEON or SSE2.
#pragma once

#include <cstdint>
#include <cstring>

#include "../half.h"
#include "../kernel.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#else
#include <emmintrin.h>
#endif

namespace lowbit {
namespace {

#if defined(__aarch64__)
#define LOWBIT_FLOATS_TARGET "neon"
constexpr uint32_t kBaselineNeeds = kNeon;

struct BytesBaseline;

struct FloatsBaseline {
  using Bytes = BytesBaseline;
  using V = float32x4_t;
  static constexpr uint32_t kLanes = 4;
  // Vectors of columns whose sums attention keeps in registers for four rows.
  static constexpr int kColumns = 4;
  // Vectors of scores per step of four rows, where many rows share copies of keys.
  static constexpr uint32_t kScoreVectors = 4;
  // Whether attention over int8 caches has 16-bit words.
  static constexpr bool kHasWords = false;
  // Rows of activations per GEMV block of linear layers.
  static constexpr int kDotRows = 4;
  // Rows of activations per GEMM block of linear layers, by two vectors of columns.
  static constexpr int kOuterRows = 10;

  static V set(float v) { return vdupq_n_f32(v); }
  static V load(const float* p) { return vld1q_f32(p); }
  static void store(float* p, V v) { vst1q_f32(p, v); }
  // Non-temporal stores where an architecture has them: a plain store here.
  static void stream(float* p, V v) { store(p, v); }
  static void end_streams() {}
  static V load_halves(const uint16_t* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
  static V load_bf16(const uint16_t* p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }
  static void store_halves(uint16_t* p, V v) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(v))); }
  static V load_integers(const int8_t* p) {
    int32_t bytes;
    memcpy(&bytes, p, 4);
    const int16x8_t words = vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(bytes)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(words)));
  }
  static void store_integers(int8_t* p, V v) {
    const int16x4_t words = vqmovn_s32(vcvtnq_s32_f32(v));
    const int32_t bytes = vget_lane_s32(vreinterpret_s32_s8(vqmovn_s16(vcombine_s16(words, words))), 0);
    memcpy(p, &bytes, 4);
  }
  static V multiply_add(V a, V b, V c) { return vfmaq_f32(c, a, b); }
  // NaN where b is.
  static V max(V a, V b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
  static V min(V a, V b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
  // a < b ? x : y
  static V choose_less(V a, V b, V x, V y) { return vbslq_f32(vcltq_f32(a, b), x, y); }
  // x * 2^n for whole n in -126 .. 128, in two factors that are normal numbers.
  static V scale_by_power(V x, V n) {
    const int32x4_t whole = vcvtnq_s32_f32(n), half = vshrq_n_s32(whole, 1);
    return vmulq_f32(vmulq_f32(x, power(half)), power(vsubq_s32(whole, half)));
  }
  // x * 2^n for whole n, where x and the result are normal numbers.
  static V add_to_exponent(V x, V n) {
    const int32x4_t whole = vshlq_n_s32(vcvtnq_s32_f32(n), 23);
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(x), whole));
  }
  static float sum(V v) { return vaddvq_f32(v); }
  static float largest(V v) { return vmaxvq_f32(v); }
  // Rotates lanes: lane i gets lane i + N, modulo the lanes.
  template <uint32_t N>
  static V rotate(V v) {
    return vextq_f32(v, v, N);
  }
  static float first_lane(V v) { return vgetq_lane_f32(v, 0); }

  // Interleaves the lanes of the first halves, and of the second halves, of a and b.
  static V zip_low(V a, V b) { return vzip1q_f32(a, b); }
  static V zip_high(V a, V b) { return vzip2q_f32(a, b); }

  // Order of four lanes in which those that `sums` adds first are neighbours.
  static constexpr uint32_t kLaneOrder[] = {0, 1, 2, 3};
  // Lane i is the sum of v[i].
  static V sums(const V* v) { return vpaddq_f32(vpaddq_f32(v[0], v[1]), vpaddq_f32(v[2], v[3])); }

#else
#define LOWBIT_FLOATS_TARGET "sse2"
constexpr uint32_t kBaselineNeeds = kSse2;

struct BytesBaseline;

struct FloatsBaseline {
  using Bytes = BytesBaseline;
  using V = __m128;
  static constexpr uint32_t kLanes = 4;
  // Vectors of columns whose sums attention keeps in registers for four rows.
  static constexpr int kColumns = 2;
  // Vectors of scores per step of four rows, where many rows share copies of keys.
  static constexpr uint32_t kScoreVectors = 2;
  // Whether attention over int8 caches has 16-bit words.
  static constexpr bool kHasWords = false;
  // Rows of activations per GEMV block of linear layers.
  static constexpr int kDotRows = 2;
  // Rows of activations per GEMM block of linear layers, by two vectors of columns.
  static constexpr int kOuterRows = 6;

  static V set(float v) { return _mm_set1_ps(v); }
  static V load(const float* p) { return _mm_loadu_ps(p); }
  static void store(float* p, V v) { _mm_storeu_ps(p, v); }
  // Non-temporal store; p is aligned to a vector. end_streams orders the stores before others read them.
  static void stream(float* p, V v) { _mm_stream_ps(p, v); }
  static void end_streams() { _mm_sfence(); }
  static V load_halves(const uint16_t* p) {
    return _mm_setr_ps(half_to_float(p[0]), half_to_float(p[1]), half_to_float(p[2]), half_to_float(p[3]));
  }
  static V load_bf16(const uint16_t* p) {
    const __m128i words = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    return _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), words));
  }
  static void store_halves(uint16_t* p, V v) {
    float all[4];
    store(all, v);
    for (int i = 0; i < 4; i++) p[i] = float_to_half(all[i]);
  }
  static V load_integers(const int8_t* p) {
    int32_t bytes;
    memcpy(&bytes, p, 4);
    __m128i all = _mm_cvtsi32_si128(bytes);
    all = _mm_unpacklo_epi8(all, all);
    return _mm_cvtepi32_ps(_mm_srai_epi32(_mm_unpacklo_epi16(all, all), 24));
  }
  static void store_integers(int8_t* p, V v) {
    const __m128i words = _mm_packs_epi32(_mm_cvtps_epi32(v), _mm_setzero_si128());
    const int32_t bytes = _mm_cvtsi128_si32(_mm_packs_epi16(words, words));
    memcpy(p, &bytes, 4);
  }
  static V multiply_add(V a, V b, V c) { return _mm_add_ps(_mm_mul_ps(a, b), c); }
  // b where either is NaN.
  static V max(V a, V b) { return _mm_max_ps(a, b); }
  static V min(V a, V b) { return _mm_min_ps(a, b); }
  // a < b ? x : y
  static V choose_less(V a, V b, V x, V y) {
    const V less = _mm_cmplt_ps(a, b);
    return _mm_or_ps(_mm_and_ps(less, x), _mm_andnot_ps(less, y));
  }
  // x * 2^n for whole n in -126 .. 128, in two factors that are normal numbers.
  static V scale_by_power(V x, V n) {
    const __m128i whole = _mm_cvtps_epi32(n), half = _mm_srai_epi32(whole, 1);
    return _mm_mul_ps(_mm_mul_ps(x, power(half)), power(_mm_sub_epi32(whole, half)));
  }
  // x * 2^n for whole n, where x and the result are normal numbers.
  static V add_to_exponent(V x, V n) {
    const __m128i whole = _mm_slli_epi32(_mm_cvtps_epi32(n), 23);
    return _mm_castsi128_ps(_mm_add_epi32(_mm_castps_si128(x), whole));
  }
  static float sum(V v) {
    const V t = _mm_add_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_add_ss(t, _mm_shuffle_ps(t, t, 1)));
  }
  static float largest(V v) {
    const V t = _mm_max_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_max_ss(t, _mm_shuffle_ps(t, t, 1)));
  }
  // Rotates lanes: lane i gets lane i + N, modulo the lanes.
  template <uint32_t N>
  static V rotate(V v) {
    return _mm_shuffle_ps(v, v, _MM_SHUFFLE((N + 3) % 4, (N + 2) % 4, (N + 1) % 4, N));
  }
  static float first_lane(V v) { return _mm_cvtss_f32(v); }

  // Interleaves the lanes of the first halves, and of the second halves, of a and b.
  static V zip_low(V a, V b) { return _mm_unpacklo_ps(a, b); }
  static V zip_high(V a, V b) { return _mm_unpackhi_ps(a, b); }

  // Order of four lanes in which those that `sums` adds first are neighbours.
  static constexpr uint32_t kLaneOrder[] = {0, 2, 1, 3};
  // Lane i is the sum of v[i].
  static V sums(const V* v) {
    const V a = _mm_add_ps(_mm_unpacklo_ps(v[0], v[1]), _mm_unpackhi_ps(v[0], v[1]));
    const V b = _mm_add_ps(_mm_unpacklo_ps(v[2], v[3]), _mm_unpackhi_ps(v[2], v[3]));
    return _mm_add_ps(_mm_movelh_ps(a, b), _mm_movehl_ps(b, a));
  }
#endif

  static V load_some(const float* p, uint32_t n) {
    float all[4] = {};
    memcpy(all, p, 4 * n);
    return load(all);
  }
  static void store_some(float* p, V v, uint32_t n) {
    float all[4];
    store(all, v);
    memcpy(p, all, 4 * n);
  }
  static V load_some_halves(const uint16_t* p, uint32_t n) {
    uint16_t all[4] = {};
    memcpy(all, p, 2 * n);
    return load_halves(all);
  }
  static void store_some_halves(uint16_t* p, V v, uint32_t n) {
    uint16_t all[4];
    store_halves(all, v);
    memcpy(p, all, 2 * n);
  }

 private:
#if defined(__aarch64__)
  static V power(int32x4_t n) { return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23)); }
#else
  static V power(__m128i n) { return _mm_castsi128_ps(_mm_slli_epi32(_mm_add_epi32(n, _mm_set1_epi32(127)), 23)); }
#endif
};

// Vectors of bytes for attention over int4 pages: nibbles times bytes of a query or of weights, four products per lane.
// A Part sums four products in 16 bits; `end` adds it to the sum.
#if defined(__aarch64__)
struct BytesBaseline {
  using Isa = FloatsBaseline;
  using V = uint8x16_t;
  using Sums = int32x4_t;
  // Products of the first and of the second half of a vector.
  using Part = int16x8x2_t;
  // Queries per product.
  static constexpr int kRows = 2;

  static V load(const uint8_t* p) { return vld1q_u8(p); }
  static V low(V bytes) { return vandq_u8(bytes, vdupq_n_u8(15)); }
  static V high(V bytes) { return vshrq_n_u8(bytes, 4); }
  static int8x8_t signed_four(const int8_t* p) {
    int32_t four;
    memcpy(&four, p, 4);
    return vreinterpret_s8_s32(vdup_n_s32(four));
  }
  static uint8x8_t unsigned_four(const uint8_t* p) {
    return vreinterpret_u8_s8(signed_four(reinterpret_cast<const int8_t*>(p)));
  }
  static Sums none() { return vdupq_n_s32(0); }
  static Part begin(Sums) { return {{vdupq_n_s16(0), vdupq_n_s16(0)}}; }
  static Part add_signed(Part part, V halves, int8x8_t four) {
    const int8x16_t own = vreinterpretq_s8_u8(halves);
    return {{vmlal_s8(part.val[0], vget_low_s8(own), four), vmlal_s8(part.val[1], vget_high_s8(own), four)}};
  }
  static Part add_unsigned(Part part, V halves, uint8x8_t four) {
    const uint16x8_t a = vmlal_u8(vreinterpretq_u16_s16(part.val[0]), vget_low_u8(halves), four);
    const uint16x8_t b = vmlal_u8(vreinterpretq_u16_s16(part.val[1]), vget_high_u8(halves), four);
    return {{vreinterpretq_s16_u16(a), vreinterpretq_s16_u16(b)}};
  }
  template <bool IsSigned>
  static Sums end(Sums sums, Part part) {
    return vaddq_s32(sums, vpaddq_s32(vpaddlq_s16(part.val[0]), vpaddlq_s16(part.val[1])));
  }
  static float32x4_t floats(Sums sums) { return vcvtq_f32_s32(sums); }
  // Rounds half to even; values are within 0 .. 255.
  static void store_unsigned(uint8_t* p, float32x4_t v) {
    const uint16x4_t words = vqmovun_s32(vcvtnq_s32_f32(v));
    const uint32_t bytes = vget_lane_u32(vreinterpret_u32_u8(vqmovn_u16(vcombine_u16(words, words))), 0);
    memcpy(p, &bytes, 4);
  }
};
#else
struct BytesBaseline {
  using Isa = FloatsBaseline;
  using V = __m128i;
  using Sums = __m128i;
  // Products of the first and of the second half of a vector.
  struct Part {
    __m128i low, high;
  };
  // Queries per product.
  static constexpr int kRows = 1;

  static V load(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
  static V low(V bytes) { return _mm_and_si128(bytes, _mm_set1_epi8(15)); }
  static V high(V bytes) { return low(_mm_srli_epi16(bytes, 4)); }
  // Four bytes as words, twice.
  static V signed_four(const int8_t* p) {
    const V four = unsigned_four(reinterpret_cast<const uint8_t*>(p));
    return _mm_srai_epi16(_mm_slli_epi16(four, 8), 8);
  }
  static V unsigned_four(const uint8_t* p) {
    int32_t four;
    memcpy(&four, p, 4);
    return _mm_unpacklo_epi8(_mm_set1_epi32(four), _mm_setzero_si128());
  }
  static Sums none() { return _mm_setzero_si128(); }
  static Part begin(Sums) { return {none(), none()}; }
  static Part add_signed(Part part, V halves, V four) {
    const V low = _mm_unpacklo_epi8(halves, none()), high = _mm_unpackhi_epi8(halves, none());
    return {_mm_add_epi16(part.low, _mm_mullo_epi16(low, four)), _mm_add_epi16(part.high, _mm_mullo_epi16(high, four))};
  }
  static Part add_unsigned(Part part, V halves, V four) { return add_signed(part, halves, four); }
  template <bool IsSigned>
  static Sums end(Sums sums, Part part) {
    const V ones = _mm_set1_epi16(1);
    const __m128 a = _mm_castsi128_ps(_mm_madd_epi16(part.low, ones));
    const __m128 b = _mm_castsi128_ps(_mm_madd_epi16(part.high, ones));
    const V even = _mm_castps_si128(_mm_shuffle_ps(a, b, 0x88)), odd = _mm_castps_si128(_mm_shuffle_ps(a, b, 0xdd));
    return _mm_add_epi32(sums, _mm_add_epi32(even, odd));
  }
  static __m128 floats(Sums sums) { return _mm_cvtepi32_ps(sums); }
  // Rounds half to even; values are within 0 .. 255.
  static void store_unsigned(uint8_t* p, __m128 v) {
    const __m128i words = _mm_packs_epi32(_mm_cvtps_epi32(v), none());
    const int32_t bytes = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
    memcpy(p, &bytes, 4);
  }
};
#endif

}  // namespace
}  // namespace lowbit
