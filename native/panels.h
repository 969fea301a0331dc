// Geometry of packed weights in the panel layouts, which src/kernels/layout/panels.ts describes.
#pragma once

#include <cstring>

#include "half.h"
#include "kernel.h"

namespace lowbit {

// Stored groups of 32 weights that share one factor where scales are integers (a super-block of 256 weights).
constexpr uint32_t kSuperGroups = 8;

// Packed weights in panels. A panel's address is that of its first group; its factors lie in front of it.
struct Panels {
  const uint8_t* panels;
  uint32_t bits, n, k, group_size;
  bool f16_scales, has_zeros, has_bias, has_levels;
  // Whether groups have minima; and whether they have minima or zero points. Minima exclude zero points and codebooks.
  bool has_minima, has_offsets;
  // Zero point of groups whose integer scale is odd, with which levels still fit int8; 0 for none. `has_zeros` is for
  // zero points that are stored.
  int8_t odd_zero;
  // Whether no scale is negative.
  bool positive_scales;
  int8_t levels[16];
  // Bytes of a scale or minimum. 1: an integer, to be multiplied with a factor for each row and kSuperGroups groups; or
  // e4m3, to be multiplied with a float factor for each row.
  uint8_t scale_bytes;
  bool e4m3_scales;
  // Groups of 16 within a stored group, each with its own scales and minima; `group_size` is then their sum.
  uint8_t parts;
  // Bytes of one factor for each row, and of all factors of a panel, which lie in front of its first group.
  uint16_t super_bytes;
  uint32_t front_bytes;
  // Weights of a stored group, padded to a multiple of 32; and the number of stored groups along k.
  uint32_t group_length, groups;
  // Bytes from the start of a group to its minima, zero points and weights; bytes of a group.
  uint32_t minima_offset, zeros_offset, vectors_offset, group_bytes;
  uint32_t correction_offset, bias_offset;
  size_t panel_bytes;
  uint32_t panel_count;

  // Whether zero points are stored, or told by odd scales; and whether there are such, or minima.
  bool any_zeros() const { return has_zeros || odd_zero != 0; }
  bool any_offsets() const { return has_offsets || odd_zero != 0; }
  uint32_t padded_k() const { return groups * group_length; }
  // Weights that share a scale, with and without padding, and the number of such groups along k.
  uint32_t part_size() const { return group_size / parts; }
  uint32_t part_length() const { return group_length / parts; }
  uint32_t part_count() const { return groups * parts; }
  // Weights of a part that lie before column k.
  uint32_t part_columns(uint32_t part) const {
    const uint32_t start = part * part_size();
    return start < k ? (part_size() < k - start ? part_size() : k - start) : 0;
  }
  // The factors of the scales of group g, whose address is `group`, one for each row; those of minima follow.
  const uint8_t* factors(const uint8_t* group, uint32_t g) const {
    return group - static_cast<size_t>(g) * group_bytes - front_bytes +
           static_cast<size_t>(g / kSuperGroups) * super_bytes;
  }
  const uint8_t* panel(uint32_t index) const { return panels + index * panel_bytes; }
};

// Computes offsets and sizes of panels of `rows` rows from the sizes of the matrix and the fields of its groups.
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

// Reads the header of packed weights, which TypeScript has checked, with panels of `rows` rows, for the first n rows of
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
  w.has_bias = u16(10) & 2;
  w.has_levels = u16(10) & 4;
  w.has_minima = u16(10) & 8;
  w.has_zeros = (u16(10) & 17) == 1;
  w.odd_zero = u16(10) & 16 ? static_cast<int8_t>(bytes[56]) : 0;
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

// The levels of a codebook in the form in which the instruction set looks them up.
template <class Isa, int Bits>
inline LOWBIT_INLINE auto levels_of(const Panel16& w) {
  return Isa::load_levels(w.levels, 1 << (Bits < 4 ? Bits : 4));
}

}  // namespace lowbit
