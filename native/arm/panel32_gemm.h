// GEMM over panel32 weights (prefill): a panel is unpacked once into the thread's scratch and multiplied by all rows of
// activations, in tiles of 8, 4 or 2 rows. `Isa` supplies the order of unpacked vectors and a tile's arithmetic.
// panel32.h has the formula.
//
// An unpacked panel: signed bytes [quad][padded_k / 4][4 rows][4 k], or as the Isa orders them; then PanelNumbers.
#pragma once

#include "panel32_numbers.h"
#include "panel32_prepare.h"
#include "panel32_unpack.h"

namespace lowbit {
namespace {

// Bytes of activations that one pass over the panels multiplies: they stay in the second-level cache.
constexpr size_t kRowBytes = 512 << 10;

struct UnpackedPanel : PanelNumbers {
  int8_t* vectors;
};

// 8 columns of a quad in an unpacked panel of `padded_k` columns, from `column` on.
struct QuadColumns {
  size_t padded_k;
  uint32_t quad, column;

  // Their byte offset where quads follow each other.
  size_t offset() const { return 4 * (quad * padded_k + column); }
};

template <class Isa>
inline size_t unpacked_bytes(const Panels& w) {
  return static_cast<size_t>(kPanelRows) * w.padded_k() + sizeof(float) * number_floats<Isa>(w);
}

template <class Isa>
inline UnpackedPanel unpacked_panel(const Linear32& args, uint32_t thread) {
  const Panels& w = args.weights;
  uint8_t* at = args.unpacked + thread * unpacked_bytes<Isa>(w);
  float* numbers = reinterpret_cast<float*>(at + static_cast<size_t>(kPanelRows) * w.padded_k());
  return {panel_numbers<Isa>(w, numbers), reinterpret_cast<int8_t*>(at)};
}

template <class Isa, int Bits, bool Levels>
void unpack_panel(const Panels& w, uint32_t index, const UnpackedPanel& panel) {
  const uint8x16_t levels = load_levels(w);
  const size_t padded_k = w.padded_k();
  const uint8_t* group = w.panel(index);
  for (uint32_t g = 0; g < w.groups; g++, group += w.group_bytes) {
    const uint8_t* at = group + w.vectors_offset;
    for (uint32_t k = 0; k < w.group_length; k += 8, at += 32 * Bits) {
      int8x16_t low[kQuads], high[kQuads];
      unpack_step<Bits, Levels>(at, levels, low);
      unpack_step<Bits, Levels>(at + 16 * Bits, levels, high);
      const uint32_t column = g * w.group_length + k;
      for (uint32_t quad = 0; quad < kQuads; quad++)
        Isa::store_weights(panel.vectors, {padded_k, quad, column}, low[quad], high[quad]);
    }
  }
  read_numbers<Isa>(w, index, panel);
}

// What a group has besides scales.
enum class Beside { kNothing, kZeros, kMinima };

// Multiplies rows row .. row + Rows - 1 by `Quads` quads from `quad` on, `Columns` k at a time: 32, or 16 where groups
// are. `Factors`: activations are in blocks.
template <class Isa, int Rows, int Quads, Beside Zeros, int Columns, bool Factors>
inline LOWBIT_INLINE void tile_of(const Linear32& args, const UnpackedPanel& panel, uint32_t index,
                                                  uint32_t quad, uint32_t row) {
  using Tile = typename Isa::template Tile<Rows, Quads>;
  const uint32_t group_count = args.weights.part_count(), group_length = args.weights.part_length();
  const uint32_t chunk_stride = args.rows.row_stride, chunk = 4 * args.chunk;
  const size_t padded_k = args.weights.padded_k();
  const float* scales = panel.scales + 4 * Isa::kScaleCopies * quad;
  const float* zeros = panel.zeros + 4 * Isa::kScaleCopies * quad;
  const float* chunk_sums = args.rows.sums + row;
  const float* factors = args.rows.factors + row;
  const bool has_long = args.has_long_chunks();
  const int32_t* start = kStarts[has_long];
  const int8_t* weights[Quads];
  for (int q = 0; q < Quads; q++) weights[q] = panel.vectors + 4 * (quad + q) * padded_k;
  const int8_t* x[Rows / Isa::kRowStep];
  for (int block = 0; block < Rows / Isa::kRowStep; block++)
    x[block] = args.rows.values + (row + static_cast<size_t>(block) * Isa::kRowStep) * padded_k;
  const float32x4_t magic = kept(vdupq_n_f32(kMagic));
  float32x4_t totals[Tile::kSums];
  each_index<Tile::kSums>([&](auto i) LOWBIT_INLINE { totals[i] = vdupq_n_f32(0); });
  for (uint32_t g = 0; g < group_count; g++, scales += kScaleFloats<Isa>, zeros += kScaleFloats<Isa>) {
    const int8_t* group_end = weights[0] + 4 * static_cast<size_t>(group_length);
    do {
      const int8_t* end = group_end - weights[0] > chunk ? weights[0] + chunk : group_end;
      int32x4_t sums[Tile::kSums];
      each_index<Tile::kSums>(
          [&](auto i) LOWBIT_INLINE { sums[i] = vreinterpretq_s32_s8(load_alone<0>(start)); });
      do {
        Tile::template multiply<Columns>(weights, x, sums);
        for (int q = 0; q < Quads; q++) weights[q] += 4 * Columns;
        for (int block = 0; block < Rows / Isa::kRowStep; block++) x[block] += Isa::kRowStep * Columns;
      } while (weights[0] < end);
      float32x4_t values[Tile::kSums];
      if (has_long)
        each_index<Tile::kSums>([&](auto i) LOWBIT_INLINE { values[i] = vcvtq_f32_s32(sums[i]); });
      else
        each_index<Tile::kSums>([&](auto i) LOWBIT_INLINE {
          values[i] = vsubq_f32(vreinterpretq_f32_s32(sums[i]), magic);
        });
      each_index<Tile::kSums>([&](auto i) LOWBIT_INLINE {
        float32x4_t sum = values[i];
        if constexpr (Zeros == Beside::kZeros) sum = Tile::template subtract_zeros<i>(sum, zeros, chunk_sums);
        if constexpr (Factors) sum = Tile::template multiply_rows<i>(sum, factors);
        totals[i] = vfmaq_f32(totals[i], sum, vld1q_f32(scales + 4 * Tile::scale_of(i)));
        if constexpr (Zeros == Beside::kMinima)
          totals[i] = Tile::template subtract_zeros<i>(totals[i], zeros, chunk_sums);
      });
      chunk_sums += chunk_stride;
      factors += chunk_stride;
    } while (weights[0] < group_end);
  }
  // A copy for finish(): compilers keep an array in memory throughout once its address is taken.
  float32x4_t results[Tile::kSums];
  each_index<Tile::kSums>([&](auto i) LOWBIT_INLINE { results[i] = totals[i]; });
  Tile::finish(args, index, quad, row, results);
}

// Two quads at once load less per product, but their sums and totals exceed the registers: that pays in chunks of
// kWideChunk columns or more, which add to the totals seldom.
template <class Isa, int Rows, Beside Zeros, int Columns, bool Factors>
void row_tile(const Linear32& args, const UnpackedPanel& panel, uint32_t index, uint32_t row) {
  if (std::min(args.weights.group_length, args.chunk) < Isa::kWideChunk) {
    for (uint32_t quad = 0; quad < kQuads; quad++)
      tile_of<Isa, Rows, 1, Zeros, Columns, Factors>(args, panel, index, quad, row);
  } else {
    for (uint32_t quad = 0; quad < kQuads; quad += 2)
      tile_of<Isa, Rows, 2, Zeros, Columns, Factors>(args, panel, index, quad, row);
  }
}

template <class Isa, Beside Zeros, int Columns, bool Factors>
void row_tiles(const Linear32& args, const UnpackedPanel& panel, uint32_t index, uint32_t row, uint32_t end) {
  for (; row + 8 <= end; row += 8) row_tile<Isa, 8, Zeros, Columns, Factors>(args, panel, index, row);
  if (row + 4 <= end) {
    row_tile<Isa, 4, Zeros, Columns, Factors>(args, panel, index, row);
    row += 4;
  }
  if constexpr (Isa::kRowStep == 2)
    if (row < end) row_tile<Isa, 2, Zeros, Columns, Factors>(args, panel, index, row);
}

// Multiplies rows row .. end - 1 by a panel.
template <class Isa, Beside Zeros, int Columns = 32>
void rows_of_panel(const Linear32& args, const UnpackedPanel& panel, uint32_t index, uint32_t row, uint32_t end) {
  if (args.rows.in_blocks) row_tiles<Isa, Zeros, Columns, true>(args, panel, index, row, end);
  else row_tiles<Isa, Zeros, Columns, false>(args, panel, index, row, end);
}

// Rows of activations of a tile of phase 1.
inline uint32_t rows_of_pass(const Panels& w) {
  return std::max<uint32_t>(32, static_cast<uint32_t>(kRowBytes / w.padded_k()) / 16 * 16);
}

// A tile of phase 1: a panel by rows first .. end - 1, padded to whole steps.
struct PassTile {
  uint32_t panel, first, end;

  PassTile(const Linear32& args, uint32_t tile, uint32_t row_step) {
    const uint32_t rows = static_cast<uint32_t>(round_up(args.m, row_step)), pass = rows_of_pass(args.weights);
    panel = tile % args.weights.panel_count;
    first = tile / args.weights.panel_count * pass;
    end = std::min(rows, first + pass);
  }
};

template <class Isa, int Bits, bool Levels>
void gemm_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread) {
  const Linear32& args = step.as<Linear32>();
  if (phase == 0) return quantize_rows<Isa::kRowStep>(args, tile, nullptr);
  const Panels& w = args.weights;
  const UnpackedPanel panel = unpacked_panel<Isa>(args, thread);
  const auto [index, first, end] = PassTile(args, tile, Isa::kRowStep);
  unpack_panel<Isa, Bits, Levels>(w, index, panel);
  // Assembly (load_alone) reads what unpack_panel has stored: the compiler must not delay the stores.
  asm volatile("" ::: "memory");
  constexpr Beside kNothing = Beside::kNothing, kMinima = Beside::kMinima;
  if constexpr (kMayPair<Bits, Levels>)
    if (w.parts == 2) {
      constexpr Beside kBeside = Levels ? Beside::kZeros : kMinima;
      return (w.any_offsets() ? rows_of_panel<Isa, kBeside, 16> : rows_of_panel<Isa, kNothing, 16>)(args, panel, index,
                                                                                                    first, end);
    }
  if (w.has_minima) rows_of_panel<Isa, kMinima>(args, panel, index, first, end);
  else if (w.any_zeros()) rows_of_panel<Isa, Beside::kZeros>(args, panel, index, first, end);
  else rows_of_panel<Isa, kNothing>(args, panel, index, first, end);
}

template <class Isa>
struct GemmCode {
  template <int Bits, bool Levels>
  static constexpr Run run() {
    return gemm_run<Isa, Bits, Levels>;
  }
};

// Takes scratch for the activations and for each thread's unpacked panel.
template <class Isa>
size_t carve_gemm(Linear32& args, uint8_t* base, uint32_t threads) {
  Carver carver{base};
  carve_activations(carver, args, Isa::kRowStep, 0);
  args.unpacked = carver.take<uint8_t>(threads * unpacked_bytes<Isa>(args.weights));
  return carver.size;
}

template <class Isa, Granularity Of>
size_t gemm_scratch(const Call& call) {
  Linear32 args;
  read_call(args, call, Of);
  return carve_gemm<Isa>(args, nullptr, call.threads);
}

// Phase 0 quantizes rows of activations, phase 1 multiplies a panel by the rows of a pass.
inline void split_passes(Step& step, Linear32& args, uint32_t row_step, uint32_t threads) {
  args.rows_per_tile = static_cast<uint32_t>(round_up(ceil_div(args.m, 4 * threads), row_step));
  args.panels_per_tile = 1;
  step.phases = 2;
  step.tiles[0] = ceil_div(args.m, args.rows_per_tile);
  step.tiles[1] = args.weights.panel_count * ceil_div(args.m, rows_of_pass(args.weights));
}

template <class Isa, Granularity Of>
void prepare_gemm(Step& step, const Call& call) {
  const auto given = arguments_of<PackedLinearArguments>(call);
  Linear32& args = step.init<Linear32>();
  read_call(args, call, Of);
  carve_gemm<Isa>(args, static_cast<uint8_t*>(given.scratch), call.threads);
  split_passes(step, args, Isa::kRowStep, call.threads);
  step.run = choose_run<GemmCode<Isa>>(args.weights);
}

}  // namespace
}  // namespace lowbit
