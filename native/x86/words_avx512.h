// 16-bit words of attention on AVX-512 with VNNI. Flags: see scripts/native/build.js.
#pragma once

#include "floats_avx512.h"

namespace lowbit {
namespace {

struct WordsAvx512 : FloatsAvx512 {
  using Floats = FloatsAvx512;
  using Bytes = BytesAvx512Vnni;
  using Words = __m512i;
  // Rows and vectors of columns per product.
  static constexpr uint32_t kWordRows = 12, kWordColumns = 2;

  static Words no_words() { return _mm512_setzero_si512(); }
  static Words load_pairs(const int16_t* p) { return _mm512_loadu_si512(p); }
  static Words broadcast_pair(const int16_t* p) {
    return _mm512_castps_si512(_mm512_set1_ps(*reinterpret_cast<const float*>(p)));
  }
  // In assembly: compilers copy the sums around the intrinsic.
  static Words add_products(Words sum, Words a, Words b) {
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
  }
  static V floats_of(Words sum) { return _mm512_cvtepi32_ps(sum); }
  // Rounds half to even; values are within -32768 .. 32767.
  static void store_words(int16_t* p, V a, V b) {
    const __m512i words = _mm512_packs_epi32(_mm512_cvtps_epi32(a), _mm512_cvtps_epi32(b));
    _mm512_storeu_si512(p, _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), words));
  }
  // store_words with the 128-bit quarters of both vectors interleaved.
  static void store_weights(int16_t* p, V a, V b) {
    _mm512_storeu_si512(p, _mm512_packs_epi32(_mm512_cvtps_epi32(a), _mm512_cvtps_epi32(b)));
  }
  // 2^x for x < 128, relative error 3e-6, and 0 for x < -126: 2^n (1 + f q(f)), |f| <= 1/2 (q is minimax).
  static V exp2(V x) {
    const __mmask16 is_normal = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-126.0f), _CMP_GE_OQ);
    const V n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), f = _mm512_sub_ps(x, n);
    V p = _mm512_set1_ps(9.58285170e-3f);
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.59064266e-2f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.240240987f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.693124193f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
    return _mm512_maskz_scalef_ps(is_normal, p, n);
  }
};

}  // namespace
}  // namespace lowbit
