// Linear layers with float activations over panel16 weights, written once for all x86 vectors. A lane is a row of a
// panel.
#pragma once

#include "fields.h"
#include "float_panels.h"
#include "panel16_linear.h"
#include "weight_only_call.h"

namespace lowbit {
// A copy for each file that includes this: one shared copy would run with the instruction set of just any of them.
namespace {

// Panels of packed weights that make one of floats.
template <class Isa>
constexpr uint32_t kPackedPanels = kPanelColumns<Isa> / 16;

template <class Isa>
size_t weight_only_panel16_scratch(const Call& call) {
  return weight_only_scratch_bytes(call, read_panel16(buffer_of<void>(call, packed_linear::kWeights)),
                                   kPanelColumns<Isa>);
}

// Lanes of weights 4 f .. 4 f + 3, one in each byte.
template <class Isa, int Bits, int Index>
inline LOWBIT_INLINE typename Isa::Words unpack_words(const typename Isa::Words* chunk) {
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

// What a group's rows have in common, one row a lane.
template <class Isa>
struct LaneGroup {
  // Of the weights as stored, or of levels + 128, with what `byte_floats` wants added.
  typename Isa::V zero, scale;
};

// The rows from `lane` on.
template <class Isa>
inline LaneGroup<Isa> lane_group(const Panel16& w, const uint8_t* group, uint32_t lane) {
  auto zero = Isa::set(Isa::kByteFloat + (w.has_levels ? 128 : 1 << (w.bits - 1)));
  if (w.has_zeros) zero = zero + Isa::load_integers(reinterpret_cast<const int8_t*>(group) + w.zeros_offset + lane);
  return {zero, w.f16_scales ? Isa::load_halves(reinterpret_cast<const uint16_t*>(group) + lane)
                             : Isa::load(reinterpret_cast<const float*>(group) + lane)};
}

// Activation rows `row` .. `row + Rows` with all rows of panel `index`, in so many vectors.
template <class Isa, int Bits, bool Levels, int Rows>
inline void weight_only_block(const WeightOnly& args, uint32_t index, uint32_t row) {
  using V = typename Isa::V;
  constexpr int kVectors = Fields<Bits>::kVectors, kFields = Fields<Bits>::kFields;
  constexpr int kParts = 16 / Isa::kLanes;
  // Independent sums of a row, so that additions do not wait for each other.
  constexpr int kSums = Rows * kParts == 1 ? 4 : Rows * kParts <= 3 ? 2 : 1;
  const Panel16& w = args.weights;
  // As wide as addresses, so that compilers make no index of its own for each load.
  const size_t stride = args.stride;
  const float* from = args.padded + row * stride;
  const auto levels = levels_of<Isa, Bits>(w);
  const uint8_t* group = w.panel(index);
  V total[Rows][kParts];
  for (int i = 0; i < Rows * kParts; i++) total[i / kParts][i % kParts] = Isa::set(0);
  for (uint32_t g = 0; g < w.groups; g++, group += w.group_bytes) {
    LaneGroup<Isa> lanes[kParts];
    for (int part = 0; part < kParts; part++) lanes[part] = lane_group<Isa>(w, group, Isa::kLanes * part);
    V sum[Rows][kParts][kSums];
    for (auto& row_sums : sum)
      for (auto& part_sums : row_sums)
        for (V& one : part_sums) one = Isa::set(0);
    const uint8_t* at = group + w.vectors_offset;
    for (uint32_t c = 0; c < w.group_length; c += 4 * kFields, at += 64 * kVectors, from += 4 * kFields) {
      typename Isa::Words chunk[kParts][kVectors];
      for (int v = 0; v < kVectors; v++) {
        if (Rows == 1) __builtin_prefetch(at + 64 * v + 4096, 0, 2);
        for (int part = 0; part < kParts; part++)
          chunk[part][v] = Isa::load_words(at + 64 * v + 4 * Isa::kLanes * part);
      }
      each_index<kFields>([&](auto f) LOWBIT_INLINE {
        typename Isa::Words four[kParts];
        for (int part = 0; part < kParts; part++) {
          four[part] = unpack_words<Isa, Bits, f>(chunk[part]);
          if constexpr (Levels) four[part] = Isa::lookup(levels, four[part]);
        }
        each_index<4>([&](auto j) LOWBIT_INLINE {
          V weight[kParts];
          for (int part = 0; part < kParts; part++)
            weight[part] = Isa::template byte_floats<j>(four[part]) - lanes[part].zero;
          each_index<Rows>([&](auto m) LOWBIT_INLINE {
            const V value = Isa::set(from[m * stride + 4 * f + j]);
            for (int part = 0; part < kParts; part++) {
              V& all = sum[m][part][j % kSums];
              all = Isa::multiply_add(value, weight[part], all);
            }
          });
        });
      });
    }
    each_index<Rows * kParts>([&](auto i) LOWBIT_INLINE {
      constexpr int kRow = i / kParts, kPart = i % kParts;
      V all = sum[kRow][kPart][0];
      for (int s = 1; s < kSums; s++) all = all + sum[kRow][kPart][s];
      total[kRow][kPart] = Isa::multiply_add(all, lanes[kPart].scale, total[kRow][kPart]);
    });
  }
  for (uint32_t part = 0, column = 16 * index; part < kParts && column < w.n; part++, column += Isa::kLanes) {
    const float* bias = reinterpret_cast<const float*>(w.panel(index) + w.bias_offset) + Isa::kLanes * part;
    for (int m = 0; m < Rows; m++) {
      const V value = w.has_bias ? total[m][part] + Isa::load(bias) : total[m][part];
      float* y = args.y + (size_t{row} + m) * w.n + column;
      if (column + Isa::kLanes <= w.n) Isa::store(y, value);
      else Isa::store_some(y, value, w.n - column);
    }
  }
}

// A panel as floats, [k][kPanelColumns] of which it fills 16.
template <class Isa, int Bits, bool Levels>
void unpack_floats(const Panel16& w, uint32_t index, float* out) {
  constexpr int kVectors = Fields<Bits>::kVectors, kFields = Fields<Bits>::kFields;
  const auto levels = levels_of<Isa, Bits>(w);
  for (uint32_t lane = 0; lane < 16; lane += Isa::kLanes) {
    const uint8_t* group = w.panel(index);
    float* to = out + lane;
    for (uint32_t g = 0; g < w.groups; g++, group += w.group_bytes) {
      const LaneGroup<Isa> lanes = lane_group<Isa>(w, group, lane);
      const uint8_t* at = group + w.vectors_offset + 4 * lane;
      for (uint32_t c = 0; c < w.group_length; c += 4 * kFields, at += 64 * kVectors) {
        typename Isa::Words chunk[kVectors];
        for (int v = 0; v < kVectors; v++) chunk[v] = Isa::load_words(at + 64 * v);
        each_index<kFields>([&](auto f) LOWBIT_INLINE {
          auto four = unpack_words<Isa, Bits, f>(chunk);
          if constexpr (Levels) four = Isa::lookup(levels, four);
          each_index<4>([&](auto j) LOWBIT_INLINE {
            Isa::store(to, (Isa::template byte_floats<j>(four) - lanes.zero) * lanes.scale);
            to += kPanelColumns<Isa>;
          });
        });
      }
    }
  }
}

// All rows of x with panels first .. last.
template <class Isa, int Bits, bool Levels>
void multiply_panels(const WeightOnly& args, uint32_t first, uint32_t last, uint32_t thread) {
  const Panel16& w = args.weights;
  float* panel = args.panels + size_t{thread} * kPanelColumns<Isa> * w.padded_k();
  for (uint32_t p = first; p < last; p += kPackedPanels<Isa>) {
    float bias[kPanelColumns<Isa>];
    for (uint32_t i = 0; i < kPackedPanels<Isa> && p + i < last; i++) {
      unpack_floats<Isa, Bits, Levels>(w, p + i, panel + 16 * i);
      if (w.has_bias) memcpy(bias + 16 * i, w.panel(p + i) + w.bias_offset, 64);
    }
    const uint32_t columns = std::min({kPanelColumns<Isa>, 16 * (last - p), w.n - 16 * p});
    multiply_panel<Isa>({args.padded, args.stride, panel, w.has_bias ? bias : nullptr, args.y + 16 * p, w.n, args.m,
                         w.padded_k(), columns});
  }
}

template <class Isa, int Bits, bool Levels, int Rows>
inline void weight_only_rows(const WeightOnly& args, uint32_t first, uint32_t last, uint32_t row) {
  for (uint32_t p = first; p < last; p++) weight_only_block<Isa, Bits, Levels, Rows>(args, p, row);
}

template <class Isa, int Bits, bool Levels>
void weight_only_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread) {
  const WeightOnly& args = step.as<WeightOnly>();
  if (phase == 0) return pad_rows(args, tile);
  const uint32_t first = tile * args.panels_per_tile;
  const uint32_t last = std::min(args.weights.panel_count, first + args.panels_per_tile);
  if (args.m >= kPanelRowsMin) return multiply_panels<Isa, Bits, Levels>(args, first, last, thread);
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

template <class Isa>
struct WeightOnlyCode {
  template <int Bits, bool Levels>
  static constexpr auto run() {
    return weight_only_run<Isa, Bits, Levels>;
  }
};

template <class Isa>
void weight_only_prepare(Step& step, const Call& call) {
  const Panel16 w = read_panel16(buffer_of<void>(call, packed_linear::kWeights));
  bind_weight_only(step, call, w, kPackedPanels<Isa>);
  step.run = run_for_bits<WeightOnlyCode<Isa>>(w);
}

}  // namespace
}  // namespace lowbit
