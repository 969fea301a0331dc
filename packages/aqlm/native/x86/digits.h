// AQLM's factors as fixed point of two signed bytes, value = step * (256 * high + low), on AVX-512: x as tiles of
// bytes, codebooks as entries whose sums are read as two bytes.
#pragma once

#include "../vector_sizes.h"
#include "floats8.h"
#include "tiles.h"

namespace lowbit {
namespace aqlm {
namespace {

// Largest number of two signed bytes whose high byte is not -128.
constexpr float kDigitsMax = 127 * 256 + 127;
// Added to sums of codebook entries: their second byte is then the high byte, rounded, the first the low byte plus 128.
constexpr int kLowStart = 128;

// Values of k per product of tiles, and steps and values of a chunk, in which a row of x has one scale.
constexpr uint32_t kStep = 64, kChunkSteps = 4, kChunk = kChunkSteps * kStep;
// Rows of x per tile, and bytes of a step's high and low bytes and of a chunk's.
constexpr uint32_t kRows = 16;
constexpr size_t kRowsStepBytes = 2 * kTileBytes, kRowsChunkBytes = kChunkSteps * kRowsStepBytes;

// For a chunk of 16 rows of x: scales, and initial values of the sums of products with low bytes of weights, which have
// 128 added.
struct alignas(64) RowFactors {
  float scales[kRows];
  int32_t starts[kRows];
};

// Largest magnitude of `count` values; NaN where one is not finite.
inline float largest_value(const float* x, uint32_t count) {
  __m512 peak = _mm512_setzero_ps(), none = _mm512_setzero_ps();
  for (uint32_t i = 0; i < count; i += 16) {
    const __m512 v = _mm512_maskz_loadu_ps(first16(count - i), x + i);
    peak = _mm512_max_ps(peak, _mm512_abs_ps(v));
    none = _mm512_fmadd_ps(v, _mm512_setzero_ps(), none);
  }
  return std::max(_mm512_reduce_max_ps(peak), 0x1p-100f) + _mm512_reduce_add_ps(none);
}

struct Digits {
  __m512i high, low;
};

// 64 values of a row, 0 past `count`, in the order of decoded weights: the first and the last eight of each 16
// alternate.
inline Digits row_digits(const float* x, int64_t count, __m512 inverse) {
  __m128i high[4], low[4];
  for (int i = 0; i < 4; i++) {
    const __m512 v = _mm512_maskz_loadu_ps(first16(count - 16 * i), x + 16 * i);
    const __m512i whole = _mm512_cvtps_epi32(_mm512_mul_ps(v, inverse));
    high[i] = _mm512_cvtepi32_epi8(_mm512_srai_epi32(_mm512_add_epi32(whole, _mm512_set1_epi32(128)), 8));
    low[i] = _mm512_cvtepi32_epi8(whole);
  }
  const __m128i turns = _mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
  auto joined = [&](const __m128i* part) {
    const __m256i a = _mm256_inserti128_si256(_mm256_castsi128_si256(part[0]), part[1], 1);
    const __m256i b = _mm256_inserti128_si256(_mm256_castsi128_si256(part[2]), part[3], 1);
    return _mm512_shuffle_epi8(_mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1), _mm512_broadcast_i32x4(turns));
  };
  return {joined(high), joined(low)};
}

// Converts a chunk of k, from value `c` on, of 16 rows of x to tiles: for each step high bytes, then low ones, four
// values of k of each row side by side.
inline void turn_rows(const Arguments& a, uint32_t row, uint32_t c, uint8_t* tiles, RowFactors* factors) {
  const uint32_t count = std::min(kChunk, a.codes.k - c), rows = std::min(kRows, a.m - row);
  __m512 inverses[kRows];
  __m512i sums[kRows];
  for (uint32_t i = 0; i < kRows; i++) {
    const float peak = i < rows ? largest_value(a.x + size_t{row + i} * a.codes.k + c, count) : 1;
    factors->scales[i] = peak / kDigitsMax;
    inverses[i] = _mm512_set1_ps(kDigitsMax / peak);
    sums[i] = _mm512_setzero_si512();
  }
  for (uint32_t done = 0; done < count; done += kStep, tiles += kRowsStepBytes) {
    __m512i high[kRows], low[kRows];
    for (uint32_t i = 0; i < kRows; i++) {
      Digits digits = {_mm512_setzero_si512(), _mm512_setzero_si512()};
      if (i < rows) digits = row_digits(a.x + size_t{row + i} * a.codes.k + c + done, count - done, inverses[i]);
      high[i] = digits.high;
      low[i] = digits.low;
      sums[i] = _mm512_dpbusd_epi32(sums[i], _mm512_set1_epi8(1), digits.high);
    }
    store_turned(high, tiles);
    store_turned(low, tiles + kTileBytes);
  }
  for (uint32_t i = 0; i < kRows; i++) factors->starts[i] = -kLowStart * _mm512_reduce_add_epi32(sums[i]);
}

// Eight entries with `start`, kLowStart or 0, added.
inline LOWBIT_INLINE __m128i entry_words(__m256 values, __m256 inverse, int start) {
  const __m256i whole = _mm256_cvtps_epi32(_mm256_mul_ps(values, inverse));
  return _mm256_cvtepi32_epi16(_mm256_add_epi32(whole, _mm256_set1_epi32(start)));
}

// Step with which sums of one entry of each codebook stay in range, however each is rounded; NaN where a codebook is
// not finite.
inline float codebook_step(const Arguments& a) {
  const size_t length = a.codes.vector_values() / a.codes.codebooks;
  float peak = 0;
  for (uint32_t c = 0; c < a.codes.codebooks; c++) {
    Magnitudes<Avx2> all;
    for (size_t i = 0; i < length; i += 8) all.add(load8<Avx2>(a, c * length + i));
    peak += all.largest() + all.zero();
  }
  return peak / (kDigitsMax - a.codes.codebooks);
}

// Converts codebooks of vectors of `in_group` inputs to 16-bit entries.
inline void prepare_entries(const Arguments& a, float step, uint8_t* entries) {
  const __m256 inverse = _mm256_set1_ps(1 / step);
  const size_t count = a.codes.vector_values(), first_book = count / a.codes.codebooks;
  for (size_t i = 0; i < count; i += 8)
    _mm_store_si128(reinterpret_cast<__m128i*>(entries + 2 * i),
                    entry_words(load8<Avx2>(a, i), inverse, i < first_book ? kLowStart : 0));
}

}  // namespace
}  // namespace aqlm
}  // namespace lowbit
