// Attention of prompts by words on AVX2.
#include "../families/attention/attention_words.h"
#include "../kernel.h"
#include "words_avx2.h"

namespace lowbit {
namespace {

struct DotAvx2Words {
  static __m256i add_products(__m256i sum, __m256i a, __m256i b) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
  }
};

using Words = WordsAvx2<DotAvx2Words>;

constexpr KernelRow kRows[] = {LOWBIT_WORDS_ROWS(Words, "avx2", "16", kAvx2)};

}  // namespace

KernelRows attention_avx2_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
