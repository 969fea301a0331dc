// Attention over pages, prefill by 16-bit words, on AVX2.
#include "../families/attention/attention_words.h"
#include "../kernel.h"
#include "words_avx2.h"

namespace lowbit {
namespace {

struct DotAvx2Words {
  // In assembly: compilers would compute the products of many rows first and keep the sums in memory.
  static __m256i add_products(__m256i sum, __m256i a, __m256i b) {
    __m256i products;
    __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(products) : "x"(a), "x"(b));
    return sum;
  }
};

using Words = WordsAvx2<DotAvx2Words>;

constexpr uint32_t kNeeds = kAvx2;

constexpr KernelRow kRows[] = {
    {"update_and_attend_f32_1x1x16_avx2", "update_and_attend", nullptr, 0, kNeeds, 1, 1, words_scratch<Words>,
     words_prepare<Words>},
    {"rope_update_and_attend_f32_1x1x16_avx2", "rope_update_and_attend", nullptr, 0, kNeeds, 1, 1,
     rope_update_and_attend_scratch<words_scratch<Words>>,
     rope_update_and_attend_prepare<Words::Floats, words_prepare<Words>>},
};

}  // namespace

KernelRows attention_avx2_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
