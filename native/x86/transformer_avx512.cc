// Operators of a transformer block on AVX-512.
#include "../families/vector_rows.h"
#include "../kernel.h"
#include "floats_avx512.h"

namespace lowbit {
namespace {

// Pages without VNNI; attention_avx512.cc has those with it.
constexpr KernelRow kRows[] = {LOWBIT_PAGES_ROWS(FloatsAvx512, "avx512", "16", kAvx2 | kAvx512),
                               LOWBIT_TRANSFORMER_ROWS(FloatsAvx512, "avx512", "16", kAvx2 | kAvx512)};

}  // namespace

KernelRows transformer_avx512_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
