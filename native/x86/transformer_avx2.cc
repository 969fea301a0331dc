// Operators of a transformer block on AVX2.
#include "../families/vector_rows.h"
#include "../kernel.h"
#include "floats_avx2.h"

namespace lowbit {
namespace {

constexpr KernelRow kRows[] = {LOWBIT_TRANSFORMER_ROWS(FloatsAvx2, "avx2", "8", kAvx2)};

}  // namespace

KernelRows transformer_avx2_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
