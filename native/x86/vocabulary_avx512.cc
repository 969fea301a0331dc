// Sampling kernels over the logits of a vocabulary on AVX-512.
#include "../families/sampling/vocabulary_rows.h"
#include "../kernel.h"
#include "floats_avx512.h"

namespace lowbit {
namespace {

constexpr KernelRow kRows[] = {LOWBIT_VOCABULARY_ROWS(FloatsAvx512, "avx512", "16", kAvx2 | kAvx512)};

}  // namespace

KernelRows vocabulary_avx512_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
