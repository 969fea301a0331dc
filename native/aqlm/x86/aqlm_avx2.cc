// AQLM in float32 on AVX2 with F16C, for codes without tables: whole vectors for a few rows of x, panels of decoded weights
// for many. Flags: see scripts/native-sources.js.
#include <immintrin.h>

#include "../../x86/floats_avx2.h"
#include "../codeword.h"
#include "../float_gemm.h"
#include "../rows.h"
#include "floats8.h"

namespace lowbit {
namespace aqlm {
namespace {

constexpr KernelRow kRows[] = {
    {"aqlm_f32_cx_1x64x128_avx2", "aqlm", "aqlm_tiles", 0, kAvx2, 1, 64, codeword_scratch<Avx2>, codeword_prepare<Avx2>},
    {"aqlm_f32_cx_16x16x1_avx2", "aqlm", "aqlm_tiles", 0, kAvx2, 16, 16, float_gemm_scratch<FloatsAvx2>,
     float_gemm_prepare<FloatsAvx2>},
};

}  // namespace
}  // namespace aqlm

KernelRows aqlm_avx2_rows() { return {aqlm::kRows, sizeof aqlm::kRows / sizeof *aqlm::kRows}; }

}  // namespace lowbit
