// The quantizer's rounding and packing on what every CPU of the architecture has.
#include "../kernel.h"
#include "../quantize/affine_rows.h"
#include "../quantize/pack_panels.h"
#include "floats.h"

namespace lowbit {
namespace {

constexpr KernelRow kRows[] = {LOWBIT_QUANTIZE_ROW(LOWBIT_FLOATS_TARGET, kBaselineNeeds),
                               LOWBIT_PACK_ROWS(LOWBIT_FLOATS_TARGET)};

}  // namespace

KernelRows quantize_baseline_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
