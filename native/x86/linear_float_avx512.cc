// Linear layers with float activations on AVX-512: float weights, and panel16 weights.
#include "../families/linear/float_linear.h"
#include "../families/linear/weight_only.h"
#include "../kernel.h"
#include "floats_avx512.h"

namespace lowbit {
namespace {

struct WordsAvx512 : FloatsAvx512 {
  using Words = __m512i;
  // Rows of activations per block for which a panel's weights are converted to floats.
  static constexpr int kPanelRows = 8;

  static Words load_words(const uint8_t* p) { return _mm512_loadu_si512(p); }
  template <int Shift, uint32_t Mask>
  static Words shift_and(Words v) {
    if constexpr (Shift > 0) v = _mm512_srli_epi32(v, Shift);
    if constexpr (Shift < 0) v = _mm512_slli_epi32(v, -Shift);
    return _mm512_and_si512(v, _mm512_set1_epi32(static_cast<int>(Mask)));
  }
  static Words or_words(Words a, Words b) { return _mm512_or_si512(a, b); }
  static Words load_levels(const int8_t* levels, int count) {
    uint8_t table[16] = {};
    for (int i = 0; i < count; i++) table[i] = static_cast<uint8_t>(levels[i] + 128);
    return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  }
  static Words lookup(Words table, Words v) { return _mm512_shuffle_epi8(table, v); }
  // Byte `Byte` of each lane plus kByteFloat: the byte becomes the low bits of a float of known exponent.
  static constexpr float kByteFloat = 0x1p23f;
  template <int Byte>
  static V byte_floats(Words v) {
    const __m128i first = _mm_set1_epi32(static_cast<int>(0x80808000) + Byte);
    const __m128i places = _mm_add_epi32(_mm_setr_epi32(0, 4, 8, 12), first);
    const Words bytes = _mm512_shuffle_epi8(v, _mm512_broadcast_i32x4(places));
    return _mm512_castsi512_ps(_mm512_or_si512(bytes, _mm512_castps_si512(_mm512_set1_ps(kByteFloat))));
  }
};

constexpr uint32_t kNeeds = kAvx2 | kAvx512;

constexpr KernelRow kRows[] = {
    {"linear_f32_f32_1x4x16_avx512", "linear_float", nullptr, 0, kNeeds, 1, 4, float_linear_scratch<FloatsAvx512>,
     float_linear_prepare<FloatsAvx512>},
    {"linear_f32_wx_1x16x1_avx512", "linear_weight_only", "panel16", kBits1To8 | kReadsFactors, kNeeds, 1, 16,
     weight_only_panel16_scratch<WordsAvx512>, weight_only_prepare<WordsAvx512>},
};

}  // namespace

KernelRows linear_float_avx512_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
