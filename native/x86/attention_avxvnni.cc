// Attention of prompts by words on AVX-VNNI.
#include "../families/attention/attention_words.h"
#include "../kernel.h"
#include "words_avx2.h"

namespace lowbit {
namespace {

struct DotAvxVnniWords {
  // Compilers keep copies of sums around the intrinsic.
  static __m256i add_products(__m256i sum, __m256i a, __m256i b) {
    __asm__("%{vex%} vpdpwssd %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
    return sum;
  }
};

using Words = WordsAvx2<DotAvxVnniWords>;

constexpr KernelRow kRows[] = {LOWBIT_WORDS_ROWS(Words, "avx_vnni", "16", kAvx2 | kAvxVnni)};

}  // namespace

KernelRows attention_avxvnni_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
