// Eight floats on AVX2 with F16C for codeword.h.
#pragma once

#include <immintrin.h>

#include "x86/floats_avx2.h"

namespace lowbit {
namespace aqlm {
namespace {

struct Avx2 {
  static constexpr bool kConverts = true;
  using F8 = __m256;
  static F8 zero() { return _mm256_setzero_ps(); }
  static F8 set(float v) { return _mm256_set1_ps(v); }
  static F8 load(const float* p) { return _mm256_loadu_ps(p); }
  static F8 load(const uint16_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
  static F8 add(F8 a, F8 b) { return _mm256_add_ps(a, b); }
  static F8 multiply_add(F8 a, F8 b, F8 c) { return _mm256_fmadd_ps(a, b, c); }
  static F8 larger_magnitude(F8 peak, F8 v) { return _mm256_max_ps(peak, _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v)); }
  static float largest(F8 a) { return FloatsAvx2::largest(a); }
  static float sum(F8 a) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }
};

}  // namespace
}  // namespace aqlm
}  // namespace lowbit
