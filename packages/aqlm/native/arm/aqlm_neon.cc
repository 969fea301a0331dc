// AQLM on NEON.
#include "../float_rows.h"
#include "floats8.h"
#include "generic/floats.h"
#include "kernel.h"

namespace lowbit {
namespace aqlm {
namespace {

constexpr KernelRow kRows[] = {
    LOWBIT_AQLM_FLOAT_ROWS("neon", kNeon, Neon, FloatsBaseline, 16, 8),
};

}  // namespace
}  // namespace aqlm

KernelRows aqlm_neon_rows() { return {aqlm::kRows, sizeof aqlm::kRows / sizeof *aqlm::kRows}; }

}  // namespace lowbit
