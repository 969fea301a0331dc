// Linear layers with float activations over panel16 weights, written once for all x86 vectors. A lane is a row of a
// panel; weights go from packed bytes to floats in registers, once for all rows of a block of activations.
//
// y = sum over groups: scale * (sum u * x - (offset + zero) * sum x) + bias, with u = stored unsigned weight or, with
// levels, level + 128. Sums are in f32: the error is at most (k + 4 groups) * 2^-24 * sum scale (u + offset + zero) |x|.
#pragma once

#include <algorithm>

#include "../kernel.h"
#include "../panel16.h"
#include "../transformer/vectors.h"
#include "fields.h"

namespace lowbit {
// A copy for each file that includes this: one shared copy would run with the instruction set of just any of them.
namespace {

struct WeightOnly {
  Panel16 weights;
  const float* x;
  float* y;
  // Rows of x with groups padded by zeros, then the sum of each group of each row.
  float* padded;
  float* sums;
  uint32_t m, panels_per_tile, rows_per_tile;
  // Floats from one padded row to the next: not a power of two, which would give all rows the same places in a cache.
  uint32_t stride;
};
static_assert(sizeof(WeightOnly) <= kArgsMax);

static inline uint32_t padded_stride(const Panel16& w) { return w.padded_k() + 16; }

// scalars: m; buffers: x, packed weights, y, scratch.
static inline size_t weight_only_panel16_scratch(const Call& call) {
  const Panel16 w = read_panel16(call.buffers[1]);
  return size_t{4} * static_cast<uint32_t>(call.scalars[0]) * (padded_stride(w) + w.groups);
}

// Lanes of weights 4 f .. 4 f + 3, one in each byte.
template <class Isa, int Bits, int Index>
inline __attribute__((always_inline)) typename Isa::Words unpack_words(const typename Isa::Words* chunk) {
  constexpr Field field = Fields<Bits>::field(Index);
  typename Isa::Words value{};
  each_index<field.pieces>([&](auto p) LOWBIT_INLINE {
    constexpr FieldPiece piece = Fields<Bits>::field(Index).piece[p];
    constexpr uint32_t kMask = 0x01010101u * ((1u << piece.width) - 1) << piece.at;
    const auto part = Isa::template shift_and<piece.shift - piece.at, kMask>(chunk[piece.vector]);
    value = p == 0 ? part : Isa::or_words(value, part);
  });
  return value;
}

// Activation rows `row` .. `row + Rows` with rows `Isa::kLanes * part` .. of panel `index`.
template <class Isa, int Bits, bool Levels, int Rows>
inline void weight_only_block(const WeightOnly& args, uint32_t index, uint32_t part, uint32_t row) {
  using V = typename Isa::V;
  constexpr int kVectors = Fields<Bits>::kVectors, kFields = Fields<Bits>::kFields;
  // Independent sums of a row, so that additions do not wait for each other.
  constexpr int kSums = Rows == 1 ? 4 : Rows <= 3 ? 2 : 1;
  const Panel16& w = args.weights;
  const uint32_t stride = args.stride, lane = Isa::kLanes * part;
  const float offset = Levels ? 128 : 1 << (Bits - 1);
  const float* x = args.padded + size_t{row} * stride;
  const float* sums = args.sums + size_t{row} * w.groups;
  const auto levels = levels_of<Isa, Bits>(w);
  const uint8_t* group = w.panel(index);
  V total[Rows];
  each_index<Rows>([&](auto m) LOWBIT_INLINE { total[m] = Isa::set(0); });
  for (uint32_t g = 0; g < w.groups; g++, group += w.group_bytes) {
    V sum[Rows][kSums];
    for (int i = 0; i < Rows * kSums; i++) sum[i / kSums][i % kSums] = Isa::set(0);
    const uint8_t* at = group + w.vectors_offset + 4 * lane;
    const float* from = x + size_t{g} * w.group_length;
    for (uint32_t c = 0; c < w.group_length; c += 4 * kFields, at += 64 * kVectors) {
      typename Isa::Words chunk[kVectors];
      for (int v = 0; v < kVectors; v++) {
        if (Rows == 1) __builtin_prefetch(at + 64 * v + 4096, 0, 2);
        chunk[v] = Isa::load_words(at + 64 * v);
      }
      each_index<kFields>([&](auto f) LOWBIT_INLINE {
        auto four = unpack_words<Isa, Bits, f>(chunk);
        if constexpr (Levels) four = Isa::lookup(levels, four);
        each_index<4>([&](auto j) LOWBIT_INLINE {
          const V weight = Isa::template byte_floats<j>(four);
          each_index<Rows>([&](auto m) LOWBIT_INLINE {
            const V value = Isa::set(from[m * stride + c + 4 * f + j]);
            sum[m][j % kSums] = Isa::multiply_add(value, weight, sum[m][j % kSums]);
          });
        });
      });
    }
    const V scale = w.f16_scales ? Isa::load_halves(reinterpret_cast<const uint16_t*>(group) + lane)
                                 : Isa::load(reinterpret_cast<const float*>(group) + lane);
    V shift = Isa::set(offset);
    if (w.has_zeros) shift = shift + Isa::load_bytes(reinterpret_cast<const int8_t*>(group) + w.zeros_offset + lane);
    each_index<Rows>([&](auto m) LOWBIT_INLINE {
      V all = sum[m][0];
      for (int s = 1; s < kSums; s++) all = all + sum[m][s];
      all = Isa::multiply_add(shift, Isa::set(-sums[m * w.groups + g]), all);
      total[m] = Isa::multiply_add(all, scale, total[m]);
    });
  }
  const uint32_t column = 16 * index + lane;
  if (column >= w.n) return;
  const float* bias = reinterpret_cast<const float*>(w.panel(index) + w.bias_offset) + lane;
  for (int m = 0; m < Rows; m++) {
    const V value = w.has_bias ? total[m] + Isa::load(bias) : total[m];
    float* y = args.y + (size_t{row} + m) * w.n + column;
    if (column + Isa::kLanes <= w.n) Isa::store(y, value);
    else Isa::store_some(y, value, w.n - column);
  }
}

// Rows with their groups padded, and the sums of groups.
static inline void pad_rows(const WeightOnly& args, uint32_t first, uint32_t last) {
  const Panel16& w = args.weights;
  for (uint32_t row = first; row < last; row++) {
    const float* x = args.x + size_t{row} * w.k;
    float* out = args.padded + size_t{row} * args.stride;
    for (uint32_t g = 0; g < w.groups; g++, out += w.group_length) {
      const uint32_t count = std::min(w.group_size, w.k - g * w.group_size);
      const float* from = x + size_t{g} * w.group_size;
      double sum = 0;
      for (uint32_t c = 0; c < count; c++) sum += static_cast<double>(out[c] = from[c]);
      memset(out + count, 0, 4 * size_t{w.group_length - count});
      args.sums[size_t{row} * w.groups + g] = static_cast<float>(sum);
    }
  }
}

template <class Isa, int Bits, bool Levels, int Rows>
inline void weight_only_rows(const WeightOnly& args, uint32_t first, uint32_t last, uint32_t row) {
  for (uint32_t p = first; p < last; p++)
    for (uint32_t part = 0; part < 16 / Isa::kLanes; part++)
      weight_only_block<Isa, Bits, Levels, Rows>(args, p, part, row);
}

template <class Isa, int Bits, bool Levels>
void weight_only_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t) {
  const WeightOnly& args = step.as<WeightOnly>();
  if (phase == 0) {
    const uint32_t first = tile * args.rows_per_tile;
    pad_rows(args, first, std::min(args.m, first + args.rows_per_tile));
    return;
  }
  const uint32_t first = tile * args.panels_per_tile;
  const uint32_t last = std::min(args.weights.panel_count, first + args.panels_per_tile);
  uint32_t row = 0;
  for (; row + Isa::kPanelRows <= args.m; row += Isa::kPanelRows)
    weight_only_rows<Isa, Bits, Levels, Isa::kPanelRows>(args, first, last, row);
  for (; row + 4 <= args.m; row += 4) weight_only_rows<Isa, Bits, Levels, 4>(args, first, last, row);
  switch (args.m - row) {
    case 3: return weight_only_rows<Isa, Bits, Levels, 3>(args, first, last, row);
    case 2: return weight_only_rows<Isa, Bits, Levels, 2>(args, first, last, row);
    case 1: return weight_only_rows<Isa, Bits, Levels, 1>(args, first, last, row);
    default: return;
  }
}

template <class Isa, int Bits>
void choose_weight_only(Step& step, bool levels) {
  if constexpr (Bits <= 4) {
    if (levels) {
      step.run = weight_only_run<Isa, Bits, true>;
      return;
    }
  }
  step.run = weight_only_run<Isa, Bits, false>;
}

template <class Isa>
void weight_only_prepare(Step& step, const Call& call) {
  WeightOnly& args = step.init<WeightOnly>();
  args.m = static_cast<uint32_t>(call.scalars[0]);
  args.x = static_cast<const float*>(call.buffers[0]);
  args.weights = read_panel16(call.buffers[1]);
  args.y = static_cast<float*>(call.buffers[2]);
  args.padded = static_cast<float*>(call.buffers[3]);
  const Panel16& w = args.weights;
  args.stride = padded_stride(w);
  args.sums = args.padded + size_t{args.m} * args.stride;
  args.rows_per_tile = std::max(1u, ceil_div(args.m, 4 * call.threads));
  const uint32_t by_size = static_cast<uint32_t>(std::max<size_t>(1, (128u << 10) / w.panel_bytes));
  args.panels_per_tile = std::min(by_size, std::max(1u, w.panel_count / (8 * call.threads)));
  step.phases = 2;
  step.tiles[0] = ceil_div(args.m, args.rows_per_tile);
  step.tiles[1] = ceil_div(w.panel_count, args.panels_per_tile);
  using Choose = void (*)(Step&, bool);
  constexpr Choose kChoose[] = {choose_weight_only<Isa, 1>, choose_weight_only<Isa, 2>, choose_weight_only<Isa, 3>,
                                choose_weight_only<Isa, 4>, choose_weight_only<Isa, 5>, choose_weight_only<Isa, 6>,
                                choose_weight_only<Isa, 7>, choose_weight_only<Isa, 8>};
  kChoose[w.bits - 1](step, w.has_levels);
}

}  // namespace
}  // namespace lowbit
