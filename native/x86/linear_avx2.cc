// panel16 linear layers on AVX2: products of unsigned weights and signed activations by vpmaddubsw, whose 16-bit sums
// are exact for weights under 128, and stay so while several are added if weights are smaller; wider ones are multiplied
// as 16-bit numbers.
#include "../linear/panel16_gemm.h"
#include "../rows.h"
#include "quantize_avx2.h"

namespace lowbit {
namespace {

inline __m256i dot_narrow(__m256i sum, __m256i u, __m256i x) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(u, x), _mm256_set1_epi16(1)));
}

inline __m256i dot_wide(__m256i sum, __m256i u, __m256i x) {
  const __m256i low = _mm256_set1_epi16(255);
  __m256i even = _mm256_madd_epi16(_mm256_and_si256(u, low), _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8));
  __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(u, 8), _mm256_srai_epi16(x, 8));
  return _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
}

struct ShortAvx2 {
  static constexpr bool kShortSums = true;
  static __m256i products(__m256i u, int32_t four) { return _mm256_maddubs_epi16(u, _mm256_set1_epi32(four)); }
  static __m256i add_shorts(__m256i a, __m256i b) { return _mm256_add_epi16(a, b); }
  static __m256i add_pairs(__m256i shorts) { return _mm256_madd_epi16(shorts, _mm256_set1_epi16(1)); }
  static __m256i add(__m256i a, __m256i b) { return _mm256_add_epi32(a, b); }
  // Compilers would compute products of many steps first and spill them.
  static void keep(__m256i& v) { __asm__("" : "+x"(v)); }
};

#define ISA_SHORT ShortAvx2
#define ISA_GEMM_ROWS 4
#define ISA_NAME Avx2
#define ISA_DOT(wide, sum, u, x) ((wide) ? dot_wide(sum, u, x) : dot_narrow(sum, u, x))
#include "linear_avx2.inc"

constexpr KernelRow kRows[] = {
    {"linear_a8_wx_8x16x4_avx2", "linear_a8", "panel16", 0x1fe, kAvx2, 8, 16, packed_gemm_scratch<Avx2>,
     packed_gemm_prepare<Avx2>},
    {"linear_a8_wx_1x64x4_avx2", "linear_a8", "panel16", 0x1fe, kAvx2, 1, 64, packed_linear_scratch,
     packed_linear_prepare<Avx2>},
};

}  // namespace

KernelRows linear_avx2_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
