// AQLM's kernels as a library that the native addon loads: the kernels of all instruction sets, best first.
#include <initializer_list>
#include <vector>

#include "kernel.h"

#if defined(__x86_64__) || defined(_M_X64)
#define LOWBIT_AQLM_TABLES(TABLE)  \
  TABLE(aqlm_amx_rows)             \
  TABLE(aqlm_digits_amx_rows)      \
  TABLE(aqlm_lut_rows_avx512_rows) \
  TABLE(aqlm_avx512vbmi_rows)      \
  TABLE(aqlm_avx512_rows)          \
  TABLE(aqlm_lut_rows_avx2_rows)   \
  TABLE(aqlm_lut_avx2_rows)        \
  TABLE(aqlm_avx2_rows)
#elif defined(__aarch64__)
#define LOWBIT_AQLM_TABLES(TABLE) \
  TABLE(aqlm_bf16_rows)           \
  TABLE(aqlm_lut_rows_neon_rows)  \
  TABLE(aqlm_table_bf16_rows)     \
  TABLE(aqlm_tbl_neon_rows)       \
  TABLE(aqlm_neon_rows)
#endif

namespace lowbit {

// Each table is a function at the end of its kernel file.
#define LOWBIT_DECLARE(table) KernelRows table();
LOWBIT_AQLM_TABLES(LOWBIT_DECLARE)

namespace {

// Concatenates the tables.
std::vector<KernelRow> all_rows() {
  std::vector<KernelRow> rows;
#define LOWBIT_LIST(table) table(),
  for (const KernelRows& table : {LOWBIT_AQLM_TABLES(LOWBIT_LIST)})
    rows.insert(rows.end(), table.rows, table.rows + table.count);
  return rows;
}

}  // namespace
}  // namespace lowbit

extern "C" __attribute__((visibility("default"))) lowbit::KernelLibrary lowbit_kernel_library() {
  // Made at the first call: a binary that has the tables itself may ask before this file's data are initialized.
  static const std::vector<lowbit::KernelRow> all = lowbit::all_rows();
  return {lowbit::kContract, {all.data(), all.size()}};
}
