// All kernels of this binary, best first. Selection takes the first that serves a call, so that among a family's
// kernels with the same needs those for more rows of activations come first.
#include "kernel.h"

#include <atomic>

#if defined(__x86_64__) || defined(_M_X64)
#define LOWBIT_OWN_TABLES(TABLE)   \
  TABLE(linear_bf16_amx_rows)      \
  TABLE(linear_planes_amx_rows)    \
  TABLE(linear_amx_rows)           \
  TABLE(linear_gemm_avx512_rows)   \
  TABLE(linear_blocks_avx512_rows) \
  TABLE(linear_avx512_rows)        \
  TABLE(linear_avxvnni_rows)       \
  TABLE(linear_gemm_avx2_rows)     \
  TABLE(linear_avx2_rows)          \
  TABLE(linear_float_amx_rows)     \
  TABLE(linear_float_avx512_rows)  \
  TABLE(linear_float_avx2_rows)    \
  TABLE(attention_amx_rows)        \
  TABLE(recurrence_amx_rows)       \
  TABLE(attention_avx512_rows)     \
  TABLE(transformer_avx512_rows)   \
  TABLE(attention_avxvnni_rows)    \
  TABLE(attention_avx2_rows)       \
  TABLE(transformer_avx2_rows)     \
  TABLE(quantize_avx512_rows)      \
  TABLE(quantize_avx2_rows)        \
  TABLE(vocabulary_avx512_rows)    \
  TABLE(vocabulary_avx2_rows)
#elif defined(__aarch64__)
#define LOWBIT_OWN_TABLES(TABLE) \
  TABLE(linear_sme2_rows)        \
  TABLE(linear_i8mm_rows)        \
  TABLE(linear_dotprod_rows)     \
  TABLE(linear_neon_rows)        \
  TABLE(linear_weight_only_rows) \
  TABLE(linear_float_bf16_rows)
#else
#define LOWBIT_OWN_TABLES(TABLE)
#endif
#define LOWBIT_COMMON_TABLES(TABLE) \
  TABLE(linear_float_baseline_rows) \
  TABLE(linear_packed_rows)         \
  TABLE(transformer_baseline_rows)  \
  TABLE(embedding_rows)             \
  TABLE(scalar_rows)                \
  TABLE(expert_kernel_rows)         \
  TABLE(quantize_rows)              \
  TABLE(pack_rows)                  \
  TABLE(vocabulary_baseline_rows)   \
  TABLE(measure_read_rows)

namespace lowbit {

// Each table is a function at the end of its kernel file.
#define LOWBIT_DECLARE(table) KernelRows table();
LOWBIT_OWN_TABLES(LOWBIT_DECLARE)
LOWBIT_COMMON_TABLES(LOWBIT_DECLARE)

namespace {

#define LOWBIT_LIST(table) table,
KernelRows (*const kTables[])() = {LOWBIT_OWN_TABLES(LOWBIT_LIST) LOWBIT_COMMON_TABLES(LOWBIT_LIST)};

constexpr size_t kOwnTables = sizeof kTables / sizeof *kTables;

// Tables of loaded libraries, after those of this binary; any thread reads those that are counted.
constexpr size_t kLibrariesMax = 64;
KernelRows added_tables[kLibrariesMax];
std::atomic<size_t> added_count{0};

}  // namespace

size_t kernel_table_count() { return kOwnTables + added_count; }

KernelRows kernel_rows(size_t index) {
  return index < kOwnTables ? kTables[index]() : added_tables[index - kOwnTables];
}

const KernelRow* kernel_row(uint32_t index) {
  for (size_t t = 0; t < kernel_table_count(); t++) {
    const KernelRows table = kernel_rows(t);
    if (index < table.count) return &table.rows[index];
    index -= static_cast<uint32_t>(table.count);
  }
  return nullptr;
}

bool add_kernel_rows(KernelRows rows) {
  const size_t index = added_count;
  if (index == kLibrariesMax) return false;
  added_tables[index] = rows;
  added_count = index + 1;
  return true;
}

}  // namespace lowbit
