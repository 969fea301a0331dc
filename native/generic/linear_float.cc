// Linear layers over float weights on the baseline vectors of the architecture.
#include "../families/linear/float_linear.h"
#include "../kernel.h"
#include "floats.h"

namespace lowbit {
namespace {

constexpr KernelRow kRows[] = {
    {"linear_f32_f32_1x4x4_" LOWBIT_FLOATS_TARGET, "linear_float", nullptr, 0, kBaselineNeeds, 1, 4,
     float_linear_scratch<FloatsBaseline>, float_linear_prepare<FloatsBaseline>},
};

}  // namespace

KernelRows linear_float_baseline_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
