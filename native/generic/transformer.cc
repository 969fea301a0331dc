// Operators of a transformer block on vectors that every CPU of the architecture has.
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
