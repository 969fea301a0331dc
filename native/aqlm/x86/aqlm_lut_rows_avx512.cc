// AQLM on AVX-512 for codes of 8 bits and prompts, through tables of sums of 16 or 32 rows of x. Flags: see
// scripts/native-sources.js.
#include "../../kernel.h"
#include "pair_batch.h"

namespace lowbit {
namespace aqlm {
namespace {

// Sixteen 32-bit words or floats.
struct Lanes16 {
  static constexpr uint32_t kLanes = 16;
  using Words = __m512i;
  using F = __m512;
  static Words set(int32_t word) { return _mm512_set1_epi32(word); }
  static Words load(const int32_t* from) { return _mm512_load_si512(from); }
  static F load(const float* from) { return _mm512_load_ps(from); }
  static void store(float* to, F v) { _mm512_store_ps(to, v); }
  static Words add_pairs(Words sum, Words a, Words b) { return _mm512_dpwssd_epi32(sum, a, b); }
  static F multiply_add(Words a, F b, F c) { return _mm512_fmadd_ps(_mm512_cvtepi32_ps(a), b, c); }
};

struct Sums32 {
  static constexpr uint32_t kRows = 32, kAtOnce = 1;
  using Lanes = Lanes16;
  using V = __m512i;
  static V add(V a, V b) { return _mm512_add_epi16(a, b); }
  // Upper halves of words.
  static V join(const __m512i* words) { return _mm512_mask_blend_epi16(kUpper, _mm512_srli_epi32(words[0], 16), words[1]); }
  // The sums of 16 rows as upper halves of words.
  static __m512i words(V sums, uint32_t index) {
    return index == 0 ? _mm512_slli_epi32(sums, 16) : _mm512_maskz_mov_epi16(kUpper, sums);
  }

 private:
  static constexpr __mmask32 kUpper = 0xaaaaaaaa;
};

using Batch32 = PairBatch<Sums32>;

constexpr KernelRow kRowTable[] = {
    {"aqlm_lut16_c8_16x64x48_avx512_vnni", "aqlm", "aqlm_tiles8", 0, kAvx2 | kAvx512 | kAvx512Vnni, 16, 64,
     batches_scratch<Batch16, Batch32>, batches_prepare<Batch16, Batch32>},
};

}  // namespace
}  // namespace aqlm

KernelRows aqlm_lut_rows_avx512_rows() { return {aqlm::kRowTable, sizeof aqlm::kRowTable / sizeof *aqlm::kRowTable}; }

}  // namespace lowbit
