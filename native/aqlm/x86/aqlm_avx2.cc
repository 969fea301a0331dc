// AQLM on AVX2 with F16C. Flags: see scripts/native-sources.js.
#include <immintrin.h>

#include "../../x86/floats_avx2.h"
#include "../float_rows.h"
#include "../rows.h"
#include "floats8.h"

namespace lowbit {
namespace aqlm {
namespace {

constexpr KernelRow kRows[] = {
    LOWBIT_AQLM_FLOAT_ROWS("avx2", kAvx2, Avx2, FloatsAvx2, 16)};

}  // namespace
}  // namespace aqlm

KernelRows aqlm_avx2_rows() { return {aqlm::kRows, sizeof aqlm::kRows / sizeof *aqlm::kRows}; }

}  // namespace lowbit
