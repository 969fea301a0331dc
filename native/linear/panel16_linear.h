// Linear layers over panel16 weights, written once for all instruction sets. An `Isa` supplies vectors and a handful of
// operations; its rows of a vector (16, 8 or 4) divide the 16 rows of a panel into parts.
//
// y = a_scale * (sum over groups: scale * (sum u * q - (offset + zero) * sum q) - a_zero * correction) + bias,
// with u = stored unsigned weight, q = quantized activation. Integer sums are exact.
#pragma once

#include <algorithm>
#include <utility>

#include "../kernel.h"
#include "../panel16.h"
#include "fields.h"

namespace lowbit {
// A copy for each file that includes this: one shared copy would run with the instruction set of just any of them.
namespace {

struct PackedLinear {
  Panel16 weights;
  QuantizedRows rows;
  const float* x;
  float* y;
  uint32_t m;
  // Panels of one tile, rows of one quantization tile.
  uint32_t panels_per_tile, rows_per_tile;
};
static_assert(sizeof(PackedLinear) <= kArgsMax);

// scalars: m; buffers: x, packed weights, y, scratch.
static inline size_t packed_linear_scratch(const Call& call) {
  return quantized_bytes(static_cast<uint32_t>(call.scalars[0]), read_panel16(call.buffers[1]));
}

template <int... I, class F>
inline __attribute__((always_inline)) void unroll(std::integer_sequence<int, I...>, F&& body) {
  (body(std::integral_constant<int, I>{}), ...);
}
template <int N, class F>
inline __attribute__((always_inline)) void unroll(F&& body) {
  unroll(std::make_integer_sequence<int, N>{}, body);
}

// A field of a chunk as a vector of unsigned bytes.
template <class Isa, int Bits, int Index>
inline __attribute__((always_inline)) typename Isa::Bytes unpack_field(const typename Isa::Bytes* chunk) {
  constexpr Field field = Fields<Bits>::field(Index);
  typename Isa::Bytes value{};
  unroll<field.pieces>([&](auto p) {
    constexpr FieldPiece piece = Fields<Bits>::field(Index).piece[p];
    constexpr int kMask = ((1 << piece.width) - 1) << piece.at;
    auto part = Isa::template shift_and<piece.shift - piece.at, kMask>(chunk[piece.vector]);
    value = p == 0 ? part : Isa::or_bytes(value, part);
  });
  return value;
}

// Panels `first` .. `first + Panels`, activation rows `row` .. `row + Rows`.
template <class Isa, int Bits, bool Levels, int Panels, int Rows>
inline void panel_block(const PackedLinear& args, uint32_t first, uint32_t row) {
  using Bytes = typename Isa::Bytes;
  using Ints = typename Isa::Ints;
  using Floats = typename Isa::Floats;
  constexpr int kParts = 16 / Isa::kRows;
  constexpr int kVectors = Fields<Bits>::kVectors, kFields = Fields<Bits>::kFields;
  const Panel16& w = args.weights;
  const uint32_t padded_k = w.padded_k();
  const int32_t offset = Levels ? Isa::kLevelOffset : Isa::template offset<Bits>();
  const int8_t* x[Rows];
  const int32_t* sums[Rows];
  for (int m = 0; m < Rows; m++) {
    x[m] = args.rows.values + static_cast<size_t>(row + m) * padded_k;
    sums[m] = args.rows.sums + static_cast<size_t>(row + m) * w.groups;
  }
  const auto levels = Isa::load_levels(w.levels, 1 << (Bits < 4 ? Bits : 4));
  const uint8_t* group[Panels];
  for (int p = 0; p < Panels; p++) group[p] = w.panel(first + p);
  Floats total[Panels][kParts][Rows];
  for (int p = 0; p < Panels; p++)
    for (int part = 0; part < kParts; part++)
      for (int m = 0; m < Rows; m++) total[p][part][m] = Isa::zero_floats();

  for (uint32_t g = 0; g < w.groups; g++) {
    for (int p = 0; p < Panels; p++) Isa::prefetch(group[p], w.group_bytes);
    for (int part = 0; part < kParts; part++) {
      Ints sum[Panels][Rows];
      for (int p = 0; p < Panels; p++) {
        for (int m = 0; m < Rows; m++) {
          sum[p][m] = w.has_zeros ? Isa::scaled_zeros(group[p] + w.zeros_offset + part * Isa::kRows, offset, -sums[m][g])
                                  : Isa::broadcast_int(-offset * sums[m][g]);
        }
      }
      const uint32_t start = g * w.group_length;
      for (uint32_t c = 0, at = w.vectors_offset; c < w.group_length; c += 4 * kFields, at += 64 * kVectors) {
        for (int p = 0; p < Panels; p++) {
          Bytes chunk[kVectors];
          for (int v = 0; v < kVectors; v++)
            chunk[v] = Isa::load_bytes(group[p] + at + 64 * v + 4 * Isa::kRows * part);
          unroll<kFields>([&](auto f) {
            Bytes u = unpack_field<Isa, Bits, f>(chunk);
            if constexpr (Levels) u = Isa::lookup(levels, u);
            else u = Isa::template weight<Bits>(u);
            for (int m = 0; m < Rows; m++) {
              int32_t four;
              memcpy(&four, x[m] + start + c + 4 * f, 4);
              sum[p][m] = Isa::template dot<(Bits == 8 || Levels)>(sum[p][m], u, four);
            }
          });
        }
      }
      for (int p = 0; p < Panels; p++) {
        Floats scale = w.f16_scales ? Isa::load_halves(group[p] + 2 * Isa::kRows * part)
                                    : Isa::load_floats(group[p] + 4 * Isa::kRows * part);
        for (int m = 0; m < Rows; m++)
          total[p][part][m] = Isa::multiply_add(Isa::to_floats(sum[p][m]), scale, total[p][part][m]);
      }
    }
    for (int p = 0; p < Panels; p++) group[p] += w.group_bytes;
  }

  for (int p = 0; p < Panels; p++) {
    const uint8_t* panel = w.panel(first + p);
    for (int part = 0; part < kParts; part++) {
      const uint32_t column = 16 * (first + p) + Isa::kRows * part;
      if (column >= w.n) break;
      const Floats correction = Isa::load_floats(panel + w.correction_offset + 4 * Isa::kRows * part);
      const Floats bias =
          w.has_bias ? Isa::load_floats(panel + w.bias_offset + 4 * Isa::kRows * part) : Isa::zero_floats();
      for (int m = 0; m < Rows; m++) {
        const float zero = static_cast<float>(args.rows.zeros[row + m]);
        Floats value = Isa::multiply_add(correction, Isa::broadcast(-zero), total[p][part][m]);
        value = Isa::multiply_add(value, Isa::broadcast(args.rows.scales[row + m]), bias);
        float* y = args.y + static_cast<size_t>(row + m) * w.n + column;
        if (column + Isa::kRows <= w.n) Isa::store_floats(y, value);
        else Isa::store_some_floats(y, value, w.n - column);
      }
    }
  }
}

// All rows of m for a range of panels, so that weights read once serve every row.
template <class Isa, int Bits, bool Levels>
inline void panel_range(const PackedLinear& args, uint32_t first, uint32_t last) {
  constexpr int kStep = Isa::kPanels;
  uint32_t row = 0;
  for (; row + 8 <= args.m; row += 8)
    for (uint32_t p = first; p < last; p++) panel_block<Isa, Bits, Levels, 1, 8>(args, p, row);
  for (; row + 4 <= args.m; row += 4)
    for (uint32_t p = first; p < last; p++) panel_block<Isa, Bits, Levels, 1, 4>(args, p, row);
  for (; row + 2 <= args.m; row += 2)
    for (uint32_t p = first; p < last; p++) panel_block<Isa, Bits, Levels, 1, 2>(args, p, row);
  if (row == args.m) return;
  uint32_t p = first;
  for (; p + kStep <= last; p += kStep) panel_block<Isa, Bits, Levels, kStep, 1>(args, p, row);
  for (; p < last; p++) panel_block<Isa, Bits, Levels, 1, 1>(args, p, row);
}

template <class Isa, int Bits, bool Levels>
void packed_linear_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t) {
  const PackedLinear& args = step.as<PackedLinear>();
  if (phase == 0) {
    const uint32_t first = tile * args.rows_per_tile;
    Isa::quantize_rows(args.x, args.weights, args.rows, first, std::min(args.m, first + args.rows_per_tile));
    return;
  }
  const uint32_t first = tile * args.panels_per_tile;
  panel_range<Isa, Bits, Levels>(args, first, std::min(args.weights.panel_count, first + args.panels_per_tile));
}

template <class Isa, int Bits>
void choose_run(Step& step, bool levels) {
  if constexpr (Bits <= 4) {
    if (levels) {
      step.run = packed_linear_run<Isa, Bits, true>;
      return;
    }
  }
  step.run = packed_linear_run<Isa, Bits, false>;
}

// Splits the call: quantization by rows, then panels in about eight tiles a thread of at most 128 KiB of weights.
static inline void split_packed_linear(Step& step, PackedLinear& args, uint32_t threads, uint32_t panel_step) {
  const Panel16& w = args.weights;
  args.rows_per_tile = std::max(1u, ceil_div(args.m, 4 * threads));
  const uint32_t by_size = std::max<size_t>(1, (128u << 10) / w.panel_bytes);
  const uint32_t by_share = std::max(1u, w.panel_count / (8 * threads));
  args.panels_per_tile = static_cast<uint32_t>(round_up(std::min(by_size, by_share), panel_step));
  step.phases = 2;
  step.tiles[0] = ceil_div(args.m, args.rows_per_tile);
  step.tiles[1] = ceil_div(w.panel_count, args.panels_per_tile);
}

template <class Isa>
void packed_linear_prepare(Step& step, const Call& call) {
  PackedLinear& args = step.init<PackedLinear>();
  args.m = static_cast<uint32_t>(call.scalars[0]);
  args.x = static_cast<const float*>(call.buffers[0]);
  args.weights = read_panel16(call.buffers[1]);
  args.y = static_cast<float*>(call.buffers[2]);
  args.rows = quantized_rows(call.buffers[3], args.m, args.weights);
  split_packed_linear(step, args, call.threads, Isa::kPanels);
  const bool levels = args.weights.has_levels;
  switch (args.weights.bits) {
    case 1: return choose_run<Isa, 1>(step, levels);
    case 2: return choose_run<Isa, 2>(step, levels);
    case 3: return choose_run<Isa, 3>(step, levels);
    case 4: return choose_run<Isa, 4>(step, levels);
    case 5: return choose_run<Isa, 5>(step, levels);
    case 6: return choose_run<Isa, 6>(step, levels);
    case 7: return choose_run<Isa, 7>(step, levels);
    default: return choose_run<Isa, 8>(step, levels);
  }
}

// Dynamic quantization of rows in scalar code that every compiler vectorises: src/kernels/reference/activations.ts.
struct ScalarQuantizer {
  static void quantize_rows(const float* x, const Panel16& w, const QuantizedRows& rows, uint32_t first, uint32_t last) {
    for (uint32_t row = first; row < last; row++) {
      const float* values = x + static_cast<size_t>(row) * w.k;
      float low = 0, high = 0;
      for (uint32_t c = 0; c < w.k; c++) {
        low = values[c] < low ? values[c] : low;
        high = values[c] > high ? values[c] : high;
      }
      const float scale = std::max((high - low) / 255.0f, 0x1p-126f);
      const float inverse = 1.0f / scale;
      const float rounder = 12582912.0f;  // 1.5 * 2^23: adding and taking it away rounds half to even
      const float rounded = (low / scale + rounder) - rounder;
      const int32_t zero = static_cast<int32_t>(std::min(127.0f, std::max(-128.0f, -128.0f - rounded)));
      rows.scales[row] = scale;
      rows.zeros[row] = zero;
      int8_t* out = rows.values + static_cast<size_t>(row) * w.padded_k();
      for (uint32_t g = 0; g < w.groups; g++) {
        const uint32_t count = std::min(w.group_size, w.k - g * w.group_size);
        const float* in = values + static_cast<size_t>(g) * w.group_size;
        int32_t sum = 0;
        for (uint32_t c = 0; c < count; c++) {
          const int32_t q = static_cast<int32_t>((in[c] * inverse + rounder) - rounder) + zero;
          const int32_t clamped = q < -128 ? -128 : q > 127 ? 127 : q;
          out[c] = static_cast<int8_t>(clamped);
          sum += clamped;
        }
        memset(out + count, 0, w.group_length - count);
        rows.sums[static_cast<size_t>(row) * w.groups + g] = sum;
        out += w.group_length;
      }
    }
  }
};

}  // namespace
}  // namespace lowbit
