// Linear layers over panel32 weights, 8 rows of activations at a time: up to 128 columns of a panel are unpacked to a
// buffer, which all rows then read. `Dot` supplies add<Bits, Longest>(columns, x, length, sums), which adds a row's
// products with `length` columns, 16 or a multiple of 32. panel32.h has the formula.
#pragma once

#include "panel32_prepare.h"
#include "panel32_unpack.h"

namespace lowbit {
namespace {

constexpr uint32_t kPassRows = 8;

// Unpacks `length` k of a panel to [k / 4][quad][16] signed bytes.
template <int Bits, bool Levels>
inline void unpack_chunk(const Panels& w, const uint8_t* at, uint32_t length, int8_t* chunk) {
  const uint8x16_t levels = load_levels(w);
  for (uint32_t k = 0; k < length; k += 4, at += 16 * Bits, chunk += 16 * kQuads) {
    int8x16_t quads[kQuads];
    unpack_step<Bits, Levels>(at, levels, quads);
    for (uint32_t quad = 0; quad < kQuads; quad++) vst1q_s8(chunk + 16 * quad, quads[quad]);
  }
}

// Rows first .. first + count - 1 by the chunk from column `c` of group `g` on.
struct RowsChunk {
  const uint8_t* group;
  uint32_t g, c, length, first, count;
};

// sums[row][quad] += the products of a chunk.
template <class Dot, int Bits, bool Levels>
void add_columns(const Linear32& args, const RowsChunk& chunk, int32x4_t (*sums)[kQuads]) {
  const Panels& w = args.weights;
  const size_t padded_k = w.padded_k();
  int8_t columns[kChunkMax * kPanelRows];
  for (uint32_t done = 0; done < chunk.length; done += kChunkMax) {
    const uint32_t at = chunk.c + done, length = std::min(kChunkMax, chunk.length - done);
    unpack_chunk<Bits, Levels>(w, chunk.group + w.vectors_offset + 4 * Bits * at, length, columns);
    const int8_t* x = args.rows.values + chunk.first * padded_k + chunk.g * w.group_length + at;
    for (uint32_t row = 0; row < chunk.count; row++, x += padded_k) {
      if (kMayPair<Bits, Levels> && w.parts == 2)
        Dot::template add<Levels ? 8 : Bits, 16>(columns, x, length, sums[row]);
      else Dot::template add<Levels ? 8 : Bits, 32>(columns, x, length, sums[row]);
    }
  }
}

template <class Dot, int Bits, bool Levels>
void rows_panel(const Linear32& args, uint32_t panel, uint32_t first, uint32_t count) {
  const Panels& w = args.weights;
  const uint8_t* group = w.panel(panel);
  const float* chunk_sums = args.rows.sums + first;
  const float* factors = args.rows.factors + first;
  float32x4_t totals[kPassRows][kQuads];
  for (uint32_t row = 0; row < count; row++)
    for (float32x4_t& total : totals[row]) total = vdupq_n_f32(0);
  for (uint32_t g = 0; g < w.groups; g++, group += w.group_bytes) {
    for (uint32_t c = 0; c < w.group_length;
         c += args.chunk, chunk_sums += args.rows.row_stride, factors += args.rows.row_stride) {
      int32x4_t sums[kPassRows][kQuads] = {};
      add_columns<Dot, Bits, Levels>(args, {group, g, c, std::min(args.chunk, w.group_length - c), first, count}, sums);
      for (uint32_t quad = 0; quad < kQuads; quad++) {
        const QuadPlace place{group, g, quad, set_of(w, c)};
        const float32x4_t scales = quad_scales(w, place);
        // Zero points, or offsets of minima.
        const float32x4_t zeros = w.has_minima    ? quad_offsets(w, place, scales)
                                  : w.any_zeros() ? quad_zeros(w, place)
                                                  : vdupq_n_f32(0);
        for (uint32_t row = 0; row < count; row++) {
          float32x4_t sum = vcvtq_f32_s32(sums[row][quad]);
          if (w.any_zeros()) sum = vfmsq_n_f32(sum, zeros, chunk_sums[row]);
          float32x4_t& total = totals[row][quad];
          total = vfmaq_f32(total, vmulq_n_f32(sum, factors[row]), scales);
          if (w.has_minima) total = vfmsq_n_f32(total, zeros, chunk_sums[row]);
        }
      }
    }
  }
  for (uint32_t row = 0; row < count; row++) finish_row(args, panel, first + row, totals[row]);
}

template <class Dot, int Bits, bool Levels>
void rows_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t) {
  const Linear32& args = step.as<Linear32>();
  if (phase == 0) return quantize_rows<1>(args, tile, nullptr);
  const uint32_t begin = tile * args.panels_per_tile;
  const uint32_t end = std::min(args.weights.panel_count, begin + args.panels_per_tile);
  for (uint32_t row = 0; row < args.m; row += kPassRows)
    for (uint32_t panel = begin; panel < end; panel++)
      rows_panel<Dot, Bits, Levels>(args, panel, row, std::min(kPassRows, args.m - row));
}

}  // namespace
}  // namespace lowbit
