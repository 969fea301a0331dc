// Operations of panel16 linear layers on 32-byte vectors, half a panel of 16 rows, for AVX2 and AVX-VNNI, which differ
// in how they multiply (`Dot`).
#pragma once

#include <immintrin.h>

#include <cstring>

#include "quantize_avx2.h"

namespace lowbit {
namespace {

template <class Dot>
struct IsaAvx2 : Dot, QuantizerAvx2 {
  using Bytes = __m256i;
  using Ints = __m256i;
  using Floats = __m256;
  static constexpr int kRows = 8;
  static constexpr int kPanels = 4;
  static constexpr int32_t kLevelOffset = 128;
  static constexpr int kLevelBits = 8;

  template <int Bits>
  static constexpr int32_t offset() {
    return 1 << (Bits - 1);
  }
  static void store_bytes(uint8_t* p, Bytes v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v); }
  static Bytes load_bytes(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  // Prefetch distance in bytes.
  static constexpr size_t kAhead = 4096;
  // Prefetches 32 columns of weights at that distance from p, and one more cache line for the scales among them.
  template <int Bits>
  static void prefetch(const uint8_t* p) {
    for (uint32_t line = 0; line <= Bits; line++)
      _mm_prefetch(reinterpret_cast<const char*>(p + kAhead + 64 * line), _MM_HINT_T1);
  }
  // Prefetches 32 columns of weights a little ahead of p, for streams that the hardware prefetcher follows, too. Always
  // inlined: GCC drops calls of functions without results even if they prefetch.
  template <int Bits, bool>
  static LOWBIT_INLINE void prefetch_near(const uint8_t* p) {
    for (uint32_t line = 0; line <= Bits; line++)
      _mm_prefetch(reinterpret_cast<const char*>(p + 1024 + 64 * line), _MM_HINT_T0);
  }
  template <int Shift, int Mask>
  static Bytes shift_and(Bytes v) {
    if constexpr (Shift > 0) v = _mm256_srli_epi16(v, Shift);
    if constexpr (Shift < 0) v = _mm256_slli_epi16(v, -Shift);
    return Mask == 255 ? v : _mm256_and_si256(v, _mm256_set1_epi8(static_cast<char>(Mask)));
  }
  static Bytes add_bytes(Bytes a, Bytes b) { return _mm256_add_epi8(a, b); }
  static Bytes or_bytes(Bytes a, Bytes b) { return _mm256_or_si256(a, b); }
  template <int Bits>
  static Bytes weight(Bytes u) {
    return u;
  }
  template <int Offset = kLevelOffset>
  static Bytes load_levels(const int8_t* levels, int count) {
    uint8_t table[16] = {};
    for (int i = 0; i < count; i++) table[i] = static_cast<uint8_t>(levels[i] + Offset);
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  }
  static Bytes lookup(Bytes table, Bytes u) { return _mm256_shuffle_epi8(table, u); }
  static Ints broadcast_int(int32_t v) { return _mm256_set1_epi32(v); }
  // Broadcasts as float: compilers merge several integer broadcasts into one load of 128 bits or more.
  static Bytes broadcast_quad(const int8_t* four) {
    return _mm256_castps_si256(_mm256_broadcast_ss(reinterpret_cast<const float*>(four)));
  }
  static Ints scaled_zeros(const uint8_t* zeros, int32_t offset, int32_t factor) {
    __m256i z = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(zeros)));
    return _mm256_mullo_epi32(_mm256_add_epi32(z, _mm256_set1_epi32(offset)), _mm256_set1_epi32(factor));
  }
  // `odd` where a byte is odd, else `even`.
  static Ints odd_ints(const uint8_t* bytes, int32_t odd, int32_t even) {
    const __m256i words = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)));
    const __m256 lowest = _mm256_castsi256_ps(_mm256_slli_epi32(words, 31));
    return _mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(_mm256_set1_epi32(even)),
                                                _mm256_castsi256_ps(_mm256_set1_epi32(odd)), lowest));
  }
  static Floats zero_floats() { return _mm256_setzero_ps(); }
  static Floats broadcast(float v) { return _mm256_set1_ps(v); }
  static Floats to_floats(Ints v) { return _mm256_cvtepi32_ps(v); }
  static Floats load_floats(const void* p) { return _mm256_loadu_ps(static_cast<const float*>(p)); }
  static Floats load_halves(const uint8_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static Floats load_zeros(const uint8_t* zeros) {
    return to_floats(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(zeros))));
  }
  // Exponent and fraction, shifted to their places in a float, are 2^-120 times the number.
  static Floats load_e4m3(const uint8_t* p) {
    const __m256i bytes = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    const __m256i bits = _mm256_and_si256(_mm256_slli_epi32(bytes, 20), _mm256_set1_epi32(kE4m3Bits));
    return _mm256_mul_ps(_mm256_castsi256_ps(bits), _mm256_set1_ps(kE4m3Scale));
  }
  static Floats multiply(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
  static Floats multiply_add(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
  static void store_floats(float* y, Floats v) { _mm256_storeu_ps(y, v); }
  static void store_some_floats(float* y, Floats v, uint32_t count) {
    float all[8];
    _mm256_storeu_ps(all, v);
    for (uint32_t i = 0; i < count; i++) y[i] = all[i];
  }
};

}  // namespace
}  // namespace lowbit
