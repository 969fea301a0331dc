// panel16 linear layers on AVX-VNNI: AVX2 with vpdpbusd on 32-byte vectors.
#include "../families/linear/panel16_gemm.h"
#include "../kernel.h"
#include "isa_avx2.h"

namespace lowbit {
namespace {

struct DotAvxVnni : NoShortSums {
  static constexpr int kGemmRows = 6;
  template <bool Wide>
  static __m256i dot(__m256i sum, __m256i u, int32_t four) {
    return dot_wide(sum, u, _mm256_set1_epi32(four));
  }
  static __m256i dot_wide(__m256i sum, __m256i u, __m256i x) { return _mm256_dpbusd_avx_epi32(sum, u, x); }
};

using AvxVnni = IsaAvx2<DotAvxVnni>;

constexpr KernelRow kRows[] = {
    {"linear_a8_wx_16x16x4_avx_vnni", "linear_a8", "panel16", kBits1To8 | kReadsMinima, kAvx2 | kAvxVnni, 16, 16,
     packed_gemm_scratch<AvxVnni, Granularity::kRow>, packed_gemm_prepare<AvxVnni, Granularity::kRow>},
    {"linear_a8_wx_1x64x4_avx_vnni", "linear_a8", "panel16", kBits1To8 | kReadsMinima, kAvx2 | kAvxVnni, 1, 64,
     packed_linear_scratch<Granularity::kRow>, packed_linear_prepare<AvxVnni, Granularity::kRow>},
    {"linear_a8b32_wx_16x16x4_avx_vnni", "linear_a8b32", "panel16", kBits1To8 | kReadsMinima, kAvx2 | kAvxVnni, 16, 16,
     packed_gemm_scratch<AvxVnni, Granularity::kBlock>, packed_gemm_prepare<AvxVnni, Granularity::kBlock>},
    {"linear_a8b32_wx_1x64x4_avx_vnni", "linear_a8b32", "panel16", kBits1To8 | kReadsMinima, kAvx2 | kAvxVnni, 1, 64,
     packed_linear_scratch<Granularity::kBlock>, packed_linear_prepare<AvxVnni, Granularity::kBlock>},
};

}  // namespace

KernelRows linear_avxvnni_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
