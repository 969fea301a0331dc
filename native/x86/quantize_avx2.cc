// Weight quantization on AVX2: search and GPTQ.
#include <immintrin.h>

#include "../families/packing/affine_rows.h"
#include "../families/packing/gptq_blocks.h"
#include "../kernel.h"

namespace lowbit {
namespace {

// Finds the nearest level by binary search: one table lookup and one comparison per bit.
template <size_t Count>
struct HalvedLevels {
  static constexpr int kSteps = Count == 4 ? 2 : Count == 8 ? 3 : 4;
  // One table of thresholds per step, indexed by the bits of the level's place that are known; then the levels.
  __m256 tables[kSteps], levels[2];

  HalvedLevels(const int8_t* given, float zero) {
    const Codebook<Count> codebook(given, zero);
    float values[kLanes] = {};
    for (size_t i = 0; i < Count; i++) values[i] = given[i] - zero;
    for (int half = 0; half < 2; half++) levels[half] = _mm256_loadu_ps(values + 8 * half);
    for (int step = 0; step < kSteps; step++) {
      const size_t span = Count >> step;
      for (size_t i = 0; i < Count / span; i++) values[i] = codebook.thresholds[i * span + span / 2 - 1];
      tables[step] = _mm256_loadu_ps(values);
    }
  }
  void round(const LaneFloats& scaled, LaneFloats& q) const {
    __m256 lanes[2];
    memcpy(lanes, &scaled, sizeof lanes);
    for (__m256& x : lanes) x = nearest(x);
    memcpy(&q, lanes, sizeof lanes);
  }

 private:
  __m256 nearest(__m256 x) const {
    __m256i place = _mm256_setzero_si256();
    for (const __m256& table : tables) {
      const __m256 above = _mm256_cmp_ps(x, _mm256_permutevar8x32_ps(table, place), _CMP_GT_OQ);
      place = _mm256_sub_epi32(_mm256_add_epi32(place, place), _mm256_castps_si256(above));
    }
    const __m256 low = _mm256_permutevar8x32_ps(levels[0], place);
    if (Count < 16) return low;
    // Lookups ignore the place's highest bit, which becomes the sign here.
    const __m256 is_high = _mm256_castsi256_ps(_mm256_slli_epi32(place, 28));
    return _mm256_blendv_ps(low, _mm256_permutevar8x32_ps(levels[1], place), is_high);
  }
};

struct Avx2Search {
  template <size_t Count>
  using Levels = HalvedLevels<Count>;
};

constexpr KernelRow kRows[] = {
    quantize_row<Avx2Search>("quantize_any_wx_1x1x16_avx2", kAvx2),
    gptq_round_row<Avx2Search>("gptq_round_f32_wx_1x1x128_avx2", kAvx2),
    gptq_sweep_row("gptq_sweep_f32_wx_1x1x128_avx2", kAvx2),
};

}  // namespace

KernelRows quantize_avx2_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
