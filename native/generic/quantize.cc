// Weight quantization on the baseline instructions of the architecture: search and GPTQ.
#include "../families/packing/affine_rows.h"
#include "../families/packing/gptq_blocks.h"
#include "../kernel.h"
#include "floats.h"

namespace lowbit {
namespace {

constexpr KernelRow kRows[] = {
    quantize_row<PlainSearch>("quantize_any_wx_1x1x16_" LOWBIT_FLOATS_TARGET, kBaselineNeeds),
    gptq_round_row<PlainSearch>("gptq_round_f32_wx_1x1x128_" LOWBIT_FLOATS_TARGET, kBaselineNeeds),
    gptq_sweep_row("gptq_sweep_f32_wx_1x1x128_" LOWBIT_FLOATS_TARGET, kBaselineNeeds),
};

}  // namespace

KernelRows quantize_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
