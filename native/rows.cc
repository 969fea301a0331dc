// All rows of this binary, best first: selection takes the first that serves a call, so that of a family's rows with the
// same needs those for more rows of activations come before.
#include "kernel.h"

#include <atomic>

#if defined(__x86_64__) || defined(_M_X64)
#define LOWBIT_OWN_TABLES(table)                                                                                       \
  table(linear_planes_amx_rows)                                                                                        \
  table(linear_amx_rows)                                                                                               \
  table(linear_blocks_avx512_rows)                                                                                     \
  table(linear_avx512_rows)                                                                                            \
  table(linear_avxvnni_rows)                                                                                           \
  table(linear_avx2_rows)                                                                                              \
  table(linear_float_amx_rows)                                                                                         \
  table(linear_float_avx512_rows)                                                                                      \
  table(linear_float_avx2_rows)                                                                                        \
  table(attention_amx_rows)                                                                                            \
  table(attention_integers_amx_rows)                                                                                   \
  table(transformer_avx512_rows)                                                                                       \
  table(transformer_avx2_rows)                                                                                         \
  table(aqlm_amx_rows)                                                                                                 \
  table(aqlm_digits_amx_rows)                                                                                          \
  table(aqlm_lut_rows_avx512_rows)                                                                                     \
  table(aqlm_avx512vbmi_rows)                                                                                          \
  table(aqlm_avx512_rows)                                                                                              \
  table(aqlm_lut_rows_avx2_rows)                                                                                       \
  table(aqlm_lut_avx2_rows)                                                                                            \
  table(aqlm_avx2_rows)                                                                                                \
  table(aqlm_sse2_rows)                                                                                                \
  table(quantize_avx512_rows)                                                                                          \
  table(quantize_avx2_rows)                                                                                            \
  table(measure_avx512_rows)                                                                                           \
  table(measure_avx2_rows)                                                                                             \
  table(measure_amx_rows)
#elif defined(__aarch64__)
#define LOWBIT_OWN_TABLES(table)                                                                                       \
  table(linear_i8mm_rows)                                                                                              \
  table(linear_dotprod_rows)                                                                                           \
  table(linear_neon_rows)                                                                                              \
  table(linear_weight_only_rows)                                                                                       \
  table(linear_float_bf16_rows)                                                                                        \
  table(aqlm_bf16_rows)                                                                                                \
  table(aqlm_lut_rows_neon_rows)                                                                                       \
  table(aqlm_table_bf16_rows)                                                                                          \
  table(aqlm_tbl_neon_rows)                                                                                            \
  table(aqlm_neon_rows)
#else
#define LOWBIT_OWN_TABLES(table)
#endif
#define LOWBIT_COMMON_TABLES(table)                                                                                    \
  table(linear_float_baseline_rows)                                                                                    \
  table(linear_packed_rows)                                                                                            \
  table(transformer_baseline_rows)                                                                                     \
  table(embedding_rows)                                                                                                \
  table(scalar_rows)                                                                                                   \
  table(quantize_baseline_rows)                                                                                        \
  table(measure_read_rows)

namespace lowbit {

// Each table is a function at the end of its kernel file.
#define LOWBIT_DECLARE(table) KernelRows table();
LOWBIT_OWN_TABLES(LOWBIT_DECLARE)
LOWBIT_COMMON_TABLES(LOWBIT_DECLARE)

namespace {

#define LOWBIT_LIST(table) table,
KernelRows (*const kTables[])() = {LOWBIT_OWN_TABLES(LOWBIT_LIST) LOWBIT_COMMON_TABLES(LOWBIT_LIST)};

constexpr size_t kOwnTables = sizeof kTables / sizeof *kTables;

// Tables of libraries, behind those of this binary; any thread reads those that are counted.
constexpr size_t kLibrariesMax = 64;
KernelRows added_tables[kLibrariesMax];
std::atomic<size_t> added_count{0};

}  // namespace

size_t kernel_table_count() { return kOwnTables + added_count; }

KernelRows kernel_rows(size_t index) {
  return index < kOwnTables ? kTables[index]() : added_tables[index - kOwnTables];
}

bool add_kernel_rows(KernelRows rows) {
  const size_t index = added_count;
  if (index == kLibrariesMax) return false;
  added_tables[index] = rows;
  added_count = index + 1;
  return true;
}

}  // namespace lowbit
