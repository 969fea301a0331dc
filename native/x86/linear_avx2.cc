// panel16 linear layers on AVX2 for few rows of activations (GEMV).
#include "../kernel.h"
#include "dot_avx2.h"

namespace lowbit {
namespace {

constexpr KernelRow kRows[] = {
    {"linear_a8_wx_1x64x4_avx2", "linear_a8", "panel16", kBits1To8 | kReadsMinima, kAvx2, 1, 64,
     packed_linear_scratch<Granularity::kRow>, packed_linear_prepare<Avx2, Granularity::kRow>},
    {"linear_a8b32_wx_1x64x4_avx2", "linear_a8b32", "panel16", kBits1To8 | kReadsMinima, kAvx2, 1, 64,
     packed_linear_scratch<Granularity::kBlock>, packed_linear_prepare<Avx2, Granularity::kBlock>},
};

}  // namespace

KernelRows linear_avx2_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
