// AQLM by lookup tables in f32 on Arm cores with bf16: they load in one cycle as much as TBL looks up in two, and f32
// is more exact.
#include "../table.h"
#include "kernel.h"

namespace lowbit {
namespace aqlm {
namespace {

constexpr KernelRow kRows[] = {
    {"aqlm_f32_c8_1x64x128_neon_bf16", "aqlm", "aqlm_tiles8", 0, kNeon | kBf16, 1, 64, table_scratch, table_prepare},
};

}  // namespace
}  // namespace aqlm

KernelRows aqlm_table_bf16_rows() { return {aqlm::kRows, sizeof aqlm::kRows / sizeof *aqlm::kRows}; }

}  // namespace lowbit
