// AQLM on AVX-512 for 8-bit codes and prefill, by lookup tables with the sums of 16 rows of x per entry; three tables
// fit the first-level cache. Flags: see scripts/native/sources.js.
#include "kernel.h"
#include "pair_batch.h"

namespace lowbit {
namespace aqlm {
namespace {

struct Lanes8Vnni : Lanes8 {
  static Words add_pairs(Words sum, Words a, Words b) { return _mm256_dpwssd_epi32(sum, a, b); }
};

struct Sums16Vnni : Sums16 {
  using Lanes = Lanes8Vnni;
};

using Batch16Vnni = PairBatch<Sums16Vnni>;

// One size of batches: two tables with 32 rows per entry would fill the first-level cache.
constexpr KernelRow kRowTable[] = {
    {"aqlm_lut16_c8_16x64x48_avx512_vnni", "aqlm", "aqlm_tiles8", 0, kAvx2 | kAvx512 | kAvx512Vnni, 16, 64,
     batches_scratch<Batch16Vnni, Batch16Vnni>, batches_prepare<Batch16Vnni, Batch16Vnni>},
};

}  // namespace
}  // namespace aqlm

KernelRows aqlm_lut_rows_avx512_rows() { return {aqlm::kRowTable, sizeof aqlm::kRowTable / sizeof *aqlm::kRowTable}; }

}  // namespace lowbit
