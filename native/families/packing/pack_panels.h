// Packs quantized rows into the panel layouts, byte for byte as src/kernels/layout/panels.ts.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "../../half.h"
#include "../linear/packed_rows.h"
#include "arguments.h"

namespace lowbit {
namespace {

struct PackArgs {
  const int8_t* qvals;
  const float* scales;
  // Optional, as are levels and minima: null if absent.
  const int8_t* zeros;
  const int8_t* levels;
  const float* minima;
  // Factors of integer scales and minima.
  const float *super_scales, *super_minima;
  uint8_t* target;
  // Set to 1 when a scale is negative, or -0.
  int32_t* negative;
  // Geometry of the packed panels; its `panels` stays null.
  Panels shape;
  uint32_t n, panels_per_tile;
};
static_assert(sizeof(PackArgs) <= kArgsMax);

// Integers 4 step .. 4 step + 3 of a row of `count`, made unsigned, one per byte; 0 past the end.
template <int Bits>
inline uint32_t word_of(const int8_t* q, uint32_t count, uint32_t step) {
  constexpr uint32_t kFlips = 0x01010101u * (1u << (Bits - 1)), kKeep = 0x01010101u * ((1u << Bits) - 1);
  uint32_t word = 0;
  if (4 * step + 4 <= count) {
    memcpy(&word, q + 4 * step, 4);
    return (word ^ kFlips) & kKeep;
  }
  if (4 * step >= count) return 0;
  const uint32_t some = count - 4 * step;
  memcpy(&word, q + 4 * step, some);
  return (word ^ kFlips) & kKeep & ((1u << (8 * some)) - 1);
}

// Stores the kVectors words into which kFields words are packed; `value(f)` is word f.
template <class Places, int Bits, class Value>
inline void store_words(uint8_t* at, Value value) {
  constexpr int kVectors = Fields<Bits>::kVectors, kFields = Fields<Bits>::kFields;
  uint32_t words[kVectors] = {};
  for (int f = 0; f < kFields; f++) {
    const Field field = Fields<Bits>::field(f);
    const uint32_t word = value(f);
    for (int p = 0; p < field.pieces; p++) {
      const FieldPiece& piece = field.piece[p];
      words[piece.vector] |= ((word >> piece.at) & 0x01010101u * ((1u << piece.width) - 1)) << piece.shift;
    }
  }
  for (int v = 0; v < kVectors; v++) {
    const uint32_t word = words[v] ^ Places::kFlip;
    memcpy(at + Places::kVectorBytes * v, &word, 4);
  }
}

// Packs one group of a panel. Integers of row r begin at `rows[r]`, which is null past the last row.
template <int Bits>
void pack_group(Panel16Places, const int8_t* const* rows, uint32_t count, uint32_t steps, uint8_t* vectors) {
  constexpr uint32_t kFields = Fields<Bits>::kFields;
  for (uint32_t step = 0; step < steps; step += kFields)
    for (uint32_t lane = 0; lane < Panel16Places::kRows; lane++)
      store_words<Panel16Places, Bits>(vectors + Panel16Places::byte<Bits>(lane, step), [&](uint32_t f) {
        return rows[lane] ? word_of<Bits>(rows[lane], count, step + f) : 0;
      });
}

template <int Bits>
void pack_group(Panel32Places, const int8_t* const* rows, uint32_t count, uint32_t steps, uint8_t* vectors) {
  constexpr uint32_t kFields = Fields<Bits>::kFields;
  for (uint32_t step = 0; step < steps; step++)
    for (uint32_t first = 0; first < Panel32Places::kRows; first += 4 * kFields)
      for (uint32_t lane = first; lane < first + 4; lane++)
        store_words<Panel32Places, Bits>(vectors + Panel32Places::byte<Bits>(lane, step), [&](uint32_t f) {
          const int8_t* row = rows[lane + 4 * f];
          return row ? word_of<Bits>(row, count, step) : 0;
        });
}

// Sum of (level - zero) over a group.
inline int64_t level_sum(const PackArgs& args, const int8_t* q, uint32_t count, int32_t zero) {
  int32_t sum = 0;
  if (args.levels) {
    for (uint32_t i = 0; i < count; i++) sum += args.levels[q[i] + (1 << (args.shape.bits - 1))];
  } else {
    for (uint32_t i = 0; i < count; i++) sum += q[i];
  }
  return sum - static_cast<int64_t>(count) * zero;
}

// Stores `sign` times a scale or minimum of group g of a row: as a float, or as the integer that gives it when
// multiplied with its factor.
inline void store_number(const Panels& w, float value, const float* factors, size_t row, uint32_t g, float sign,
                         uint8_t* at) {
  const float stored = value * sign;
  const uint16_t half = float_to_half(stored);
  if (w.scale_bytes == 4) memcpy(at, &stored, 4);
  if (w.scale_bytes == 2) memcpy(at, &half, 2);
  if (w.scale_bytes > 1) return;
  if (w.e4m3_scales) {
    *at = factors[row] == 0 ? 0 : float_to_e4m3(value / factors[row]);
    return;
  }
  const float factor = factors[row * ceil_div(w.groups, kSuperGroups) + g / kSuperGroups];
  *at = static_cast<uint8_t>(static_cast<int8_t>(factor == 0 ? 0 : std::lrint(value / factor)));
}

// Stores the factors of `rows` rows of a panel, in front of its groups.
inline void store_factors(const Panels& w, const float* factors, size_t first, uint32_t rows, float sign, uint8_t* at) {
  if (w.e4m3_scales) {
    memcpy(at, factors + first, 4 * rows);
    return;
  }
  const uint32_t count = ceil_div(w.groups, kSuperGroups);
  for (uint32_t i = 0; i < count; i++, at += w.super_bytes)
    for (uint32_t r = 0; r < rows; r++) {
      const uint16_t half = float_to_half(sign * factors[(first + r) * count + i]);
      memcpy(at + 2 * r, &half, 2);
    }
}

// Stores scale, zero point and minimum of row `first + r` for a group that shares them; returns the sum of its weights.
inline double store_part(const PackArgs& args, uint8_t* group, uint32_t first, uint32_t r, uint32_t part,
                         uint32_t panel_rows) {
  const Panels& w = args.shape;
  const size_t row = first + r, index = row * ceil_div(w.k, w.part_size()) + part;
  const uint32_t count = w.part_columns(part), g = part / w.parts;
  if (count == 0) return 0;
  const size_t place = part % w.parts * panel_rows + r;
  const float scale = args.scales[index];
  if (std::signbit(scale) && scale == scale) *args.negative = 1;
  store_number(w, scale, args.super_scales, row, g, 1, group + w.scale_bytes * place);
  int32_t zero = w.has_minima ? -(1 << (w.bits - 1)) : 0;
  if (args.zeros) zero = args.zeros[index];
  if (w.has_zeros) group[w.zeros_offset + r] = static_cast<uint8_t>(zero);
  const int8_t* q = args.qvals + row * w.k + part * w.part_size();
  double sum = static_cast<double>(level_sum(args, q, count, zero)) * static_cast<double>(scale);
  if (w.has_minima) {
    store_number(w, args.minima[index], args.super_minima, row, g, -1, group + w.minima_offset + w.scale_bytes * place);
    sum += static_cast<double>(count) * static_cast<double>(args.minima[index]);
  }
  return sum;
}

template <class Places, int Bits>
void pack_panel(const PackArgs& args, uint32_t panel) {
  const Panels& w = args.shape;
  uint8_t* const front = args.target + panel * w.panel_bytes;
  uint8_t* at = front + w.front_bytes;
  const uint32_t first = panel * Places::kRows, rows = std::min(Places::kRows, args.n - first);
  if (w.scale_bytes == 1) {
    store_factors(w, args.super_scales, first, rows, 1, front);
    if (w.has_minima) store_factors(w, args.super_minima, first, rows, -1, front + 2 * Places::kRows);
  }
  double corrections[Places::kRows] = {};
  for (uint32_t g = 0; g < w.groups; g++) {
    const uint32_t start = g * w.group_size, count = std::min(w.group_size, w.k - start);
    uint8_t* group = at + static_cast<size_t>(g) * w.group_bytes;
    const int8_t* q[Places::kRows] = {};
    for (uint32_t r = 0; r < rows; r++) {
      q[r] = args.qvals + static_cast<size_t>(first + r) * w.k + start;
      for (uint32_t i = 0; i < w.parts; i++)
        corrections[r] += store_part(args, group, first, r, g * w.parts + i, Places::kRows);
    }
    pack_group<Bits>(Places{}, q, count, w.group_length / 4, group + w.vectors_offset);
  }
  for (uint32_t r = 0; r < rows; r++) {
    const float correction = static_cast<float>(corrections[r]);
    memcpy(at + w.correction_offset + 4 * r, &correction, 4);
  }
}

template <class Places>
struct PackPanels {
  template <int Bits>
  static void run(const Step& step, uint32_t, uint32_t tile, uint32_t) {
    const PackArgs& args = step.as<PackArgs>();
    const uint32_t first = tile * args.panels_per_tile;
    const uint32_t last = std::min(args.shape.panel_count, first + args.panels_per_tile);
    for (uint32_t panel = first; panel < last; panel++) pack_panel<Places, Bits>(args, panel);
  }

  static void prepare(Step& step, const Call& call) {
    const auto given = arguments_of<QuantizePackArguments>(call);
    PackArgs& args = step.init<PackArgs>();
    Panels& w = args.shape;
    w = {};
    args.n = w.n = given.n;
    w.k = given.k;
    w.group_size = given.group_size;
    w.bits = given.bits;
    w.scale_bytes = given.scale_bytes;
    w.e4m3_scales = given.has_e4m3;
    w.has_minima = given.minima;
    w.odd_zero = static_cast<int8_t>(given.odd_zero);
    w.has_zeros = given.zeros && w.odd_zero == 0;
    w.has_levels = given.levels;
    w.has_bias = given.has_bias;
    size_panels(w, Places::kRows);
    args.qvals = given.qvals;
    args.scales = given.scales;
    args.zeros = given.zeros;
    args.levels = given.levels;
    args.minima = given.minima;
    args.super_scales = given.super_scales;
    args.super_minima = given.super_minima;
    args.target = given.panels;
    args.negative = given.negative;
    args.panels_per_tile = std::max(1u, w.panel_count / (8 * call.threads));
    step.phases = 1;
    step.tiles[0] = ceil_div(w.panel_count, args.panels_per_tile);
    using Run = decltype(Step::run);
    constexpr Run kRuns[] = {run<1>, run<2>, run<3>, run<4>, run<5>, run<6>, run<7>, run<8>};
    step.run = kRuns[w.bits - 1];
  }
};

}  // namespace
}  // namespace lowbit
