// Codebooks and x as pairs of 16-bit integers, from which multiply-add of pairs builds tables of sums.
#pragma once

#include "../vector_sizes.h"
#include "floats8.h"

namespace lowbit {
namespace aqlm {
namespace {

// Largest rounded value.
constexpr float kWordMax = 32767;
// Bound of the product of a group's and a vector's length, and so of their sum, rounding included.
constexpr float kLengthsMax = 0x1.ffp30f;

static inline size_t prepared_bytes(const Codes& codes) {
  return kSizesBytes + 2 * static_cast<size_t>(codes.codebooks) * codes.in_group * kEntries;
}

// Rounds eight values to multiples of a step that fit 16 bits.
static inline __m128i round8(__m256 values, __m256 inverse_step) {
  const __m256i rounded = _mm256_cvtps_epi32(_mm256_mul_ps(values, inverse_step));
  return _mm_packs_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1));
}

// Rounds vectors, up to `largest` steps, to pairs: [codebooks][in_group / 2][256] if `Turned`, else
// [codebooks][256][in_group / 2]. One work item does all codebooks, which share a step and take some kilobytes each.
template <bool Turned>
void prepare_vectors(const Arguments& p, float largest, const PreparedVectors<int32_t>& prepared) {
  const uint32_t length = p.codes.in_group, pairs = length / 2;
  const __m256 inverse = _mm256_set1_ps(measure_vectors<Avx2>(p, largest, prepared));
  for (size_t vector = 0, i = 0; i < p.codes.vector_values(); vector++) {
    int32_t* target =
        prepared.values + (Turned ? vector / kEntries * pairs * kEntries + vector % kEntries : vector * pairs);
    for (uint32_t j = 0; j < length; j += 8, i += 8) {
      alignas(16) int32_t four[4];
      _mm_store_si128(reinterpret_cast<__m128i*>(four), round8(load8<Avx2>(p, i), inverse));
      for (uint32_t q = 0; q < 4; q++, target += Turned ? kEntries : 1) *target = four[q];
    }
  }
}

// Rounds groups of x to 16-bit integers; returns their step.
static inline float quantize_inputs(const float* x, uint32_t groups, uint32_t length, float longest_vector,
                                    int16_t* values) {
  const uint32_t count = groups * length;
  Magnitudes<Avx2> all;
  for (uint32_t i = 0; i < count; i += 8) all.add(_mm256_loadu_ps(x + i));
  const float largest = all.largest();
  const float longest = longest_square<Avx2>(count, length, 1 / largest, [&](size_t i) { return Avx2::load(x + i); });
  const float by_length = std::sqrt(longest) * longest_vector / kLengthsMax;
  const float step = largest * std::max(1 / kWordMax, by_length) + all.zero();
  const __m256 inverse = _mm256_set1_ps(1 / step);
  for (uint32_t i = 0; i < count; i += 8)
    _mm_store_si128(reinterpret_cast<__m128i*>(values + i), round8(_mm256_loadu_ps(x + i), inverse));
  return step;
}

}  // namespace
}  // namespace aqlm
}  // namespace lowbit
