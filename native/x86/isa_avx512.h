// Operations of panel16 linear layers on AVX-512 VNNI: a 64-byte vector is 16 rows of 4 weights.
// Flags: see scripts/native/build.js.
#pragma once

#include <immintrin.h>

#include "../families/linear/panel16_linear.h"
#include "quantize_avx512.h"

namespace lowbit {
namespace {

struct Avx512Vnni : NoShortSums, QuantizerAvx512 {
  using Bytes = __m512i;
  using Ints = __m512i;
  using Floats = __m512;
  static constexpr int kRows = 16;
  // Panels read side by side, a stream from memory each.
  static constexpr int kPanels = 4;
  static constexpr bool kStreams = true;
  // vpdpbusd takes weights unsigned: levels are stored with 128 added.
  static constexpr int32_t kLevelOffset = 128;

  template <int Bits>
  static constexpr int32_t offset() {
    return 1 << (Bits - 1);
  }
  // Rows of a GEMM block by 32 columns: its sums, totals, weights and activations fill the registers.
  static constexpr int kGemmRows = 6;
  static void store_bytes(uint8_t* p, Bytes v) { _mm512_storeu_si512(p, v); }
  static Bytes load_bytes(const uint8_t* p) { return _mm512_loadu_si512(p); }
  // Prefetch distance in bytes.
  static constexpr size_t kAhead = 1024;
  // Prefetches 32 columns of weights at that distance from p, and one more cache line for the scales among them. Always
  // inlined: GCC drops calls of functions without results even if they prefetch.
  template <int Bits>
  static LOWBIT_INLINE void prefetch(const uint8_t* p) {
    for (uint32_t line = 0; line <= Bits; line++)
      _mm_prefetch(reinterpret_cast<const char*>(p + kAhead + 64 * line), _MM_HINT_T0);
  }
  // prefetch() for streams. With one row of activations it fetches into the second-level cache: Zen 4 reads a fifth
  // faster that way.
  template <int Bits, bool OneRow>
  static LOWBIT_INLINE void prefetch_near(const uint8_t* p) {
    if (!OneRow) return prefetch<Bits>(p);
    for (uint32_t line = 0; line <= Bits; line++)
      _mm_prefetch(reinterpret_cast<const char*>(p + kAhead + 64 * line), _MM_HINT_T1);
  }
  static Bytes broadcast_quad(const int8_t* four) {
    return _mm512_castps_si512(_mm512_broadcastss_ps(_mm_load_ss(reinterpret_cast<const float*>(four))));
  }
  static Ints add(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
  static Ints dot_wide(Ints sum, Bytes u, Bytes x) { return _mm512_dpbusd_epi32(sum, u, x); }
  template <int Shift, int Mask>
  static Bytes shift_and(Bytes v) {
    if constexpr (Shift > 0) v = _mm512_srli_epi16(v, Shift);
    if constexpr (Shift < 0) v = _mm512_slli_epi16(v, -Shift);
    return Mask == 255 ? v : _mm512_and_si512(v, _mm512_set1_epi8(static_cast<char>(Mask)));
  }
  static Bytes add_bytes(Bytes a, Bytes b) { return _mm512_add_epi8(a, b); }
  static Bytes or_bytes(Bytes a, Bytes b) { return _mm512_or_si512(a, b); }
  template <int Bits>
  static Bytes weight(Bytes u) {
    return u;
  }
  static Bytes load_levels(const int8_t* levels, int count) {
    uint8_t table[16] = {};
    for (int i = 0; i < count; i++) table[i] = static_cast<uint8_t>(levels[i] + 128);
    return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  }
  static Bytes lookup(Bytes table, Bytes u) { return _mm512_shuffle_epi8(table, u); }
  static Ints broadcast_int(int32_t v) { return _mm512_set1_epi32(v); }
  static Ints scaled_zeros(const uint8_t* zeros, int32_t offset, int32_t factor) {
    __m512i z = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(zeros)));
    return _mm512_mullo_epi32(_mm512_add_epi32(z, _mm512_set1_epi32(offset)), _mm512_set1_epi32(factor));
  }
  // `odd` where a byte is odd, else `even`.
  static Ints odd_ints(const uint8_t* bytes, int32_t odd, int32_t even) {
    const __m128i all = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
    return _mm512_mask_set1_epi32(_mm512_set1_epi32(even), _mm_test_epi8_mask(all, _mm_set1_epi8(1)), odd);
  }
  template <bool Wide>
  static Ints dot(Ints sum, Bytes u, int32_t four) {
    return _mm512_dpbusd_epi32(sum, u, _mm512_set1_epi32(four));
  }
  static Floats zero_floats() { return _mm512_setzero_ps(); }
  static Floats broadcast(float v) { return _mm512_set1_ps(v); }
  static Floats to_floats(Ints v) { return _mm512_cvtepi32_ps(v); }
  static Floats load_floats(const uint8_t* p) { return _mm512_loadu_ps(p); }
  static Floats load_halves(const uint8_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static Floats load_zeros(const uint8_t* zeros) {
    return to_floats(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(zeros))));
  }
  static Floats load_e4m3(const uint8_t* p) {
    const __m512i bytes = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const __m512i bits = _mm512_and_si512(_mm512_slli_epi32(bytes, 20), _mm512_set1_epi32(kE4m3Bits));
    return _mm512_mul_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(kE4m3Scale));
  }
  static Floats multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  static Floats multiply_add(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  static void store_floats(float* y, Floats v) { _mm512_storeu_ps(y, v); }
  static void store_some_floats(float* y, Floats v, uint32_t count) {
    _mm512_mask_storeu_ps(y, static_cast<__mmask16>((1u << count) - 1), v);
  }
};

}  // namespace
}  // namespace lowbit
