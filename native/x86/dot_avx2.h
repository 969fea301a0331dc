// Products of panel16 linear layers on AVX2. vpmaddubsw multiplies unsigned weights by signed activations and adds two
// products in 16 bits. That is exact for weights of up to 7 bits, and narrower weights let several such sums be added.
// Weights of 8 bits are multiplied as magnitudes, with activations that take their signs, or as 16-bit numbers; GEMM
// multiplies them as two planes of 4 bits.
#pragma once

#include "isa_avx2.h"

namespace lowbit {
namespace {

struct DotAvx2 {
  static constexpr bool kShortSums = true, kStreams = true, kNeighbours = false;
  static __m256i products(__m256i weights, __m256i x) { return _mm256_maddubs_epi16(weights, x); }
  static __m256i add_shorts(__m256i a, __m256i b) { return _mm256_add_epi16(a, b); }
  static __m256i add_pairs(__m256i shorts) { return _mm256_madd_epi16(shorts, _mm256_set1_epi16(1)); }
  static __m256i add(__m256i a, __m256i b) { return _mm256_add_epi32(a, b); }
  // Adds products of four columns whose weights take more than 7 bits.
  static __m256i dot_wide(__m256i sum, __m256i u, __m256i x) {
    const __m256i low = _mm256_set1_epi16(255), even_x = _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8);
    __m256i even = _mm256_madd_epi16(_mm256_and_si256(u, low), even_x);
    __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(u, 8), _mm256_srai_epi16(x, 8));
    return _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
  }
  // Keeps compilers from computing products of many steps first and spilling them.
  static void keep(__m256i& v) { __asm__("" : "+x"(v)); }
};

struct NarrowAvx2;
struct SignedAvx2;

struct Avx2 : IsaAvx2<DotAvx2> {
  using Narrow = NarrowAvx2;
  using Signed = SignedAvx2;
  // Products of weights under 2^Bits whose sum fits 16 bits.
  template <int Bits>
  static constexpr int steps() {
    return Bits < 4 ? 8 : 128 >> Bits;
  }
};

// For codebooks whose levels have 7 bits.
struct NarrowAvx2 : Avx2 {
  static constexpr int32_t kLevelOffset = 64;
  static constexpr int kLevelBits = 7;
  static Bytes load_levels(const int8_t* levels, int count) { return Avx2::load_levels<kLevelOffset>(levels, count); }
};

// For 8-bit weights that stay signed: sum |w| * (sign(w) * x), for x of -127 .. 127.
struct SignedAvx2 : Avx2 {
  static constexpr int32_t kLevelOffset = 0;
  template <int Bits>
  static constexpr int32_t offset() {
    return 0;
  }
  static Bytes load_levels(const int8_t* levels, int count) { return Avx2::load_levels<kLevelOffset>(levels, count); }
  template <int Bits>
  static Bytes weight(Bytes u) {
    return _mm256_xor_si256(u, _mm256_set1_epi8(-128));
  }
  static __m256i dot_wide(__m256i sum, __m256i w, __m256i x) {
    return add(sum, add_pairs(products(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w))));
  }
};

}  // namespace
}  // namespace lowbit
