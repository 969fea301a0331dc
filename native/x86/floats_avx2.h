// Vectors of floats on AVX2 with FMA and F16C. Flags: see scripts/native/build.js.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace lowbit {
namespace {

struct BytesAvx2;

struct FloatsAvx2 {
  using V = __m256;
  using Bytes = BytesAvx2;
  static constexpr uint32_t kLanes = 8;
  // Vectors of columns whose sums attention keeps in registers for four rows.
  static constexpr int kColumns = 2;
  // Vectors of scores per step of four rows, where many rows share copies of keys.
  static constexpr uint32_t kScoreVectors = 1;
  // Whether attention over int8 caches has 16-bit words.
  static constexpr bool kHasWords = true;
  // Rows of activations per GEMV block of linear layers.
  static constexpr int kDotRows = 2;
  // Rows of activations per GEMM block of linear layers, by two vectors of columns.
  static constexpr int kOuterRows = 6;

  static __m256i first(uint32_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static V set(float v) { return _mm256_set1_ps(v); }
  static V load(const float* p) { return _mm256_loadu_ps(p); }
  static V load_some(const float* p, uint32_t n) { return _mm256_maskload_ps(p, first(n)); }
  static void store(float* p, V v) { _mm256_storeu_ps(p, v); }
  // Non-temporal store; p is aligned to a vector. end_streams orders the stores before others read them.
  static void stream(float* p, V v) { _mm256_stream_ps(p, v); }
  static void end_streams() { _mm_sfence(); }
  static void store_some(float* p, V v, uint32_t n) { _mm256_maskstore_ps(p, first(n), v); }
  static V load_halves(const uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static V load_some_halves(const uint16_t* p, uint32_t n) {
    uint16_t all[8] = {};
    memcpy(all, p, 2 * n);
    return load_halves(all);
  }
  static V load_bf16(const uint16_t* p) {
    const __m256i words = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
  }
  static void store_halves(uint16_t* p, V v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }
  static void store_some_halves(uint16_t* p, V v, uint32_t n) {
    uint16_t all[8];
    store_halves(all, v);
    memcpy(p, all, 2 * n);
  }
  static V load_integers(const int8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
  // 1 where an integer is odd, else 0.
  static V load_odd(const int8_t* p) {
    const __m256i words = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    return _mm256_cvtepi32_ps(_mm256_and_si256(words, _mm256_set1_epi32(1)));
  }
  static void store_integers(int8_t* p, V v) {
    const __m256i whole = _mm256_cvtps_epi32(v);
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(words, words));
  }
  static V multiply_add(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
  // b where either is NaN.
  static V max(V a, V b) { return _mm256_max_ps(a, b); }
  static V min(V a, V b) { return _mm256_min_ps(a, b); }
  // a < b ? x : y
  static V choose_less(V a, V b, V x, V y) { return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ)); }
  // x * 2^n for whole n in -126 .. 128, in two factors that are normal numbers.
  static V scale_by_power(V x, V n) {
    const __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
    return _mm256_mul_ps(_mm256_mul_ps(x, power(half)), power(_mm256_sub_epi32(whole, half)));
  }
  // x * 2^n for whole n, where x and the result are normal numbers.
  static V add_to_exponent(V x, V n) {
    const __m256i whole = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), whole));
  }
  static float sum(V v) {
    const __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 t = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(t, _mm_shuffle_ps(t, t, 1)));
  }
  static float largest(V v) {
    const __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 t = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(t, _mm_shuffle_ps(t, t, 1)));
  }
  // Rotates lanes: lane i gets lane i + N, modulo the lanes.
  template <uint32_t N>
  static V rotate(V v) {
    if constexpr (N == 4) return _mm256_permute2f128_ps(v, v, 1);
    return _mm256_permutevar8x32_ps(v, _mm256_setr_epi32(N, (N + 1) % 8, (N + 2) % 8, (N + 3) % 8, (N + 4) % 8,
                                                         (N + 5) % 8, (N + 6) % 8, (N + 7) % 8));
  }
  static float first_lane(V v) { return _mm256_cvtss_f32(v); }

  // Interleaves the lanes of the first halves, and of the second halves, of a and b.
  static V zip_low(V a, V b) {
    return _mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x20);
  }
  static V zip_high(V a, V b) {
    return _mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x31);
  }

  // Order of four lanes in which those that `sums` adds first are neighbours.
  static constexpr uint32_t kLaneOrder[] = {0, 2, 1, 3};
  // Lane i is the sum of v[i]. Not by horizontal additions, which take 2 cycles each.
  static V sums(const V* v) {
    return fold(v, [](V a, V b) { return _mm256_add_ps(a, b); });
  }

  // 16-bit words, two per lane.
  using Words = __m256i;
  static Words no_words() { return _mm256_setzero_si256(); }
  static Words load_words(const float* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  static Words words_of(const int8_t* p) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  // Rounds half to even; values are within -32768 .. 32767.
  static void store_words(float* p, V a, V b) {
    const __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(a), _mm256_cvtps_epi32(b));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(words, 0xd8));
  }
  // Adds products of pairs of words to 32-bit sums.
  static Words add_products(Words sum, Words a, Words b) {
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
    // Keeps compilers from adding products to each other first, for which registers do not suffice.
    __asm__("" : "+x"(sum));
    return sum;
  }
  // Lane i is the sum of w[i].
  static V sums_of_words(const Words* w) {
    V v[8];
    for (int i = 0; i < 8; i++) v[i] = _mm256_castsi256_ps(w[i]);
    const V sums = fold(v, [](V a, V b) {
      return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
    });
    return _mm256_cvtepi32_ps(_mm256_castps_si256(sums));
  }

 private:
  // Lane i is v[i] reduced with `add`.
  template <class Add>
  static V fold(const V* v, Add add) {
    const V low = fold_quarters(v, add), high = fold_quarters(v + 4, add);
    return add(_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31));
  }
  // Lanes i and 4 + i are the first and the second half of v[i], reduced.
  template <class Add>
  static V fold_quarters(const V* v, Add add) {
    const V first = fold_pairs(v[0], v[1], add), second = fold_pairs(v[2], v[3], add);
    return add(_mm256_shuffle_ps(first, second, 0x88), _mm256_shuffle_ps(first, second, 0xdd));
  }
  // In each half: a0 + a2, a1 + a3, b2 + b0, b3 + b1.
  template <class Add>
  static V fold_pairs(V a, V b, Add add) {
    return add(_mm256_blend_ps(a, b, 0xcc), _mm256_shuffle_ps(a, b, 0x4e));
  }
  static V power(__m256i n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
  }
};

// Vectors of bytes for attention over int4 pages: nibbles times bytes of a query or of weights, four products per lane.
// A Part sums four products; `end` adds it to the sum.
struct BytesAvx2 {
  using Isa = FloatsAvx2;
  using V = __m256i;
  using Sums = __m256i;
  using Part = __m256i;
  // Queries per product.
  static constexpr int kRows = 2;

  static V load(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  static V low(V bytes) { return _mm256_and_si256(bytes, _mm256_set1_epi8(15)); }
  static V high(V bytes) { return low(_mm256_srli_epi16(bytes, 4)); }
  static V signed_four(const int8_t* p) {
    int32_t four;
    memcpy(&four, p, 4);
    return _mm256_set1_epi32(four);
  }
  static V unsigned_four(const uint8_t* p) { return signed_four(reinterpret_cast<const int8_t*>(p)); }
  static Sums none() { return _mm256_setzero_si256(); }
  // 16-bit sums of two products, eight of which fit 16 bits.
  static Part begin(Sums) { return _mm256_setzero_si256(); }
  static Part add_signed(Part part, V halves, V four) {
    return _mm256_add_epi16(part, _mm256_maddubs_epi16(halves, four));
  }
  static Part add_unsigned(Part part, V halves, V four) {
    return _mm256_add_epi16(part, _mm256_maddubs_epi16(four, halves));
  }
  template <bool IsSigned>
  static Sums end(Sums sums, Part part) {
    return _mm256_add_epi32(sums, _mm256_madd_epi16(part, _mm256_set1_epi16(1)));
  }
  static __m256 floats(Sums sums) { return _mm256_cvtepi32_ps(sums); }
  // Rounds half to even; values are within 0 .. 255.
  static void store_unsigned(uint8_t* p, __m256 v) {
    const __m256i whole = _mm256_cvtps_epi32(v);
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packus_epi16(words, words));
  }
};

}  // namespace
}  // namespace lowbit
