// Weight quantization on AVX-512: search and GPTQ.
#include <immintrin.h>

#include "../families/packing/affine_rows.h"
#include "../families/packing/gptq_blocks.h"
#include "../kernel.h"

namespace lowbit {
namespace {

// Finds the nearest level by binary search: one comparison and one table lookup per bit.
template <size_t Count>
struct HalvedLevels {
  static constexpr int kSteps = Count == 4 ? 2 : Count == 8 ? 3 : 4;
  // One table of thresholds per step, indexed by the number of levels known to lie below; then the levels.
  __m512 tables[kSteps], levels;

  HalvedLevels(const int8_t* given, float zero) {
    const Codebook<Count> codebook(given, zero);
    float values[kLanes] = {};
    for (size_t i = 0; i < Count; i++) values[i] = given[i] - zero;
    levels = _mm512_loadu_ps(values);
    for (int step = 0; step < kSteps; step++) {
      const size_t half = Count >> (step + 1);
      for (size_t i = 0; i + half <= Count - 1; i++) values[i] = codebook.thresholds[i + half - 1];
      tables[step] = _mm512_loadu_ps(values);
    }
  }
  void round(const LaneFloats& scaled, LaneFloats& q) const {
    const __m512 x = reinterpret_cast<const __m512&>(scaled);
    __m512i place = _mm512_setzero_si512();
    for (int step = 0; step < kSteps; step++) {
      const __mmask16 above = _mm512_cmp_ps_mask(x, _mm512_permutexvar_ps(place, tables[step]), _CMP_GT_OQ);
      const __m512i half = _mm512_set1_epi32(static_cast<int>(Count >> (step + 1)));
      place = _mm512_mask_add_epi32(place, above, place, half);
    }
    reinterpret_cast<__m512&>(q) = _mm512_permutexvar_ps(place, levels);
  }
};

struct Avx512Search {
  template <size_t Count>
  using Levels = HalvedLevels<Count>;
};

constexpr KernelRow kRows[] = {
    quantize_row<Avx512Search>("quantize_any_wx_1x1x16_avx512", kAvx512),
    gptq_round_row<Avx512Search>("gptq_round_f32_wx_1x1x128_avx512", kAvx512),
    gptq_sweep_row("gptq_sweep_f32_wx_1x1x128_avx512", kAvx512),
};

}  // namespace

KernelRows quantize_avx512_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
