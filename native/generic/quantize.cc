// Weight quantization and packing on the baseline instructions of the architecture.
#include "../families/packing/affine_rows.h"
#include "../families/packing/gptq_blocks.h"
#include "../families/packing/pack_panels.h"
#include "../kernel.h"
#include "floats.h"

namespace lowbit {
namespace {

constexpr KernelRow kRows[] = {LOWBIT_QUANTIZE_ROW(PlainSearch, LOWBIT_FLOATS_TARGET, kBaselineNeeds),
                               LOWBIT_GPTQ_ROWS(PlainSearch, LOWBIT_FLOATS_TARGET, kBaselineNeeds),
                               LOWBIT_PACK_ROWS(LOWBIT_FLOATS_TARGET)};

}  // namespace

KernelRows quantize_baseline_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
