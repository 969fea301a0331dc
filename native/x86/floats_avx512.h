// Vectors of floats on AVX-512. Flags: see scripts/native/build.js.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace lowbit {
namespace {

struct BytesAvx512;

struct FloatsAvx512 {
  using V = __m512;
  using Bytes = BytesAvx512;
  static constexpr uint32_t kLanes = 16;
  // Vectors of columns whose sums attention keeps in registers for four rows.
  static constexpr int kColumns = 4;
  // Vectors of scores per step of four rows, where many rows share copies of keys.
  static constexpr uint32_t kScoreVectors = 1;
  // Whether attention over int8 caches has 16-bit words.
  static constexpr bool kHasWords = false;
  // Rows of activations per GEMV block of linear layers.
  static constexpr int kDotRows = 4;
  // Rows of activations per GEMM block of linear layers, by two vectors of columns.
  static constexpr int kOuterRows = 12;

  static __mmask16 first(uint32_t n) { return static_cast<__mmask16>((1u << n) - 1); }
  static V set(float v) { return _mm512_set1_ps(v); }
  static V load(const float* p) { return _mm512_loadu_ps(p); }
  static V load_some(const float* p, uint32_t n) { return _mm512_maskz_loadu_ps(first(n), p); }
  static void store(float* p, V v) { _mm512_storeu_ps(p, v); }
  // Non-temporal store; p is aligned to a vector. end_streams orders the stores before others read them.
  static void stream(float* p, V v) { _mm512_stream_ps(p, v); }
  static void end_streams() { _mm_sfence(); }
  static void store_some(float* p, V v, uint32_t n) { _mm512_mask_storeu_ps(p, first(n), v); }
  static V load_halves(const uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static V load_some_halves(const uint16_t* p, uint32_t n) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(n), p));
  }
  static V load_bf16(const uint16_t* p) {
    const __m512i words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
  }
  static void store_halves(uint16_t* p, V v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }
  static void store_some_halves(uint16_t* p, V v, uint32_t n) {
    _mm256_mask_storeu_epi16(p, first(n), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }
  static V load_integers(const int8_t* p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  // 1 where an integer is odd, else 0.
  static V load_odd(const int8_t* p) {
    const __m128i all = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm512_maskz_mov_ps(_mm_test_epi8_mask(all, _mm_set1_epi8(1)), _mm512_set1_ps(1));
  }
  static void store_integers(int8_t* p, V v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(v)));
  }
  static V multiply_add(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
  // b where either is NaN.
  static V max(V a, V b) { return _mm512_max_ps(a, b); }
  static V min(V a, V b) { return _mm512_min_ps(a, b); }
  // a < b ? x : y
  static V choose_less(V a, V b, V x, V y) { return _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), x); }
  // x * 2^n for whole n.
  static V scale_by_power(V x, V n) { return _mm512_scalef_ps(x, n); }
  // x * 2^n for whole n, where x and the result are normal numbers.
  static V add_to_exponent(V x, V n) { return _mm512_scalef_ps(x, n); }
  static float sum(V v) { return _mm512_reduce_add_ps(v); }
  static float largest(V v) { return _mm512_reduce_max_ps(v); }
  // Rotates lanes: lane i gets lane i + N, modulo the lanes.
  template <uint32_t N>
  static V rotate(V v) {
    const __m512i lanes = _mm512_castps_si512(v);
    return _mm512_castsi512_ps(_mm512_alignr_epi32(lanes, lanes, N));
  }
  static float first_lane(V v) { return _mm512_cvtss_f32(v); }

  // Interleaves the lanes of the first halves, and of the second halves, of a and b.
  static V zip_low(V a, V b) {
    const __m512i order = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    return _mm512_permutex2var_ps(a, order, b);
  }
  static V zip_high(V a, V b) {
    const __m512i order = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    return _mm512_permutex2var_ps(a, order, b);
  }

  // Order of four lanes in which those that `sums` adds first are neighbours.
  static constexpr uint32_t kLaneOrder[] = {0, 2, 1, 3};
  // Lane i is the sum of v[i]. One of the two terms of each addition comes from a blend: unlike shuffles, which have
  // one port, blends share both with multiplications.
  static V sums(const V* v) {
    V four[4];
    for (int i = 0; i < 4; i++)
      four[i] = fold_lanes(fold_pairs(v[4 * i], v[4 * i + 2]), fold_pairs(v[4 * i + 1], v[4 * i + 3]));
    const V a = fold_quarters(four[0], four[1]), b = fold_quarters(four[2], four[3]);
    return _mm512_add_ps(_mm512_mask_blend_ps(0xff00, a, b), _mm512_shuffle_f32x4(a, b, 0x4e));
  }

  // Of each quarter, lanes 0 + 2 and 1 + 3 of a, then those of b.
  static V fold_pairs(V a, V b) {
    return _mm512_add_ps(_mm512_mask_blend_ps(0xcccc, a, b), _mm512_shuffle_ps(a, b, 0x4e));
  }
  // Of each quarter, lanes 0 + 1 of a, 0 + 1 of b, 2 + 3 of a, 2 + 3 of b.
  static V fold_lanes(V a, V b) {
    const __m512i others = _mm512_setr_epi32(1, 16, 3, 18, 5, 20, 7, 22, 9, 24, 11, 26, 13, 28, 15, 30);
    return _mm512_add_ps(_mm512_mask_blend_ps(0xaaaa, a, b), _mm512_permutex2var_ps(a, others, b));
  }
  // Quarters 0 + 1 of a, 0 + 1 of b, 2 + 3 of a, 2 + 3 of b.
  static V fold_quarters(V a, V b) {
    const __m512i others = _mm512_setr_epi32(4, 5, 6, 7, 16, 17, 18, 19, 12, 13, 14, 15, 24, 25, 26, 27);
    return _mm512_add_ps(_mm512_mask_blend_ps(0xf0f0, a, b), _mm512_permutex2var_ps(a, others, b));
  }
};

// Vectors of bytes for attention over int4 pages: nibbles times bytes of a query or of weights, four products per lane.
// A Part sums four products; `end` adds it to the sum.
struct BytesAvx512 {
  using Isa = FloatsAvx512;
  using V = __m512i;
  using Sums = __m512i;
  using Part = __m512i;
  // Queries per product.
  static constexpr int kRows = 4;

  static V load(const uint8_t* p) { return _mm512_loadu_si512(p); }
  static V low(V bytes) { return _mm512_and_si512(bytes, _mm512_set1_epi8(15)); }
  static V high(V bytes) { return low(_mm512_srli_epi16(bytes, 4)); }
  static V signed_four(const int8_t* p) {
    int32_t four;
    memcpy(&four, p, 4);
    return _mm512_set1_epi32(four);
  }
  static V unsigned_four(const uint8_t* p) { return signed_four(reinterpret_cast<const int8_t*>(p)); }
  static Sums none() { return _mm512_setzero_si512(); }
  // 16-bit sums of two products, eight of which fit 16 bits.
  static Part begin(Sums) { return _mm512_setzero_si512(); }
  static Part add_signed(Part part, V halves, V four) {
    return _mm512_add_epi16(part, _mm512_maddubs_epi16(halves, four));
  }
  static Part add_unsigned(Part part, V halves, V four) {
    return _mm512_add_epi16(part, _mm512_maddubs_epi16(four, halves));
  }
  template <bool IsSigned>
  static Sums end(Sums sums, Part part) {
    return _mm512_add_epi32(sums, _mm512_madd_epi16(part, _mm512_set1_epi16(1)));
  }
  static __m512 floats(Sums sums) { return _mm512_cvtepi32_ps(sums); }
  // Rounds half to even; values are within 0 .. 255.
  static void store_unsigned(uint8_t* p, __m512 v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtusepi32_epi8(_mm512_cvtps_epi32(v)));
  }
};

// BytesAvx512 with VNNI, whose products are added to 32-bit sums at once.
struct BytesAvx512Vnni : BytesAvx512 {
  static Part begin(Sums sums) { return sums; }
  static Part add_signed(Part part, V halves, V four) { return _mm512_dpbusd_epi32(part, halves, four); }
  static Part add_unsigned(Part part, V halves, V four) { return _mm512_dpbusd_epi32(part, four, halves); }
  template <bool IsSigned>
  static Sums end(Sums, Part part) {
    return part;
  }
};

}  // namespace
}  // namespace lowbit
