// Floats as sums of bf16 parts. With two parts, high times high and high times low are as exact as 16 bits of each
// factor; low times low is left out. Three parts are the whole float. Flags: see scripts/native/build.js.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace lowbit {
namespace {

// Nearest bf16 as a float. The rest, v - high_part(v), is exact.
inline __m512 high_part(__m512 v) {
  const __m512i rounded = _mm512_add_epi32(_mm512_castps_si512(v), _mm512_set1_epi32(0x8000));
  return _mm512_castsi512_ps(_mm512_and_si512(rounded, _mm512_set1_epi32(static_cast<int>(0xffff0000))));
}

// High and low parts of 32 values, 32 bf16 each.
struct SplitVector {
  __m512i high, low;
};

// The values of a, then those of b.
inline SplitVector split_row(__m512 a, __m512 b) {
  const __m512 high_a = high_part(a), high_b = high_part(b);
  return {reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high_b, high_a)),
          reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(_mm512_sub_ps(b, high_b), _mm512_sub_ps(a, high_a)))};
}

// Three parts of 32 values, largest first, 32 bf16 each; their sums are the values.
struct ThreeParts {
  __m512i parts[3];
};

// The values of a, then those of b.
inline ThreeParts split_wholly(__m512 a, __m512 b) {
  const SplitVector first = split_row(a, b);
  const __m512 rest_a = _mm512_sub_ps(a, high_part(a)), rest_b = _mm512_sub_ps(b, high_part(b));
  const SplitVector second = split_row(rest_a, rest_b);
  return {{first.high, second.high, second.low}};
}

// High halves of the lanes of a, as low halves, and of b, as high halves.
inline __m512i high_halves(__m512i a, __m512i b) {
  constexpr int kAAndBOrC = 0xea;
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  return _mm512_ternarylogic_epi32(b, upper, _mm512_srli_epi32(a, 16), kAAndBOrC);
}

// Pairs of nearest bf16 in each lane: a's in the low half, b's in the high half.
inline __m512i rounded_pairs(__m512 a, __m512 b) {
  const __m512i half_step = _mm512_set1_epi32(0x8000);
  return high_halves(_mm512_add_epi32(_mm512_castps_si512(a), half_step),
                     _mm512_add_epi32(_mm512_castps_si512(b), half_step));
}

// High parts as pairs, and the rests of both values as pairs.
inline SplitVector split_pairs(__m512 a, __m512 b) {
  const __m512 high_a = high_part(a), high_b = high_part(b);
  return {high_halves(_mm512_castps_si512(high_a), _mm512_castps_si512(high_b)),
          rounded_pairs(_mm512_sub_ps(a, high_a), _mm512_sub_ps(b, high_b))};
}

// Transposes 16 rows of 16 words in place.
inline void transpose16(__m512i* r) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // Word c of quarter q of r[4 i + c] is now column 4 q + c of rows 4 i .. 4 i + 3.
  for (int c = 0; c < 4; c++) {
    const __m512i low = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x88), high = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xdd);
    const __m512i low2 = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x88);
    const __m512i high2 = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xdd);
    t[c] = _mm512_shuffle_i32x4(low, low2, 0x88);
    t[8 + c] = _mm512_shuffle_i32x4(low, low2, 0xdd);
    t[4 + c] = _mm512_shuffle_i32x4(high, high2, 0x88);
    t[12 + c] = _mm512_shuffle_i32x4(high, high2, 0xdd);
  }
  for (int i = 0; i < 16; i++) r[i] = t[i];
}

}  // namespace
}  // namespace lowbit
