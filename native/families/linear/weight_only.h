// Linear layers with float activations over panel16 weights, for all x86 vectors. A lane is a row of a panel.
#pragma once

#include "fields.h"
#include "float_panels.h"
#include "panel16_linear.h"
#include "weight_only_call.h"

namespace lowbit {
// Anonymous: each file needs its own copy. The linker would keep one for all, compiled for one file's instructions.
namespace {

// Packed panels of a panel of floats.
template <class Isa>
constexpr uint32_t kPackedPanels = kPanelColumns<Isa> / 16;

template <class Isa>
size_t weight_only_panel16_scratch(const Call& call) {
  const auto given = arguments_of<PackedLinearArguments>(call);
  return weight_only_scratch_bytes(call, read_panel16(given.weights, given.n), kPanelColumns<Isa>);
}

// Weights 4 f .. 4 f + 3 of field f in each lane, one per byte.
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

// Zero points and scales of a group, one row per lane.
template <class Isa>
struct LaneGroup {
  // Zero point of the weights as stored, or of levels + 128, plus the constant that `byte_floats` needs; and scales.
  // The second is that of the second group of 16 of a pair.
  typename Isa::V zeros[2], scales[2];
};

// Scales of part `part` of group g, for the rows from `lane` on; not for 8-bit float scales.
template <class Isa>
inline typename Isa::V lane_scales(const Panel16& w, const uint8_t* group, uint32_t g, uint32_t lane, uint32_t part) {
  if (w.f16_scales) return Isa::load_halves(reinterpret_cast<const uint16_t*>(group) + lane);
  if (w.scale_bytes == 4) return Isa::load(reinterpret_cast<const float*>(group) + lane);
  const auto factors = Isa::load_halves(reinterpret_cast<const uint16_t*>(w.factors(group, g)) + lane);
  return Isa::load_integers(reinterpret_cast<const int8_t*>(group) + 16 * part + lane) * factors;
}

// Zero points of part `part` of a group, for the rows from `lane` on.
template <class Isa>
inline typename Isa::V lane_zeros(const Panel16& w, const uint8_t* group, uint32_t lane, uint32_t part) {
  const int8_t* integers = reinterpret_cast<const int8_t*>(group) + lane;
  if (w.odd_zero != 0) return Isa::load_odd(integers + 16 * part) * Isa::set(w.odd_zero);
  return Isa::load_integers(integers + w.zeros_offset);
}

// Loads the group's numbers of the rows from `lane` on.
template <class Isa>
inline LaneGroup<Isa> lane_group(const Panel16& w, const uint8_t* group, uint32_t g, uint32_t lane) {
  const auto offset = Isa::set(Isa::kByteFloat + (w.has_levels ? 128 : 1 << (w.bits - 1)));
  const bool has_zeros = w.has_zeros || w.odd_zero != 0;
  const auto zero = has_zeros ? offset + lane_zeros<Isa>(w, group, lane, 0) : offset;
  const auto scales = lane_scales<Isa>(w, group, g, lane, 0);
  if (w.parts == 1) return {{zero, zero}, {scales, scales}};
  const auto second = has_zeros ? offset + lane_zeros<Isa>(w, group, lane, 1) : offset;
  return {{zero, second}, {scales, lane_scales<Isa>(w, group, g, lane, 1)}};
}

// Panels that a block of rows multiplies at once: several, whose independent sums do not wait for each other, or 1
// where registers hold the sums of one only.
template <class Isa, int Rows>
constexpr uint32_t panels_of_rows() {
  return Isa::kLanes < 16 ? 1 : Rows == 1 ? 4 : Rows < 4 ? 2 : 1;
}

// GEMV: multiplies rows row .. row + Rows - 1 of activations by kPanels panels from `index` on, of which those past
// `last` repeat it.
template <class Isa, int Bits, bool Levels, int Rows>
inline void weight_only_block(const WeightOnly& args, uint32_t index, uint32_t last, uint32_t row) {
  using V = typename Isa::V;
  constexpr int kVectors = Fields<Bits>::kVectors, kFields = Fields<Bits>::kFields;
  constexpr int kPanels = panels_of_rows<Isa, Rows>(), kPanelParts = 16 / Isa::kLanes, kParts = kPanels * kPanelParts;
  const Panel16& w = args.weights;
  // size_t, as wide as addresses, so that compilers need no separate index for each load.
  const size_t stride = args.stride;
  const float* from = args.padded + row * stride;
  const auto levels = levels_of<Isa, Bits>(w);
  const uint8_t* group[kPanels];
  for (uint32_t p = 0; p < kPanels; p++) group[p] = w.panel(std::min(index + p, last));
  V total[Rows][kParts];
  each_index<Rows * kParts>([&](auto i) LOWBIT_INLINE { total[i / kParts][i % kParts] = Isa::set(0); });
  for (uint32_t g = 0; g < w.groups; g++) {
    LaneGroup<Isa> lanes[kParts];
    each_index<kParts>([&](auto part) LOWBIT_INLINE {
      lanes[part] = lane_group<Isa>(w, group[part / kPanelParts], g, Isa::kLanes * (part % kPanelParts));
    });
    V sum[Rows][kParts];
    each_index<Rows * kParts>([&](auto i) LOWBIT_INLINE { sum[i / kParts][i % kParts] = Isa::set(0); });
    uint32_t at = w.vectors_offset;
    const auto end_part = [&](auto panel, int set) LOWBIT_INLINE {
      each_index<Rows * kPanelParts>([&](auto i) LOWBIT_INLINE {
        constexpr int kRow = i / kPanelParts, kPart = panel * kPanelParts + i % kPanelParts;
        total[kRow][kPart] = Isa::multiply_add(sum[kRow][kPart], lanes[kPart].scales[set], total[kRow][kPart]);
        sum[kRow][kPart] = Isa::set(0);
        if (set == 0) lanes[kPart].zeros[0] = lanes[kPart].zeros[1];
      });
    };
    for (uint32_t c = 0; c < w.group_length; c += 4 * kFields, at += 64 * kVectors, from += 4 * kFields) {
      // One panel after the other: registers hold the loads of one.
      each_index<kPanels>([&](auto panel) LOWBIT_INLINE {
        constexpr int kFirst = panel * kPanelParts;
        typename Isa::Words chunk[kPanelParts][kVectors];
        for (int v = 0; v < kVectors; v++) {
          const uint8_t* vector = group[panel] + at + 64 * v;
          if (Rows == 1) __builtin_prefetch(vector + 4096, 0, 2);
          for (int part = 0; part < kPanelParts; part++)
            chunk[part][v] = Isa::load_words(vector + 4 * Isa::kLanes * part);
        }
        each_index<kFields>([&](auto f) LOWBIT_INLINE {
          typename Isa::Words four[kPanelParts];
          for (int part = 0; part < kPanelParts; part++) {
            four[part] = unpack_words<Isa, Bits, f>(chunk[part]);
            if constexpr (Levels) four[part] = Isa::lookup(levels, four[part]);
          }
          each_index<4>([&](auto j) LOWBIT_INLINE {
            V weight[kPanelParts];
            for (int part = 0; part < kPanelParts; part++)
              weight[part] = Isa::template byte_floats<j>(four[part]) - lanes[kFirst + part].zeros[0];
            for (int m = 0; m < Rows; m++) {
              const V value = Isa::set(from[m * stride + 4 * f + j]);
              for (int part = 0; part < kPanelParts; part++)
                sum[m][kFirst + part] = Isa::multiply_add(value, weight[part], sum[m][kFirst + part]);
            }
          });
          if constexpr (kMayPair<Bits, Levels> && (4 * f + 4) % std::min(16, 4 * kFields) == 0)
            if (w.parts == 2 && (c + 4 * f + 4) % 16 == 0) end_part(panel, c + 4 * f + 4 == 16 ? 0 : 1);
        });
      });
    }
    if (w.parts == 1) each_index<kPanels>([&](auto panel) LOWBIT_INLINE { end_part(panel, 0); });
    for (const uint8_t*& each : group) each += w.group_bytes;
  }
  each_index<kParts>([&](auto part) LOWBIT_INLINE {
    const uint32_t panel = std::min(index + part / kPanelParts, last), lane = Isa::kLanes * (part % kPanelParts);
    const uint32_t column = 16 * panel + lane;
    if (column >= w.n) return;
    const V bias =
        w.has_bias ? Isa::load(reinterpret_cast<const float*>(w.panel(panel) + w.bias_offset) + lane) : Isa::set(0);
    each_index<Rows>([&](auto m) LOWBIT_INLINE {
      float* y = args.y + (size_t{row} + m) * w.n + column;
      if (column + Isa::kLanes <= w.n) Isa::store(y, total[m][part] + bias);
      else Isa::store_some(y, total[m][part] + bias, w.n - column);
    });
  });
}

// Unpacks a panel to 16 columns of a panel of floats: level - zero [k][kPanelColumns], and scales
// [groups][kPanelColumns].
template <class Isa, int Bits, bool Levels>
void unpack_floats(const Panel16& w, uint32_t index, float* out, float* scales) {
  constexpr int kVectors = Fields<Bits>::kVectors, kFields = Fields<Bits>::kFields;
  const auto levels = levels_of<Isa, Bits>(w);
  for (uint32_t lane = 0; lane < 16; lane += Isa::kLanes) {
    const uint8_t* group = w.panel(index);
    float* to = out + lane;
    for (uint32_t g = 0; g < w.groups; g++, group += w.group_bytes) {
      const LaneGroup<Isa> lanes = lane_group<Isa>(w, group, g, lane);
      for (uint32_t part = 0; part < w.parts; part++)
        Isa::store(scales + (g * w.parts + part) * kPanelColumns<Isa> + lane, lanes.scales[part]);
      const uint8_t* at = group + w.vectors_offset + 4 * lane;
      for (uint32_t c = 0; c < w.group_length; c += 4 * kFields, at += 64 * kVectors) {
        typename Isa::Words chunk[kVectors];
        for (int v = 0; v < kVectors; v++) chunk[v] = Isa::load_words(at + 64 * v);
        each_index<kFields>([&](auto f) LOWBIT_INLINE {
          auto four = unpack_words<Isa, Bits, f>(chunk);
          if constexpr (Levels) four = Isa::lookup(levels, four);
          const auto zero = lanes.zeros[w.parts == 2 && c + 4 * f >= 16 ? 1 : 0];
          each_index<4>([&](auto j) LOWBIT_INLINE {
            Isa::store(to, Isa::template byte_floats<j>(four) - zero);
            to += kPanelColumns<Isa>;
          });
        });
      }
    }
  }
}

// GEMM: multiplies all rows of x by panels first .. last - 1, unpacked to floats.
template <class Isa, int Bits, bool Levels>
void multiply_panels(const WeightOnly& args, uint32_t first, uint32_t last, uint32_t thread) {
  const Panel16& w = args.weights;
  float* panel = args.panels + thread * panel_floats(w, kPanelColumns<Isa>);
  float* scales = panel + size_t{kPanelColumns<Isa>} * w.padded_k();
  for (uint32_t p = first; p < last; p += kPackedPanels<Isa>) {
    float bias[kPanelColumns<Isa>];
    for (uint32_t i = 0; i < kPackedPanels<Isa> && p + i < last; i++) {
      unpack_floats<Isa, Bits, Levels>(w, p + i, panel + 16 * i, scales + 16 * i);
      if (w.has_bias) memcpy(bias + 16 * i, w.panel(p + i) + w.bias_offset, 64);
    }
    const uint32_t columns = std::min({kPanelColumns<Isa>, 16 * (last - p), w.n - 16 * p});
    multiply_panel<Isa, GroupSums<Isa>>({args.padded, args.stride, panel, w.has_bias ? bias : nullptr, args.y + 16 * p,
                                         w.n, args.m, w.padded_k(), columns, scales, w.part_length()});
  }
}

template <class Isa, int Bits, bool Levels, int Rows>
inline void weight_only_rows(const WeightOnly& args, uint32_t first, uint32_t last, uint32_t row) {
  for (uint32_t p = first; p < last; p += panels_of_rows<Isa, Rows>())
    weight_only_block<Isa, Bits, Levels, Rows>(args, p, last - 1, row);
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
  const auto given = arguments_of<PackedLinearArguments>(call);
  const Panel16 w = read_panel16(given.weights, given.n);
  bind_weight_only(step, call, w, kPackedPanels<Isa>);
  step.run = run_for_bits<WeightOnlyCode<Isa>>(w);
}

}  // namespace
}  // namespace lowbit
