// AQLM on AVX-512 for codes of 8 bits and prompts, through tables of sums of 16 rows of x, of which three
// lie in the first cache. Flags: see scripts/native/sources.js.
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

// One size of batches: vectors of 32 rows would fill the first cache with two tables.
constexpr KernelRow kRowTable[] = {
    {"aqlm_lut16_c8_16x64x48_avx512_vnni", "aqlm", "aqlm_tiles8", 0, kAvx2 | kAvx512 | kAvx512Vnni, 16, 64,
     batches_scratch<Batch16Vnni, Batch16Vnni>, batches_prepare<Batch16Vnni, Batch16Vnni>},
};

}  // namespace
}  // namespace aqlm

KernelRows aqlm_lut_rows_avx512_rows() { return {aqlm::kRowTable, sizeof aqlm::kRowTable / sizeof *aqlm::kRowTable}; }

}  // namespace lowbit
