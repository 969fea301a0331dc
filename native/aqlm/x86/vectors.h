// Codebook vectors as floats, on AVX2 with F16C.
#pragma once

#include <immintrin.h>

#include "../../x86/floats_avx2.h"
#include "../codes.h"
#include "floats8.h"

namespace lowbit {
namespace aqlm {
namespace {

static inline __m256 load8(const Arguments& a, size_t at) {
  if (a.half_vectors) return Avx2::load(static_cast<const uint16_t*>(a.vectors) + at);
  return Avx2::load(static_cast<const float*>(a.vectors) + at);
}

// Magnitudes of floats, eight by eight.
struct Magnitudes {
  __m256 peak = _mm256_setzero_ps(), none = _mm256_setzero_ps();
  void add(__m256 v) {
    peak = _mm256_max_ps(peak, _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v));
    none = _mm256_fmadd_ps(v, _mm256_setzero_ps(), none);
  }
  float largest() const { return std::max(FloatsAvx2::largest(peak), 0x1p-100f); }
  // 0, or NaN where a float is not finite: maxima do not tell.
  float zero() const { return Avx2::sum(none); }
};

}  // namespace
}  // namespace aqlm
}  // namespace lowbit
