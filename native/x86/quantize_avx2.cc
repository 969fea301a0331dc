// Weight quantization on AVX2: search and GPTQ.
#include "../families/packing/affine_rows.h"
#include "../families/packing/gptq_blocks.h"
#include "../kernel.h"

namespace lowbit {
namespace {

constexpr KernelRow kRows[] = {
    quantize_row<PlainSearch>("quantize_any_wx_1x1x16_avx2", kAvx2),
    gptq_round_row<PlainSearch>("gptq_round_f32_wx_1x1x128_avx2", kAvx2),
    gptq_sweep_row("gptq_sweep_f32_wx_1x1x128_avx2", kAvx2),
};

}  // namespace

KernelRows quantize_avx2_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
