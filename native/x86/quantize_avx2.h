// Dynamic int8 quantization of activations on AVX2, bit for bit as src/kernels/families/linear/activations.ts.
#pragma once

#include <immintrin.h>

#include <algorithm>

#include "../families/linear/panel16_linear.h"

namespace lowbit {
namespace {

struct VectorsAvx2 {
  static uint32_t largest_bits(const float* x, uint32_t count) {
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256i all = _mm256_setzero_si256();
    uint32_t c = 0;
    for (; c + 8 <= count; c += 8) {
      const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + c));
      all = _mm256_max_epu32(all, _mm256_and_si256(v, magnitude));
    }
    __m128i most = _mm_max_epu32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
    most = _mm_max_epu32(most, _mm_unpackhi_epi64(most, most));
    most = _mm_max_epu32(most, _mm_shuffle_epi32(most, 1));
    uint32_t largest = static_cast<uint32_t>(_mm_cvtsi128_si32(most));
    for (; c < count; c++) {
      uint32_t bits;
      memcpy(&bits, x + c, sizeof bits);
      largest = std::max(largest, bits & 0x7fffffffu);
    }
    return largest;
  }

  static int32_t integers(const ActivationScale& scale, const float* x, uint32_t count, int8_t* at, uint32_t length) {
    const int32_t sum = group(x, count, scale, at);
    if (count < length) memset(at + count, 0, length - count);
    return sum;
  }

  static ActivationScale scale_of(const float* x, uint32_t k) {
    __m256i lows[2] = {_mm256_set1_epi32(static_cast<int32_t>(kLowestStart)), lows[0]};
    __m256i highs[2] = {_mm256_set1_epi32(kHighestStart), highs[0]};
    uint32_t c = 0;
    for (; c + 16 <= k; c += 16)
      for (int i = 0; i < 2; i++) {
        const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + c + 8 * i));
        lows[i] = _mm256_max_epu32(v, lows[i]);
        highs[i] = _mm256_max_epi32(v, highs[i]);
      }
    uint32_t least[8], lowest = kLowestStart;
    int32_t most[8], highest = kHighestStart;
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(least), _mm256_max_epu32(lows[0], lows[1]));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(most), _mm256_max_epi32(highs[0], highs[1]));
    for (int i = 0; i < 8; i++) {
      lowest = std::max(lowest, least[i]);
      highest = std::max(highest, most[i]);
    }
    for (; c < k; c++) {
      int32_t bits;
      memcpy(&bits, x + c, sizeof bits);
      lowest = std::max(lowest, static_cast<uint32_t>(bits));
      highest = std::max(highest, bits);
    }
    return activation_scale(lowest, highest);
  }

 private:
  static int32_t sum_lanes(__m256i v) {
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    sum = _mm_add_epi32(sum, _mm_unpackhi_epi64(sum, sum));
    return _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32(sum, 1)));
  }

  // Quantizes a group and returns the sum of its integers.
  static int32_t group(const float* x, uint32_t count, const ActivationScale& scale, int8_t* out) {
    const __m256 inverse = _mm256_set1_ps(scale.inverse);
    const __m256i zero = _mm256_set1_epi32(scale.zero);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i sums = _mm256_setzero_si256();
    uint32_t c = 0;
    for (; c + 32 <= count; c += 32) {
      __m256i q[4];
      for (int i = 0; i < 4; i++)
        q[i] = _mm256_add_epi32(_mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + c + 8 * i), inverse)), zero);
      const __m256i words = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
      const __m256i bytes = _mm256_permutevar8x32_epi32(words, order);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + c), bytes);
      const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes);
      sums = _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
    int32_t sum = sum_lanes(sums);
    if (c + 16 <= count) {
      __m128i q[4];
      for (int i = 0; i < 4; i++)
        q[i] = _mm_add_epi32(_mm_cvtps_epi32(_mm_mul_ps(_mm_loadu_ps(x + c + 4 * i), _mm256_castps256_ps128(inverse))),
                             _mm256_castsi256_si128(zero));
      const __m128i bytes = _mm_packs_epi16(_mm_packs_epi32(q[0], q[1]), _mm_packs_epi32(q[2], q[3]));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + c), bytes);
      // Sums of eight bytes each, with 128 added to every byte.
      const __m128i eights = _mm_sad_epu8(_mm_xor_si128(bytes, _mm_set1_epi8(-128)), _mm_setzero_si128());
      sum += _mm_cvtsi128_si32(eights) + _mm_extract_epi32(eights, 2) - 16 * 128;
      c += 16;
    }
    for (; c < count; c++) {
      out[c] = scale.integer(x[c]);
      sum += out[c];
    }
    return sum;
  }
};

using QuantizerAvx2 = BlockQuantizer<VectorsAvx2>;

}  // namespace
}  // namespace lowbit
