// Shared by AQLM's products on AMX: transposing x to tiles, codes of half a tile, results from tiles of sums.
#pragma once

#include <immintrin.h>

#include "../codes.h"
#include "x86/split_bf16.h"
#include "x86/tiles_amx.h"

namespace lowbit {
namespace aqlm {
namespace {

// Mask of the first `count` of 16 lanes; all from 16 on.
inline __mmask16 first16(int64_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xffff : count <= 0 ? 0 : (1u << count) - 1);
}

// Codes of one half of a tile as 32 words, times 2^Shift: in a row of one-byte codes those of the halves alternate.
template <int Shift>
inline LOWBIT_INLINE __m512i half_codes(__m512i row, bool second) {
  const __m512i scaled = second ? _mm512_srli_epi16(row, 8 - Shift) : _mm512_slli_epi16(row, Shift);
  return _mm512_and_si512(scaled, _mm512_set1_epi16(0xff << Shift));
}

inline void store_turned(__m512i* rows, uint8_t* tile) {
  transpose16(rows);
  for (uint32_t i = 0; i < 16; i++) _mm512_store_si512(tile + 64 * i, rows[i]);
}

// Scales of 16 outputs from `output` on; 0 outside `mask`.
inline __m512 load_scales(const Arguments& p, uint32_t output, __mmask16 mask) {
  if (p.codes.out_group == 1 && p.half_scales)
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, static_cast<const uint16_t*>(p.scales) + output));
  float scales[16] = {};
  for (uint32_t i = 0; mask >> i != 0; i++)
    scales[i] = float_at(p.scales, p.half_scales, (output + i) / p.codes.out_group);
  return _mm512_loadu_ps(scales);
}

// Stores sums of 16 outputs from `output` on and 16 rows of x from `row` on as results.
inline void write_sums(const Arguments& p, bool stream, uint32_t output, uint32_t row, const float* sums) {
  const uint32_t n = p.codes.n;
  if (output >= n) return;
  const __mmask16 mask = first16(n - output);
  const __m512 scale = load_scales(p, output, mask);
  const __m512 bias = p.bias ? _mm512_maskz_loadu_ps(mask, p.bias + output) : _mm512_setzero_ps();
  __m512i r[16];
  for (int i = 0; i < 16; i++) r[i] = _mm512_load_si512(sums + 16 * i);
  transpose16(r);
  float* y = p.y + size_t{row} * n + output;
  for (uint32_t i = 0; i < 16 && row + i < p.m; i++, y += n) {
    const __m512 value = _mm512_fmadd_ps(_mm512_castsi512_ps(r[i]), scale, bias);
    if (stream) _mm512_stream_ps(y, value);
    else _mm512_mask_storeu_ps(y, mask, value);
  }
}

}  // namespace
}  // namespace aqlm
}  // namespace lowbit
