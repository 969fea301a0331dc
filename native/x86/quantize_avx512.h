// Dynamic int8 quantization of activations on AVX-512, bit for bit as src/kernels/families/linear/activations.ts.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "../families/linear/panel16_linear.h"

namespace lowbit {
namespace {

inline __mmask16 first_lanes(int count) {
  return static_cast<__mmask16>(count >= 16 ? 0xffff : count <= 0 ? 0 : (1u << count) - 1);
}

// Prefetches the row after x, too, so that memory is waited for once and not in both passes over a row.
inline ActivationScale row_activation_scale(const float* x, uint32_t k) {
  constexpr int kChains = 4;
  __m512i low[kChains], high[kChains];
  for (int i = 0; i < kChains; i++) {
    low[i] = _mm512_set1_epi32(static_cast<int32_t>(kLowestStart));
    high[i] = _mm512_set1_epi32(kHighestStart);
  }
  uint32_t c = 0;
  for (; c + 16 * kChains <= k; c += 16 * kChains)
    for (int i = 0; i < kChains; i++) {
      const __m512i v = _mm512_loadu_si512(x + c + 16 * i);
      _mm_prefetch(reinterpret_cast<const char*>(x + k + c + 16 * i), _MM_HINT_T0);
      low[i] = _mm512_max_epu32(v, low[i]);
      high[i] = _mm512_max_epi32(v, high[i]);
    }
  for (; c < k; c += 16) {
    const __m512i v = _mm512_maskz_loadu_epi32(first_lanes(static_cast<int>(k - c)), x + c);
    low[0] = _mm512_max_epu32(v, low[0]);
    high[0] = _mm512_max_epi32(v, high[0]);
  }
  const __m512i lows = _mm512_max_epu32(_mm512_max_epu32(low[0], low[1]), _mm512_max_epu32(low[2], low[3]));
  const __m512i highs = _mm512_max_epi32(_mm512_max_epi32(high[0], high[1]), _mm512_max_epi32(high[2], high[3]));
  return activation_scale(_mm512_reduce_max_epu32(lows), _mm512_reduce_max_epi32(highs));
}

inline int32_t sum_lanes(__m256i v) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

struct RowQuantizer {
  explicit RowQuantizer(const ActivationScale& row)
      : inverse(_mm512_set1_ps(row.inverse)),
        zero(_mm512_set1_epi32(row.zero)) {}

  __m512i integers(__m512 v) const { return _mm512_add_epi32(_mm512_cvtps_epi32(_mm512_mul_ps(v, inverse)), zero); }
  // Quantizes 32 values; all but the first `count` become 0.
  __m256i some(const float* x, int count) const {
    const __mmask16 a = first_lanes(count), b = first_lanes(count - 16);
    return _mm256_set_m128i(_mm512_maskz_cvtsepi32_epi8(b, integers(_mm512_maskz_loadu_ps(b, x + 16))),
                            _mm512_maskz_cvtsepi32_epi8(a, integers(_mm512_maskz_loadu_ps(a, x))));
  }
  __m256i all(const float* x) const {
    const __m512i words = _mm512_packs_epi32(integers(_mm512_loadu_ps(x)), integers(_mm512_loadu_ps(x + 16)));
    const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    return _mm512_cvtsepi16_epi8(_mm512_permutexvar_epi64(order, words));
  }

  __m512 inverse;
  __m512i zero;
};

// Quantizes the first `count` values of x to `length` places, zeros after them; returns the sum of the integers.
template <bool Sums, class Target>
inline int32_t quantize_run(const RowQuantizer& quantizer, const float* x, int count, uint32_t length, Target& target) {
  __m256i sum = _mm256_setzero_si256();
  auto put = [&](__m256i q) LOWBIT_INLINE {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target.next()), q);
    if (Sums) sum = _mm256_dpbusd_epi32(sum, _mm256_set1_epi8(1), q);
  };
  int c = 0;
  for (; c + 64 <= count; c += 64) {
    put(quantizer.all(x + c));
    put(quantizer.all(x + c + 32));
  }
  for (; c + 32 <= count; c += 32) put(quantizer.all(x + c));
  for (; c < static_cast<int>(length); c += 32) put(quantizer.some(x + c, count - c));
  return Sums ? sum_lanes(sum) : 0;
}

// Quantizes one row. `target.next()` gives the place of the next 32 integers; groups are padded with zeros. `sums`,
// unless null, receives the sum of each group's integers.
template <class Target, class Sums>
inline ActivationScale quantize_row(const float* x, const Panel16& w, Target target, Sums sums) {
  constexpr bool kSums = !std::is_same_v<Sums, std::nullptr_t>;
  const ActivationScale row = row_activation_scale(x, w.k);
  const RowQuantizer quantizer(row);
  if (!kSums && w.group_length == w.group_size) {
    quantize_run<false>(quantizer, x, static_cast<int>(w.k), w.padded_k(), target);
    return row;
  }
  for (uint32_t g = 0; g < w.groups; g++) {
    const float* in = x + static_cast<size_t>(g) * w.group_size;
    const int count = static_cast<int>(std::min(w.group_size, w.k - g * w.group_size));
    const int32_t sum = quantize_run<kSums>(quantizer, in, count, w.group_length, target);
    if constexpr (kSums) sums(g, sum);
  }
  return row;
}

// Contiguous places.
struct FlatTarget {
  int8_t* at;
  int8_t* next() {
    at += 32;
    return at - 32;
  }
};

// The sum of 16 integers.
inline int32_t sum_of_16(const int8_t* values) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(values));
  return sum_lanes(_mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), _mm256_zextsi128_si256(bytes)));
}

struct QuantizerAvx512 {
  static void quantize_rows(const float* x, const Panel16& w, const QuantizedRows& rows, uint32_t first,
                            uint32_t last) {
    for (uint32_t row = first; row < last; row++) {
      const float* in = x + static_cast<size_t>(row) * w.k;
      int8_t* values = rows.values + static_cast<size_t>(row) * w.padded_k();
      const FlatTarget target = {values};
      BlockNumbers* numbers = rows.numbers + static_cast<size_t>(row) * w.part_count();
      ActivationScale scale;
      if (w.parts == 2) {
        scale = quantize_row(in, w, target, nullptr);
        for (uint32_t part = 0; part < w.part_count(); part++) numbers[part] = {sum_of_16(values + 16 * part), 1};
      } else {
        scale = quantize_row(in, w, target, [&](uint32_t g, int32_t sum) { numbers[g] = {sum, 1}; });
      }
      rows.scales[row] = scale.scale;
      rows.zeros[row] = scale.zero;
    }
  }

  static void quantize_blocks(const float* x, const Panel16& w, const QuantizedRows& rows, uint32_t first,
                              uint32_t last) {
    Batch batch;
    for (uint32_t row = first; row < last; row++) {
      each_block(x + static_cast<size_t>(row) * w.k, w, rows, row,
                 [&](const float* values, uint32_t count, int8_t* at, size_t index) LOWBIT_INLINE {
                   batch.blocks[batch.count++] = {values, at, rows.numbers + index, static_cast<int>(count)};
                   if (batch.count == kBatch) quantize_batch(batch, rows.block_length);
                 });
    }
    if (batch.count > 0) quantize_batch(batch, rows.block_length);
  }

 private:
  // Blocks whose scales are computed together.
  static constexpr uint32_t kBatch = 16;
  struct Block {
    const float* x;
    int8_t* at;
    BlockNumbers* numbers;
    int count;
  };
  struct Batch {
    Block blocks[kBatch];
    uint32_t count = 0;
  };

  // Lane b: bits of the largest magnitude of block b.
  static inline LOWBIT_INLINE __m512i largest_bits(const Batch& batch) {
    __m512i most[kBatch];
    for (uint32_t b = 0; b < kBatch; b++) {
      const Block& block = batch.blocks[b < batch.count ? b : 0];
      const __m512 low = _mm512_maskz_loadu_ps(first_lanes(block.count), block.x);
      const __m512 high = _mm512_maskz_loadu_ps(first_lanes(block.count - 16), block.x + 16);
      most[b] = _mm512_max_epu32(_mm512_castps_si512(_mm512_abs_ps(low)), _mm512_castps_si512(_mm512_abs_ps(high)));
    }
    // Each step halves the number of lanes per block.
    for (int i = 0; i < 8; i++)
      most[i] = _mm512_max_epu32(_mm512_unpacklo_epi32(most[2 * i], most[2 * i + 1]),
                                 _mm512_unpackhi_epi32(most[2 * i], most[2 * i + 1]));
    for (int i = 0; i < 4; i++)
      most[i] = _mm512_max_epu32(_mm512_unpacklo_epi64(most[2 * i], most[2 * i + 1]),
                                 _mm512_unpackhi_epi64(most[2 * i], most[2 * i + 1]));
    for (int step = 2; step > 0; step /= 2)
      for (int i = 0; i < step; i++)
        most[i] = _mm512_max_epu32(_mm512_shuffle_i32x4(most[2 * i], most[2 * i + 1], 0x88),
                                   _mm512_shuffle_i32x4(most[2 * i], most[2 * i + 1], 0xdd));
    return most[0];
  }

  static void quantize_batch(Batch& batch, uint32_t length) {
    const __m512 largest = _mm512_castsi512_ps(largest_bits(batch));
    // As block_scale: max() here returns its second operand if one is NaN.
    const __m512 scales = _mm512_max_ps(
        _mm512_set1_ps(0x1p-126f),
        _mm512_add_ps(_mm512_div_ps(largest, _mm512_set1_ps(127)), _mm512_mul_ps(_mm512_setzero_ps(), largest)));
    alignas(64) float scale[kBatch], inverse[kBatch];
    _mm512_store_ps(scale, scales);
    _mm512_store_ps(inverse, _mm512_div_ps(_mm512_set1_ps(1), scales));
    for (uint32_t b = 0; b < batch.count; b++) {
      const Block& block = batch.blocks[b];
      const __m512 factor = _mm512_set1_ps(inverse[b]);
      const __m512 low = _mm512_maskz_loadu_ps(first_lanes(block.count), block.x);
      const __m512 high = _mm512_maskz_loadu_ps(first_lanes(block.count - 16), block.x + 16);
      const __m128i first = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(low, factor)));
      const __m128i second = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(high, factor)));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(block.at), first);
      if (length > 16) _mm_storeu_si128(reinterpret_cast<__m128i*>(block.at + 16), second);
      const __m256i all = _mm256_set_m128i(second, first);
      const int32_t sum = sum_lanes(_mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), all));
      *block.numbers = {sum, scale[b]};
    }
    batch.count = 0;
  }
};

}  // namespace
}  // namespace lowbit
