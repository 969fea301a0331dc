// 16-bit words of attention on 32-byte vectors, for AVX2 and AVX-VNNI, which differ in how they multiply (`Dot`).
#pragma once

#include "floats_avx2.h"

namespace lowbit {
namespace {

template <class Dot>
struct WordsAvx2 : FloatsAvx2 {
  using Floats = FloatsAvx2;
  // Rows and vectors of columns per product.
  static constexpr uint32_t kWordRows = 6, kWordColumns = 2;

  static Words load_pairs(const int16_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  // Broadcasts as float: compilers merge several integer broadcasts into one load of 128 bits or more.
  static Words broadcast_pair(const int16_t* p) {
    return _mm256_castps_si256(_mm256_broadcast_ss(reinterpret_cast<const float*>(p)));
  }
  static Words add_products(Words sum, Words a, Words b) { return Dot::add_products(sum, a, b); }
  static V floats_of(Words sum) { return _mm256_cvtepi32_ps(sum); }
  // Rounds half to even; values are within -32768 .. 32767.
  static void store_words(int16_t* p, V a, V b) {
    const __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(a), _mm256_cvtps_epi32(b));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(words, 0xd8));
  }
  // store_words with the 128-bit halves of both vectors interleaved.
  static void store_weights(int16_t* p, V a, V b) {
    const __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(a), _mm256_cvtps_epi32(b));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), words);
  }
  // 2^x for x < 128, relative error 3e-6, and 0 for x <= -127: 2^n (1 + f q(f)), |f| <= 1/2 (q is minimax).
  static V exp2(V x) {
    // Adding 1.5 * 2^23 rounds to a whole number and leaves it in the low bits.
    const V rounder = _mm256_set1_ps(12582912.0f);
    x = _mm256_max_ps(x, _mm256_set1_ps(-127.0f));
    const V rounded = _mm256_add_ps(x, rounder), f = _mm256_sub_ps(x, _mm256_sub_ps(rounded, rounder));
    V p = _mm256_set1_ps(9.58285170e-3f);
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(5.59064266e-2f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0.240240987f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0.693124193f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(1.0f));
    const __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(rounded), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), exponent));
  }
};

}  // namespace
}  // namespace lowbit
