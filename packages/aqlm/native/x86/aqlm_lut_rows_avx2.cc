// AQLM on AVX2 for 8-bit codes and several rows of x, by lookup tables with the sums of 8 or 16 rows per entry. Flags:
// see scripts/native/sources.js.
#include "kernel.h"
#include "pair_batch.h"

namespace lowbit {
namespace aqlm {
namespace {

struct Sums8 {
  static constexpr uint32_t kRows = 8, kAtOnce = 4;
  using Lanes = Lanes8;
  using V = __m128i;
  static V add(V a, V b) { return _mm_add_epi16(a, b); }
  // Joins the upper halves of words.
  static V join(const __m256i* words) {
    const __m256i sums = _mm256_srai_epi32(words[0], 16);
    return _mm_packs_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
  }
  // Sums of 8 rows as upper halves of words.
  static __m256i words(V sums, uint32_t) { return _mm256_slli_epi32(_mm256_cvtepi16_epi32(sums), 16); }
};

using Batch8 = PairBatch<Sums8>;

constexpr KernelRow kRowTable[] = {
    {"aqlm_lut16_c8_4x64x48_avx2", "aqlm", "aqlm_tiles8", 0, kAvx2, 4, 64, batches_scratch<Batch8, Batch16>,
     batches_prepare<Batch8, Batch16>},
};

}  // namespace
}  // namespace aqlm

KernelRows aqlm_lut_rows_avx2_rows() { return {aqlm::kRowTable, sizeof aqlm::kRowTable / sizeof *aqlm::kRowTable}; }

}  // namespace lowbit
