// Geometry of packed weights in the panel layouts, which src/kernels/layout/panels.ts describes.
#pragma once

#include <cstring>

#include "half.h"
#include "kernel.h"

namespace lowbit {

// Groups as stored, of 32 weights, that share a factor where scales are integers.
constexpr uint32_t kSuperGroups = 8;

// A panel is where its first group begins.
struct Panels {
  const uint8_t* panels;
  uint32_t bits, n, k, group_size;
  bool f16_scales, has_zeros, has_bias, has_levels;
  // What groups have beside scales: minima, zero points or minima. Minima exclude zero points and codebooks.
  bool has_minima, has_offsets;
  // No scale is negative.
  bool positive_scales;
  int8_t levels[16];
  // Bytes of a scale or minimum; 1: an integer, times a factor of each row and kSuperGroups groups, or e4m3, times a
  // float factor of each row.
  uint8_t scale_bytes;
  bool e4m3_scales;
  // Groups of 16 that one as stored has, each with scales and minima of its own; `group_size` is that of all then.
  uint8_t parts;
  // Of the factors of a panel, in front of its first group, and of one for each row.
  uint16_t super_bytes;
  uint32_t front_bytes;
  // Weights of a group as stored, a multiple of 32, and groups along k.
  uint32_t group_length, groups;
  // Bytes from the start of a group to its minima, zero points and vectors; sizes of group and panel.
  uint32_t minima_offset, zeros_offset, vectors_offset, group_bytes;
  uint32_t correction_offset, bias_offset;
  size_t panel_bytes;
  uint32_t panel_count;

  uint32_t padded_k() const { return groups * group_length; }
  // Weights that share a scale, those that are stored for them, and such groups along k.
  uint32_t part_size() const { return group_size / parts; }
  uint32_t part_length() const { return group_length / parts; }
  uint32_t part_count() const { return groups * parts; }
  // Weights of one, which past k are none.
  uint32_t part_columns(uint32_t part) const {
    const uint32_t start = part * part_size();
    return start < k ? (part_size() < k - start ? part_size() : k - start) : 0;
  }
  // Factors of scales of group g, which begins at `group`, one a row; those of minima follow.
  const uint8_t* factors(const uint8_t* group, uint32_t g) const {
    return group - static_cast<size_t>(g) * group_bytes - front_bytes +
           static_cast<size_t>(g / kSuperGroups) * super_bytes;
  }
  const uint8_t* panel(uint32_t index) const { return panels + index * panel_bytes; }
};

// Offsets and sizes of panels of so many rows, from the sizes of the matrix and what its groups have.
static inline void size_panels(Panels& w, uint32_t rows) {
  w.parts = w.scale_bytes == 1 && w.group_size == 16 ? 2 : 1;
  w.group_size *= w.parts;
  w.has_offsets = w.has_zeros || w.has_minima;
  const uint32_t group = w.group_size < w.k ? w.group_size : w.k;
  w.groups = ceil_div(w.k, w.group_size);
  w.group_length = static_cast<uint32_t>(round_up(group, 32));
  const bool integers = w.scale_bytes == 1 && !w.e4m3_scales;
  w.super_bytes = static_cast<uint16_t>(integers ? 2 * rows * (w.has_minima ? 2 : 1) : 0);
  const uint32_t factor_bytes = w.e4m3_scales ? 4 * rows : ceil_div(w.groups, kSuperGroups) * w.super_bytes;
  w.front_bytes = static_cast<uint32_t>(round_up(factor_bytes, 64));
  w.minima_offset = rows * w.parts * w.scale_bytes;
  w.zeros_offset = w.minima_offset * (w.has_minima ? 2 : 1);
  w.vectors_offset = w.zeros_offset + (w.has_zeros ? rows : 0);
  w.group_bytes = w.vectors_offset + rows * w.group_length * w.bits / 8;
  w.correction_offset = w.groups * w.group_bytes;
  w.bias_offset = w.correction_offset + 4 * rows;
  w.panel_bytes = round_up(w.front_bytes + w.bias_offset + (w.has_bias ? 4 * rows : 0), 64);
  w.panel_count = ceil_div(w.n, rows);
}

// Reads a buffer whose header TypeScript has checked, with panels of so many rows, as far as the first n rows of
// weights.
static inline Panels read_panels(const void* buffer, uint32_t rows, uint32_t n) {
  const uint8_t* bytes = static_cast<const uint8_t*>(buffer);
  auto u16 = [&](int at) {
    uint16_t v;
    memcpy(&v, bytes + at, 2);
    return v;
  };
  auto u32 = [&](int at) {
    uint32_t v;
    memcpy(&v, bytes + at, 4);
    return v;
  };
  Panels w{};
  w.bits = bytes[8];
  w.f16_scales = bytes[9] == 1;
  w.e4m3_scales = bytes[9] == 3;
  w.scale_bytes = w.e4m3_scales ? 1 : static_cast<uint8_t>(4 >> bytes[9]);
  w.has_zeros = u16(10) & 1;
  w.has_bias = u16(10) & 2;
  w.has_levels = u16(10) & 4;
  w.has_minima = u16(10) & 8;
  w.positive_scales = bytes[15] == 1;
  w.n = n;
  w.k = u32(20);
  w.group_size = u32(24);
  memcpy(w.levels, bytes + 40, 16);
  size_panels(w, rows);
  w.panels = bytes + 64 + w.front_bytes;
  return w;
}

using Panel16 = Panels;
static inline Panel16 read_panel16(const void* buffer, uint32_t n) { return read_panels(buffer, 16, n); }

// The levels that weights of a codebook stand for, as the instruction set looks them up.
template <class Isa, int Bits>
inline LOWBIT_INLINE auto levels_of(const Panel16& w) {
  return Isa::load_levels(w.levels, 1 << (Bits < 4 ? Bits : 4));
}

}  // namespace lowbit
