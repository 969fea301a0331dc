// AQLM in f32 on AVX-512: whole vectors for a few rows of x, panels of decoded weights for many. Flags: see
// scripts/native/sources.js.
#include <immintrin.h>

#include "../codeword.h"
#include "../float_gemm.h"
#include "floats8.h"
#include "kernel.h"
#include "x86/floats_avx512.h"

namespace lowbit {
namespace aqlm {
namespace {

// Vectors of two outputs at a time.
struct OutputPairs {
  static constexpr uint32_t kOutputs = 2;
  using V = __m512;
  static V zero() { return _mm512_setzero_ps(); }
  static V load(const float* vectors, const uint32_t* offsets) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(Avx2::load(vectors + offsets[0])),
                              Avx2::load(vectors + offsets[1]), 1);
  }
  static V load(const uint16_t* vectors, const uint32_t* offsets) {
    const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(vectors + offsets[0]));
    const __m128i second = _mm_loadu_si128(reinterpret_cast<const __m128i*>(vectors + offsets[1]));
    return _mm512_cvtph_ps(_mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1));
  }
  static V load_x(const float* x) { return _mm512_broadcast_f32x8(_mm256_loadu_ps(x)); }
  static V multiply_add(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
  static void store_sums(V sums, float* to) {
    to[0] = Avx2::sum(_mm512_castps512_ps256(sums));
    to[1] = Avx2::sum(_mm512_extractf32x8_ps(sums, 1));
  }
};

constexpr uint32_t kNeeds = kAvx2 | kAvx512;

// Whole vectors are faster than panels up to some 64 rows: at 16, with 16-bit codes, 16 ms against 56.

constexpr KernelRow kRows[] = {
    {"aqlm_f32_cx_64x32x1_avx512", "aqlm", "aqlm_tiles", 0, kNeeds, 64, 32, float_gemm_scratch<FloatsAvx512>,
     float_gemm_prepare<FloatsAvx512>},
    {"aqlm_f32_cx_1x64x128_avx512", "aqlm", "aqlm_tiles", 0, kNeeds, 1, 64, codeword_scratch<Avx2>,
     codeword_prepare<Avx2, OutputPairs>},
};

}  // namespace
}  // namespace aqlm

KernelRows aqlm_avx512_rows() { return {aqlm::kRows, sizeof aqlm::kRows / sizeof *aqlm::kRows}; }

}  // namespace lowbit
