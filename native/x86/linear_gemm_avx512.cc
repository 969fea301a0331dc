// panel16 GEMM on AVX-512 VNNI. Flags: see scripts/native/sources.js.
#include "../families/linear/panel16_gemm.h"
#include "../kernel.h"
#include "isa_avx512.h"

namespace lowbit {
namespace {

constexpr uint32_t kNeeds = kAvx2 | kAvx512 | kAvx512Vnni;

constexpr KernelRow kRows[] = {
    {"linear_a8_wx_16x32x4_avx512_vnni", "linear_a8", "panel16", kBits1To8 | kReadsMinima, kNeeds, 16, 32,
     packed_gemm_scratch<Avx512Vnni, Granularity::kRow>, packed_gemm_prepare<Avx512Vnni, Granularity::kRow>},
    {"linear_a8b32_wx_16x32x4_avx512_vnni", "linear_a8b32", "panel16", kBits1To8 | kReadsMinima, kNeeds, 16, 32,
     packed_gemm_scratch<Avx512Vnni, Granularity::kBlock>, packed_gemm_prepare<Avx512Vnni, Granularity::kBlock>},
};

}  // namespace

KernelRows linear_gemm_avx512_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
