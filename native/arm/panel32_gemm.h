// Many rows of activations times panel32 weights: a panel is unpacked once into the thread's scratch and serves all rows,
// in tiles of 8, 4 or 2 rows. `Isa` supplies the order of unpacked vectors and the tile's arithmetic.
//
// Unpacked panel: vectors of signed bytes, then for each group the tile's scales and, if there are any, zero points.
#pragma once

#include "panel32_unpack.h"

namespace lowbit {
namespace {

// Activations that one pass over the panels reads stay in the second-level cache.
constexpr size_t kRowBytes = 512 << 10;

struct UnpackedPanel {
  int8_t* vectors;
  // [group][kScaleFloats] each; no zeros without zero points.
  float* scales;
  float* zeros;
};

// Floats that an Isa keeps of each group.
template <class Isa>
constexpr size_t kScaleFloats = kPanelRows * Isa::kScaleCopies;

template <class Isa>
inline size_t unpacked_bytes(const Panels& w) {
  const size_t floats = round_up(sizeof(float) * kScaleFloats<Isa> * w.groups, 64);
  return static_cast<size_t>(kPanelRows) * w.padded_k() + (w.has_zeros ? 2 : 1) * floats;
}

template <class Isa>
inline UnpackedPanel unpacked_panel(const Linear32& args, uint32_t thread) {
  const Panels& w = args.weights;
  uint8_t* at = args.unpacked + thread * unpacked_bytes<Isa>(w);
  UnpackedPanel panel;
  panel.vectors = reinterpret_cast<int8_t*>(at);
  panel.scales = reinterpret_cast<float*>(at + static_cast<size_t>(kPanelRows) * w.padded_k());
  panel.zeros = panel.scales + (w.has_zeros ? kScaleFloats<Isa> * w.groups : 0);
  return panel;
}

template <class Isa, int Bits, bool Levels>
void unpack_panel(const Panels& w, uint32_t index, const UnpackedPanel& panel) {
  const uint8x16_t levels = load_levels(w);
  const uint8_t* group = w.panel(index);
  for (uint32_t g = 0; g < w.groups; g++, group += w.group_bytes) {
    const uint8_t* at = group + w.vectors_offset;
    for (uint32_t k = 0; k < w.group_length; k += 8, at += 32 * Bits) {
      int8x16_t low[kQuads], high[kQuads];
      unpack_step<Bits, Levels>(at, levels, low);
      unpack_step<Bits, Levels>(at + 16 * Bits, levels, high);
      Isa::store_weights(panel.vectors, w.padded_k(), g * w.group_length + k, low, high);
    }
    for (uint32_t quad = 0; quad < kQuads; quad++) {
      const size_t place = kScaleFloats<Isa> * g + 4 * Isa::kScaleCopies * quad;
      Isa::store_scales(panel.scales + place, quad_scales(w, group, quad));
      if (w.has_zeros) Isa::store_scales(panel.zeros + place, quad_zeros(w, group, quad));
    }
  }
}

// Rows `row` .. `row + Rows` times the columns of `Isa::kTileQuads` quads.
template <class Isa, int Rows, bool Zeros>
inline __attribute__((always_inline)) void tile_of(const Linear32& args, const UnpackedPanel& panel, uint32_t index,
                                                   uint32_t quad, uint32_t row) {
  constexpr int kSums = Isa::template sum_count<Rows>();
  const Panels& w = args.weights;
  const size_t padded_k = w.padded_k();
  const int8_t* weights = panel.vectors + 4 * quad * padded_k;
  const float* scales = panel.scales + 4 * Isa::kScaleCopies * quad;
  const float* zeros = panel.zeros + 4 * Isa::kScaleCopies * quad;
  const float* chunk_sums = args.rows.sums + row;
  const int8_t* x[Rows / Isa::kRowStep];
  for (int block = 0; block < Rows / Isa::kRowStep; block++)
    x[block] = args.rows.values + (row + static_cast<size_t>(block) * Isa::kRowStep) * padded_k;
  alignas(16) static constexpr int32_t kStarts[8] = {kMagicBits, kMagicBits, kMagicBits, kMagicBits,
                                                     kMagicBits, kMagicBits, kMagicBits, kMagicBits};
  float32x4_t totals[kSums];
  for (float32x4_t& total : totals) total = vdupq_n_f32(0);
  for (uint32_t g = 0; g < w.groups; g++, scales += kScaleFloats<Isa>, zeros += kScaleFloats<Isa>) {
    for (uint32_t left = w.group_length; left > 0; chunk_sums += args.rows.row_stride) {
      const uint32_t length = std::min(left, kChunkMax);
      left -= length;
      int32x4_t sums[kSums];
      for (int i = 0; i < kSums; i += 2) load_fresh<0>(kStarts, sums[i], sums[i + 1]);
      for (uint32_t k = 0; k < length; k += Isa::kTileStep) Isa::template step<Rows>(weights, x, sums);
      repeat<kSums>([&](auto i) {
        float32x4_t sum = vsubq_f32(vreinterpretq_f32_s32(sums[i]), vdupq_n_f32(kMagic));
        if constexpr (Zeros) sum = Isa::template subtract_zeros<Rows, i>(sum, zeros, chunk_sums);
        // Apart, for clang: vld1q_f32 is a macro there.
        const float* lanes = scales + 4 * Isa::template scale_of<Rows, i>();
        totals[i] = vfmaq_f32(totals[i], sum, vld1q_f32(lanes));
      });
    }
  }
  Isa::template finish<Rows>(args, index, quad, row, totals);
}

template <class Isa, int Rows, bool Zeros>
void row_tile(const Linear32& args, const UnpackedPanel& panel, uint32_t index, uint32_t row) {
  for (uint32_t quad = 0; quad < kQuads; quad += Isa::kTileQuads) tile_of<Isa, Rows, Zeros>(args, panel, index, quad, row);
}

template <class Isa, bool Zeros>
void row_tiles(const Linear32& args, const UnpackedPanel& panel, uint32_t index, uint32_t row, uint32_t end) {
  for (; row + 8 <= end; row += 8) row_tile<Isa, 8, Zeros>(args, panel, index, row);
  if (row + 4 <= end) {
    row_tile<Isa, 4, Zeros>(args, panel, index, row);
    row += 4;
  }
  if constexpr (Isa::kRowStep == 2)
    if (row < end) row_tile<Isa, 2, Zeros>(args, panel, index, row);
}

// Rows of activations in one tile of phase 1.
inline uint32_t rows_of_pass(const Panels& w) {
  return std::max<uint32_t>(32, static_cast<uint32_t>(kRowBytes / w.padded_k()) / 8 * 8);
}

template <class Isa, int Bits, bool Levels>
void gemm_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread) {
  const Linear32& args = step.as<Linear32>();
  if (phase == 0) return quantize_rows<Isa::kRowStep>(args, tile, nullptr);
  const Panels& w = args.weights;
  const UnpackedPanel panel = unpacked_panel<Isa>(args, thread);
  const uint32_t index = tile % w.panel_count, first = tile / w.panel_count * rows_of_pass(w);
  const uint32_t end = std::min(args.rows.row_stride, first + rows_of_pass(w));
  unpack_panel<Isa, Bits, Levels>(w, index, panel);
  if (w.has_zeros) row_tiles<Isa, true>(args, panel, index, first, end);
  else row_tiles<Isa, false>(args, panel, index, first, end);
}

}  // namespace
}  // namespace lowbit
