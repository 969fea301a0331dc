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

constexpr uint32_t kNeeds = kAvx2;

constexpr KernelRow kRows[] = {
    {"update_and_attend_f32_32x1x16_avx2", "update_and_attend", nullptr, 0, kNeeds, kWordRowsLeast, 1, words_scratch<Words>,
     words_prepare<Words>},
    {"rope_update_and_attend_f32_32x1x16_avx2", "rope_update_and_attend", nullptr, 0, kNeeds, kWordRowsLeast, 1,
     rope_update_and_attend_scratch<words_scratch<Words>>,
     rope_update_and_attend_prepare<Words::Floats, words_prepare<Words>>},
};

}  // namespace

KernelRows attention_avx2_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
