// Sampling kernels over the logits of a vocabulary on AVX2.
#include "../families/sampling/vocabulary_rows.h"
#include "../kernel.h"
#include "floats_avx2.h"

namespace lowbit {
namespace {

constexpr KernelRow kRows[] = {LOWBIT_VOCABULARY_ROWS(FloatsAvx2, "avx2", "8", kAvx2)};

}  // namespace

KernelRows vocabulary_avx2_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
