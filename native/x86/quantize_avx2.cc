// Weight quantization on AVX2: search and GPTQ.
#include "../families/packing/affine_rows.h"
#include "../families/packing/gptq_blocks.h"
#include "../kernel.h"

namespace lowbit {
namespace {

constexpr KernelRow kRows[] = {LOWBIT_QUANTIZE_ROW(PlainSearch, "avx2", kAvx2),
                               LOWBIT_GPTQ_ROWS(PlainSearch, "avx2", kAvx2)};

}  // namespace

KernelRows quantize_avx2_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
