// Linear layers with float activations on AVX2: float weights, and panel16 weights.
#include "../families/linear/float_linear.h"
#include "../families/linear/weight_only.h"
#include "../kernel.h"
#include "floats_avx2.h"

namespace lowbit {
namespace {

struct WordsAvx2 : FloatsAvx2 {
  using Words = __m256i;
  // Rows of activations per block for which a panel's weights are converted to floats.
  static constexpr int kPanelRows = 4;

  static Words load_words(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  template <int Shift, uint32_t Mask>
  static Words shift_and(Words v) {
    if constexpr (Shift > 0) v = _mm256_srli_epi32(v, Shift);
    if constexpr (Shift < 0) v = _mm256_slli_epi32(v, -Shift);
    return _mm256_and_si256(v, _mm256_set1_epi32(static_cast<int>(Mask)));
  }
  static Words or_words(Words a, Words b) { return _mm256_or_si256(a, b); }
  static Words load_levels(const int8_t* levels, int count) {
    uint8_t table[16] = {};
    for (int i = 0; i < count; i++) table[i] = static_cast<uint8_t>(levels[i] + 128);
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  }
  static Words lookup(Words table, Words v) { return _mm256_shuffle_epi8(table, v); }
  // Byte `Byte` of each lane plus kByteFloat: the byte becomes the low bits of a float of known exponent.
  static constexpr float kByteFloat = 0x1p23f;
  template <int Byte>
  static V byte_floats(Words v) {
    const __m128i first = _mm_set1_epi32(static_cast<int>(0x80808000) + Byte);
    const __m128i places = _mm_add_epi32(_mm_setr_epi32(0, 4, 8, 12), first);
    const Words bytes = _mm256_shuffle_epi8(v, _mm256_broadcastsi128_si256(places));
    return _mm256_castsi256_ps(_mm256_or_si256(bytes, _mm256_castps_si256(_mm256_set1_ps(kByteFloat))));
  }
};

constexpr uint32_t kNeeds = kAvx2;

constexpr KernelRow kRows[] = {
    {"linear_f32_f32_1x4x8_avx2", "linear_float", nullptr, 0, kNeeds, 1, 4, float_linear_scratch<FloatsAvx2>,
     float_linear_prepare<FloatsAvx2>},
    {"linear_f32_wx_1x16x1_avx2", "linear_weight_only", "panel16", kBits1To8 | kReadsFactors, kNeeds, 1, 16,
     weight_only_panel16_scratch<WordsAvx2>, weight_only_prepare<WordsAvx2>},
};

}  // namespace

KernelRows linear_float_avx2_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
