// Attention over pages, prefill by 16-bit words, on AVX-VNNI.
#include "../families/attention/attention_words.h"
#include "../kernel.h"
#include "words_avx2.h"

namespace lowbit {
namespace {

struct DotAvxVnniWords {
  // In assembly: compilers copy the sums around the intrinsic.
  static __m256i add_products(__m256i sum, __m256i a, __m256i b) {
    __asm__("%{vex%} vpdpwssd %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
    return sum;
  }
};

using Words = WordsAvx2<DotAvxVnniWords>;

constexpr uint32_t kNeeds = kAvx2 | kAvxVnni;

constexpr KernelRow kRows[] = {
    {"update_and_attend_f32_1x1x16_avx_vnni", "update_and_attend", nullptr, 0, kNeeds, 1, 1, words_scratch<Words>,
     words_prepare<Words>},
    {"rope_update_and_attend_f32_1x1x16_avx_vnni", "rope_update_and_attend", nullptr, 0, kNeeds, 1, 1,
     rope_update_and_attend_scratch<words_scratch<Words>>,
     rope_update_and_attend_prepare<Words::Floats, words_prepare<Words>>},
};

}  // namespace

KernelRows attention_avxvnni_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
