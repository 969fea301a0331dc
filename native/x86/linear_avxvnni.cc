// panel16 linear layers on AVX-VNNI: AVX2 with vpdpbusd on 32-byte vectors.
#include <immintrin.h>

#include "../linear/panel16_linear.h"
#include "../rows.h"

namespace lowbit {
namespace {

#define ISA_NAME AvxVnni
#define ISA_DOT(wide, sum, u, x) _mm256_dpbusd_avx_epi32(sum, u, x)
#include "linear_avx2.inc"

constexpr KernelRow kRows[] = {
    {"linear_a8_wx_1x64x4_avx_vnni", "linear_a8", "panel16", 0x1fe, kAvx2 | kAvxVnni, 1, 64, packed_linear_scratch,
     packed_linear_prepare<AvxVnni>},
};

}  // namespace

KernelRows linear_avxvnni_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
