// AQLM for many rows of x on AVX-512. Flags: see scripts/native-sources.js.
#include <immintrin.h>

#include "../../x86/floats_avx512.h"
#include "../float_gemm.h"
#include "../rows.h"

namespace lowbit {
namespace aqlm {
namespace {

constexpr uint32_t kNeeds = kAvx2 | kAvx512;

constexpr KernelRow kRows[] = {
    {"aqlm_f32_c8_16x32x1_avx512", "aqlm", "aqlm_tiles8", 0, kNeeds, 16, 32, float_gemm_scratch<FloatsAvx512>,
     float_gemm_prepare<FloatsAvx512>},
    {"aqlm_f32_cx_16x32x1_avx512", "aqlm", "aqlm_tiles", 0, kNeeds, 16, 32, float_gemm_scratch<FloatsAvx512>,
     float_gemm_prepare<FloatsAvx512>},
};

}  // namespace
}  // namespace aqlm

KernelRows aqlm_avx512_rows() { return {aqlm::kRows, sizeof aqlm::kRows / sizeof *aqlm::kRows}; }

}  // namespace lowbit
