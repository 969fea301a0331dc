// All rows of this binary, best first: the order in which selection prefers them.
#include "rows.h"

#include "aqlm/rows.h"

namespace lowbit {
namespace {

KernelRows (*const kTables[])() = {
#if defined(__x86_64__) || defined(_M_X64)
    linear_amx_rows,
    linear_planes_amx_rows,
    linear_avx512_rows,
    linear_avxvnni_rows,
    linear_avx2_rows,
    linear_float_amx_rows,
    linear_float_avx512_rows,
    linear_float_avx2_rows,
    attention_amx_rows,
    attention_integers_amx_rows,
    transformer_avx512_rows,
    transformer_avx2_rows,
    aqlm_digits_amx_rows,
    aqlm_amx_rows,
    aqlm_avx512vbmi_rows,
    aqlm_avx512_rows,
    aqlm_lut_rows_avx512_rows,
    aqlm_lut_rows_avx2_rows,
    aqlm_lut_avx2_rows,
    aqlm_avx2_rows,
    aqlm_sse2_rows,
    quantize_avx512_rows,
    quantize_avx2_rows,
    measure_avx512_rows,
    measure_avx2_rows,
    measure_amx_rows,
#elif defined(__aarch64__)
    linear_i8mm_rows,
    linear_dotprod_rows,
    linear_neon_rows,
    linear_float_bf16_rows,
    aqlm_bf16_rows,
    aqlm_lut_rows_neon_rows,
    aqlm_tbl_neon_rows,
    aqlm_neon_rows,
#endif
    linear_float_baseline_rows,
    linear_packed_rows,
    transformer_baseline_rows,
    embedding_rows,
    scalar_rows,
    quantize_baseline_rows,
    measure_read_rows,
};

constexpr size_t kOwnTables = sizeof kTables / sizeof *kTables;

// Tables of libraries, behind those of this binary.
constexpr size_t kLibrariesMax = 64;
KernelRows added_tables[kLibrariesMax];
size_t added_count = 0;

}  // namespace

size_t kernel_table_count() { return kOwnTables + added_count; }

KernelRows kernel_rows(size_t index) {
  return index < kOwnTables ? kTables[index]() : added_tables[index - kOwnTables];
}

bool add_kernel_rows(KernelRows rows) {
  if (added_count == kLibrariesMax) return false;
  added_tables[added_count++] = rows;
  return true;
}

}  // namespace lowbit
