// Attention of prompts by words on AVX-512 with VNNI.
#include "../families/attention/attention_words.h"
#include "../kernel.h"
#include "words_avx512.h"

namespace lowbit {
namespace {

using Words = WordsAvx512;

constexpr KernelRow kRows[] = {LOWBIT_WORDS_ROWS(Words, "avx512_vnni", "32", kAvx2 | kAvx512 | kAvx512Vnni)};

}  // namespace

KernelRows attention_avx512_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
