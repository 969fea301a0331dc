// The quantizer's rounding on AVX-512.
#include "../families/packing/affine_rows.h"
#include "../families/packing/gptq_blocks.h"
#include "../kernel.h"

namespace lowbit {
namespace {

constexpr KernelRow kRows[] = {LOWBIT_QUANTIZE_ROW("avx512", kAvx512), LOWBIT_GPTQ_ROWS("avx512", kAvx512)};

}  // namespace

KernelRows quantize_avx512_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
