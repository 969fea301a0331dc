// AQLM in f32 on AVX2 with F16C, for codes without tables: whole vectors for a few rows of x, panels of decoded weights
// for many. Flags: see scripts/native/sources.js.
#include "../float_rows.h"
#include "floats8.h"
#include "kernel.h"

namespace lowbit {
namespace aqlm {
namespace {

constexpr KernelRow kRows[] = {
    LOWBIT_AQLM_FLOAT_ROWS("avx2", kAvx2, Avx2, FloatsAvx2, 64, 16),
};

}  // namespace
}  // namespace aqlm

KernelRows aqlm_avx2_rows() { return {aqlm::kRows, sizeof aqlm::kRows / sizeof *aqlm::kRows}; }

}  // namespace lowbit
