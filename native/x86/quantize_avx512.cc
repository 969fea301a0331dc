// The quantizer's rounding on AVX-512.
#include "../kernel.h"
#include "../quantize/affine_rows.h"

namespace lowbit {
namespace {

constexpr KernelRow kRows[] = {LOWBIT_QUANTIZE_ROW("avx512", kAvx512)};

}  // namespace

KernelRows quantize_avx512_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
