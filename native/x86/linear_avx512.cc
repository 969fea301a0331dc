// panel16 linear layers on AVX-512 VNNI for few rows of activations (GEMV). Flags: see scripts/native/sources.js.
#include "../families/linear/panel16_linear.h"
#include "../kernel.h"
#include "isa_avx512.h"

namespace lowbit {
namespace {

constexpr uint32_t kNeeds = kAvx2 | kAvx512 | kAvx512Vnni;

constexpr KernelRow kRows[] = {
    {"linear_a8_wx_1x64x4_avx512_vnni", "linear_a8", "panel16", kBits1To8 | kReadsMinima, kNeeds, 1, 64,
     packed_linear_scratch<Granularity::kRow>, packed_linear_prepare<Avx512Vnni, Granularity::kRow>},
    {"linear_a8b32_wx_1x64x4_avx512_vnni", "linear_a8b32", "panel16", kBits1To8 | kReadsMinima, kNeeds, 1, 64,
     packed_linear_scratch<Granularity::kBlock>, packed_linear_prepare<Avx512Vnni, Granularity::kBlock>},
};

}  // namespace

KernelRows linear_avx512_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
