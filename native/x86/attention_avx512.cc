// Attention over pages, prefill by 16-bit words, on AVX-512 with VNNI.
#include "../families/attention/attention_words.h"
#include "../kernel.h"
#include "words_avx512.h"

namespace lowbit {
namespace {

using Words = WordsAvx512;

constexpr uint32_t kNeeds = kAvx2 | kAvx512 | kAvx512Vnni;

constexpr KernelRow kRows[] = {
    {"update_and_attend_f32_1x1x32_avx512_vnni", "update_and_attend", nullptr, 0, kNeeds, 1, 1, words_scratch<Words>,
     words_prepare<Words>},
    {"rope_update_and_attend_f32_1x1x32_avx512_vnni", "rope_update_and_attend", nullptr, 0, kNeeds, 1, 1,
     rope_update_and_attend_scratch<words_scratch<Words>>,
     rope_update_and_attend_prepare<Words::Floats, words_prepare<Words>>},
};

}  // namespace

KernelRows attention_avx512_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
