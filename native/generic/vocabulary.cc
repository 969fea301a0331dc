// Sampling kernels over the logits of a vocabulary on the baseline vectors of the architecture.
#include "../families/sampling/vocabulary_rows.h"
#include "../kernel.h"
#include "floats.h"

namespace lowbit {
namespace {

constexpr KernelRow kRows[] = {LOWBIT_VOCABULARY_ROWS(FloatsBaseline, LOWBIT_FLOATS_TARGET, "4", kBaselineNeeds)};

}  // namespace

KernelRows vocabulary_baseline_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
