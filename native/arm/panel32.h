// What all kernels over panel32 weights share: the bound call, its scratch, and the quantization of activations.
//
// y [m, n] = x [m, k] . w [n, k]^T + bias. A weight is w = scale * (s - zero) with a signed integer s, or scale * (s +
// 2^(bits - 1)) + minimum; scale, zero and minimum are those of its row and group. An activation is x = x_scale * (q -
// x_zero), with a scale and a zero point for each row of x:
//
//   y = x_scale * (sum over groups: scale * (sum s * q - zero * sum q) - x_zero * correction) + bias
//
// where correction is the sum of the row's weights and is packed with them. Activations in blocks have a scale for each
// 32 columns and no zero point: y = sum over blocks: scale * x_scale * (sum s * q - zero * sum q) + bias.
//
// Integer sums are exact. A group is summed in chunks of up to 128 columns, whose sums stay below 2^22 and become
// floats by one subtraction (kMagic). Groups of more than 128 have chunks of up to 1024, whose sums floats still hold
// exactly. A block of activations is a chunk. GEMV and GEMM have the same chunks and add them in order, so that a row's
// results do not depend on other rows.
#pragma once

#include <arm_neon.h>

#include <algorithm>

#include "../each_index.h"
#include "../families/linear/quantized_rows.h"
#include "../kernel.h"
#include "../panels.h"

namespace lowbit {
namespace {

constexpr uint32_t kPanelRows = 32;
constexpr uint32_t kQuads = kPanelRows / 4;
// Columns of a chunk whose sums of 8-bit weights times activations stay below 2^22, and below 2^24.
constexpr uint32_t kChunkMax = 128, kLongChunk = 1024;

// The bits of 1.5 * 2^23, a float whose last bit counts 1: for an integer |i| < 2^22, kMagicBits + i are the bits of
// kMagic + i.
constexpr int32_t kMagicBits = 0x4b400000;
constexpr float kMagic = 12582912.0f;

// What a chunk's accumulators start with: short chunks, then long ones.
alignas(16) constexpr int32_t kStarts[2][4] = {{kMagicBits, kMagicBits, kMagicBits, kMagicBits}, {}};

// Quantized activations: int8 values, each group padded with zeros to a multiple of 32 columns, rows interleaved as
// store_values has them.
struct Activations {
  int8_t* values;
  // The values again in the order of streaming tiles; only for kernels that stream (SME2).
  int8_t* streamed;
  // [chunk][row_stride] each. factors: the scale of the block, or 1 with a scale per row. sums: the sum of the values,
  // times the factor where weights have minima.
  float* sums;
  float* factors;
  // What a chunk's accumulators start with: [row][chunk][start_count][4], or, with starts_in_twos, [pair of
  // rows][chunk][start_count][2 rows][2].
  int32_t* starts;
  // [row]
  float* scales;
  float* zeros;
  uint32_t row_stride, start_count;
  bool starts_in_twos, in_blocks;
};

struct Linear32 {
  Panels weights;
  Activations rows;
  const float* x;
  float* y;
  // GEMM: one unpacked panel per thread. Few rows: numbers and totals of a panel per thread.
  uint8_t* unpacked;
  uint32_t m, panels_per_tile, rows_per_tile;
  // Most columns of a chunk.
  uint32_t chunk;

  uint32_t chunk_count() const { return weights.groups * ceil_div(weights.group_length, chunk); }
  bool has_long_chunks() const { return chunk > kChunkMax; }
};
static_assert(sizeof(Linear32) <= kArgsMax);

// Divides a scratch buffer into arrays that begin at multiples of 64 bytes. With a null `base` it only counts bytes.
struct Carver {
  uint8_t* base;
  size_t size = 0;

  template <class T>
  T* take(size_t count) {
    uint8_t* at = base + size;
    size += round_up(count * sizeof(T), 64);
    return reinterpret_cast<T*>(at);
  }
};

// Takes the arrays of the activations, with rows of zeros up to a multiple of `row_step`, and `starts` initial values a
// chunk.
inline void carve_activations(Carver& carver, Linear32& args, uint32_t row_step, uint32_t starts) {
  Activations& rows = args.rows;
  rows.row_stride = static_cast<uint32_t>(round_up(args.m, row_step));
  rows.start_count = starts;
  const size_t padded = rows.row_stride;
  rows.values = carver.take<int8_t>(padded * args.weights.padded_k());
  rows.sums = carver.take<float>(padded * args.chunk_count());
  rows.factors = carver.take<float>(padded * args.chunk_count());
  rows.starts = carver.take<int32_t>(padded * args.chunk_count() * starts * 4);
  rows.scales = carver.take<float>(padded);
  rows.zeros = carver.take<float>(padded);
}

// Stores 16 values of a row in the order that products read: RowStep 1: [row][k]; 4, for dot products by element:
// [row / 4][k / 4][4 rows][4 k]; 2, for matrix products: [row / 2][k / 8][2 rows][8 k].
template <int RowStep>
inline void store_values(const Linear32& args, uint32_t row, uint32_t k, int8x16_t q) {
  const size_t padded_k = args.weights.padded_k();
  int8_t* base = args.rows.values + static_cast<size_t>(row / RowStep) * RowStep * padded_k + RowStep * k;
  if constexpr (RowStep == 1) {
    vst1q_s8(base, q);
  } else if constexpr (RowStep == 2) {
    int64_t* out = reinterpret_cast<int64_t*>(base) + row % 2;
    vst1q_lane_s64(out, vreinterpretq_s64_s8(q), 0);
    vst1q_lane_s64(out + 2, vreinterpretq_s64_s8(q), 1);
  } else {
    static_assert(RowStep == 4);
    int32_t* out = reinterpret_cast<int32_t*>(base) + row % 4;
    vst1q_lane_s32(out, vreinterpretq_s32_s8(q), 0);
    vst1q_lane_s32(out + 4, vreinterpretq_s32_s8(q), 1);
    vst1q_lane_s32(out + 8, vreinterpretq_s32_s8(q), 2);
    vst1q_lane_s32(out + 12, vreinterpretq_s32_s8(q), 3);
  }
}

struct RowRange {
  float scale, inverse;
  int32_t zero;
};

// Scale and zero point of a row, by the same operations as src/kernels/families/linear/activations.ts. NEON's minimum
// and maximum keep NaNs. A row whose range is not finite gets NaN as scale.
inline RowRange row_range(const float* x, uint32_t k) {
  float32x4_t lows = vdupq_n_f32(0), highs = lows;
  auto widen = [&](float32x4_t v) {
    lows = vminq_f32(lows, v);
    highs = vmaxq_f32(highs, v);
  };
  uint32_t c = 0;
  for (; c + 4 <= k; c += 4) widen(vld1q_f32(x + c));
  if (c < k) {
    float rest[4] = {};
    memcpy(rest, x + c, 4 * (k - c));
    widen(vld1q_f32(rest));
  }
  const float low = vminvq_f32(lows), width = vmaxvq_f32(highs) - low;
  RowRange range;
  range.scale = std::max(width / 255.0f + 0.0f * width, 0x1p-126f);
  range.inverse = 1.0f / range.scale;
  const float rounded = (low / range.scale + kMagic) - kMagic;
  range.zero = static_cast<int32_t>(std::min(127.0f, std::max(-128.0f, -128.0f - rounded)));
  return range;
}

// Scale of a block of up to 32 values without a zero point: the largest magnitude / 127; NaN where one is not finite.
inline RowRange block_range(const float* x, uint32_t count) {
  float32x4_t largest = vdupq_n_f32(0);
  for (uint32_t c = 0; c < count; c += 4) {
    float four[4] = {};
    memcpy(four, x + c, 4 * std::min(4u, count - c));
    largest = vmaxq_f32(largest, vabsq_f32(vld1q_f32(four)));
  }
  const float most = vmaxvq_f32(largest);
  RowRange range;
  range.scale = std::max(most / 127.0f + 0.0f * most, 0x1p-126f);
  range.inverse = 1.0f / range.scale;
  range.zero = 0;
  return range;
}

// q = clamp(round(x / scale) + zero, -128, 127) of 16 floats, halves rounded to even.
inline int8x16_t quantize16(const float* x, const RowRange& range) {
  int32x4_t q[4];
  for (int i = 0; i < 4; i++) {
    const float32x4_t scaled = vmulq_n_f32(vld1q_f32(x + 4 * i), range.inverse);
    q[i] = vaddq_s32(vcvtnq_s32_f32(scaled), vdupq_n_s32(range.zero));
  }
  const int16x8_t low = vqmovn_high_s32(vqmovn_s32(q[0]), q[1]), high = vqmovn_high_s32(vqmovn_s32(q[2]), q[3]);
  return vqmovn_high_s16(vqmovn_s16(low), high);
}

// Quantizes the last `count` < 16 values of a group; the others are 0.
inline int8x16_t quantize_some(const float* x, uint32_t count, const RowRange& range) {
  float values[16] = {};
  int8_t q[16];
  memcpy(values, x, 4 * count);
  vst1q_s8(q, quantize16(values, range));
  memset(q + count, 0, 16 - count);
  return vld1q_s8(q);
}

// Quantizes `count` values from `x` on, a chunk of a row, to column `k` of the padded row and stores zeros up to
// `length`. Returns the sum of the integers.
template <int RowStep>
inline int32_t quantize_chunk(const Linear32& args, uint32_t row, uint32_t k, uint32_t length, const float* x,
                              uint32_t count, const RowRange& range) {
  int32x4_t sum = vdupq_n_s32(0);
  for (uint32_t c = 0; c < length; c += 16) {
    int8x16_t q = vdupq_n_s8(0);
    if (c + 16 <= count) q = quantize16(x + c, range);
    else if (c < count) q = quantize_some(x + c, count - c, range);
    sum = vpadalq_s16(sum, vpaddlq_s8(q));
    store_values<RowStep>(args, row, k + c, q);
  }
  return vaddvq_s32(sum);
}

// Stores what a chunk's accumulators start with: each of the `factors` times the chunk's sum of activations, plus
// kMagicBits where chunks are short.
inline void store_starts(const Linear32& args, uint32_t row, uint32_t chunk, const int32_t* factors, int32_t sum) {
  const Activations& rows = args.rows;
  const uint32_t rows_of_one = rows.starts_in_twos ? 2 : 1;
  const int32_t base = args.has_long_chunks() ? 0 : kMagicBits;
  const size_t vector = (size_t{row} / rows_of_one * args.chunk_count() + chunk) * rows.start_count;
  int32_t* starts = rows.starts + 4 * vector + 2 * (row % rows_of_one);
  for (uint32_t i = 0; i < rows.start_count; i++, starts += 4) {
    if (rows.starts_in_twos) vst1_s32(starts, vdup_n_s32(factors[i] * sum + base));
    else vst1q_s32(starts, vdupq_n_s32(factors[i] * sum + base));
  }
}

template <int RowStep>
inline void quantize_row(const Linear32& args, uint32_t row, const int32_t* factors) {
  const Panels& w = args.weights;
  const Activations& rows = args.rows;
  const float* x = args.x + static_cast<size_t>(row) * w.k;
  RowRange range{1, 1, 0};
  if (!rows.in_blocks) range = row_range(x, w.k);
  rows.scales[row] = range.scale;
  rows.zeros[row] = static_cast<float>(range.zero);
  uint32_t chunk = 0;
  for (uint32_t g = 0; g < w.groups; g++) {
    const uint32_t count = std::min(w.group_size, w.k - g * w.group_size);
    for (uint32_t c = 0; c < w.group_length; c += args.chunk, chunk++) {
      const uint32_t length = std::min(args.chunk, w.group_length - c), left = count > c ? count - c : 0;
      const float* values = x + static_cast<size_t>(g) * w.group_size + c;
      if (rows.in_blocks) range = block_range(values, std::min(left, length));
      const float factor = rows.in_blocks ? range.scale : 1;
      const int32_t sum = quantize_chunk<RowStep>(args, row, g * w.group_length + c, length, values, left, range);
      const size_t at = static_cast<size_t>(chunk) * rows.row_stride + row;
      rows.factors[at] = factor;
      rows.sums[at] = static_cast<float>(sum) * (w.has_minima ? factor : 1);
      store_starts(args, row, chunk, factors, sum);
    }
  }
}

// Quantizes the rows of a tile of phase 0. The tile with the last row also writes the rows of padding.
template <int RowStep>
__attribute__((noinline)) inline void quantize_rows(const Linear32& args, uint32_t tile, const int32_t* factors) {
  const uint32_t first = tile * args.rows_per_tile, last = std::min(args.m, first + args.rows_per_tile);
  for (uint32_t row = first; row < last; row++) quantize_row<RowStep>(args, row, factors);
  if (last < args.m) return;
  for (uint32_t row = last; row < args.rows.row_stride; row++) {
    for (uint32_t k = 0; k < args.weights.padded_k(); k += 16) store_values<RowStep>(args, row, k, vdupq_n_s8(0));
    for (uint32_t chunk = 0; chunk < args.chunk_count(); chunk++) {
      const size_t at = static_cast<size_t>(chunk) * args.rows.row_stride + row;
      args.rows.sums[at] = args.rows.factors[at] = 0;
    }
    args.rows.scales[row] = args.rows.zeros[row] = 0;
  }
}

// Loads two vectors in assembly: compilers would replace the load by register copies, which take the vector units that
// multiply. Accesses before and after may move past it: the memory is constant while kernels run.
template <int Offset>
inline LOWBIT_INLINE void load_fresh(const int32_t* p, int32x4_t& first, int32x4_t& second) {
  asm volatile("ldp %q0, %q1, [%2, %3]" : "=w"(first), "=w"(second) : "r"(p), "i"(4 * Offset));
}

// Loads a vector here, and by an instruction of its own: in-order cores take longer for a pair (ldp) than for two
// loads. Accesses before and after may move past it, as with load_fresh.
template <int Offset>
inline LOWBIT_INLINE int8x16_t load_alone(const void* p) {
  int8x16_t vector;
  asm volatile("ldr %q0, [%1, %2]" : "=w"(vector) : "r"(p), "i"(Offset));
  return vector;
}

// Hides how a constant was made, so that the compiler keeps it in a register or in memory. It would otherwise make it
// anew at each use, on the vector units that multiply.
template <class Vector>
inline Vector kept(Vector v) {
  asm volatile("" : "+w"(v));
  return v;
}

// Makes the compiler load from a pointer again. It would otherwise keep what it loaded, and spill it.
inline void forget(const uint8_t*& p) { asm volatile("" : "+r"(p)); }

inline float32x4_t load4(const uint8_t* p) { return vreinterpretq_f32_u8(vld1q_u8(p)); }

inline float32x4_t load4_halves(const uint8_t* p) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p))); }
inline float32x4_t load4_integers(const uint8_t* p) {
  uint32_t four;
  memcpy(&four, p, 4);
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(four))))));
}
inline float32x4_t load4_e4m3(const uint8_t* p) {
  uint32_t four;
  memcpy(&four, p, 4);
  const int32x4_t bytes = vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(four)))));
  const int32x4_t bits = vandq_s32(vshlq_n_s32(bytes, 20), vdupq_n_s32(kE4m3Bits));
  return vmulq_n_f32(vreinterpretq_f32_s32(bits), kE4m3Scale);
}

// Four rows of a panel (a quad) in the stored group g, whose address is `group`. `set` is 1 in the second half of a
// stored group that is two groups of 16, else 0.
struct QuadPlace {
  const uint8_t* group;
  uint32_t g, quad, set;
};

// A quad's scales or minima as floats, from `offset` bytes of the group on. Where they are integers, their factors are
// those from number `factor` on.
inline float32x4_t quad_numbers(const Panels& w, const QuadPlace& place, uint32_t offset, uint32_t factor) {
  const uint32_t first = kPanelRows * place.set + 4 * place.quad;
  const uint8_t* at = place.group + offset + w.scale_bytes * first;
  if (w.scale_bytes == 4) return load4(at);
  if (w.scale_bytes == 2) return load4_halves(at);
  if (w.e4m3_scales) return vmulq_f32(load4_e4m3(at), load4(w.factors(place.group, place.g) + 16 * place.quad));
  const uint8_t* factors = w.factors(place.group, place.g) + 2 * (factor + 4 * place.quad);
  return vmulq_f32(load4_integers(at), load4_halves(factors));
}

inline float32x4_t quad_scales(const Panels& w, const QuadPlace& place) { return quad_numbers(w, place, 0, 0); }

// What is subtracted from scale * s in a group with minima, which are stored negated: -minimum - scale * 2^(bits - 1).
inline float32x4_t quad_offsets(const Panels& w, const QuadPlace& place, float32x4_t scales) {
  const float32x4_t minima = quad_numbers(w, place, w.minima_offset, kPanelRows);
  return vfmaq_n_f32(minima, scales, -static_cast<float>(1 << (w.bits - 1)));
}

// Which of the two groups of 16 of a stored group column `c` is in; 0 where a stored group is one group.
inline uint32_t set_of(const Panels& w, uint32_t c) { return w.parts == 2 ? c / 16 : 0; }

// Zero points of four rows.
inline float32x4_t quad_zeros(const Panels& w, const QuadPlace& place) {
  if (w.odd_zero == 0) return load4_integers(place.group + w.zeros_offset + 4 * place.quad);
  uint32_t four;
  memcpy(&four, place.group + kPanelRows * place.set + 4 * place.quad, 4);
  const uint8x8_t odd = vreinterpret_u8_u32(vdup_n_u32(four & 0x01010101));
  return vmulq_n_f32(vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(odd)))), w.odd_zero);
}

// Stores y = x_scale * (total - x_zero * correction) + bias of the four columns of a quad, as far as they exist.
struct QuadFinish {
  const Activations* rows;
  float32x4_t correction, bias;
  float* y;
  size_t stride;
  uint32_t m, columns;

  QuadFinish(const Linear32& args, uint32_t panel, uint32_t quad) {
    const Panels& w = args.weights;
    const uint8_t* at = w.panel(panel);
    const uint32_t column = kPanelRows * panel + 4 * quad;
    rows = &args.rows;
    correction = load4(at + w.correction_offset + 16 * quad);
    bias = w.has_bias ? load4(at + w.bias_offset + 16 * quad) : vdupq_n_f32(0);
    y = args.y + column;
    stride = w.n;
    m = args.m;
    columns = column < w.n ? std::min(4u, w.n - column) : 0;
  }

  float32x4_t finished(uint32_t row, float32x4_t total) const {
    return vfmaq_n_f32(bias, vfmsq_n_f32(total, correction, rows->zeros[row]), rows->scales[row]);
  }

  void store(uint32_t row, float32x4_t total) const {
    if (row >= m) return;
    total = finished(row, total);
    float* to = y + row * stride;
    if (columns == 4) {
      vst1q_f32(to, total);
    } else {
      float all[4];
      vst1q_f32(all, total);
      memcpy(to, all, 4 * columns);
    }
  }
};

// Stores a row's results of a panel.
inline void finish_row(const Linear32& args, uint32_t panel, uint32_t row, const float32x4_t* totals) {
  const bool whole = kPanelRows * (panel + 1) <= args.weights.n;
  for (uint32_t quad = 0; quad < kQuads; quad++) {
    const QuadFinish columns(args, panel, quad);
    if (whole) vst1q_f32(columns.y + row * columns.stride, columns.finished(row, totals[quad]));
    else columns.store(row, totals[quad]);
  }
}

}  // namespace
}  // namespace lowbit
