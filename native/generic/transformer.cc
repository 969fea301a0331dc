// Operators of a transformer block on the baseline vectors of the architecture.
#include "../families/vector_rows.h"
#include "../kernel.h"
#include "floats.h"

namespace lowbit {
namespace {

constexpr KernelRow kRows[] = {LOWBIT_PAGES_ROWS(FloatsBaseline, LOWBIT_FLOATS_TARGET, "4", kBaselineNeeds),
                               LOWBIT_TRANSFORMER_ROWS(FloatsBaseline, LOWBIT_FLOATS_TARGET, "4", kBaselineNeeds)};

}  // namespace

KernelRows transformer_baseline_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
