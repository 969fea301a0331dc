// Decodes rows of packed weights of any layout, in portable code: for kernels that have no vectors.
#pragma once

#include <algorithm>
#include <cstring>

#include "../../half.h"
#include "../../panels.h"
#include "fields.h"
#include "torchao_chunk.h"

namespace lowbit {
namespace {

// Sizes of the weights as the call gives them: TorchAO's header lacks them.
struct WeightShape {
  uint32_t n, k, group_size;
};

// Where a decoded row goes: values[g * group_stride + c] = level - zero of weight c of stored group g; scales and
// minima of each group, of which a stored group has one, or two of 16 weights.
template <class T>
struct DecodedRow {
  T* values;
  float* scales;
  // Written only where there are minima.
  float* minima;
  size_t group_stride;
};

// Four weights of a row, one per byte, from the words of the vectors that hold them.
template <int Bits>
inline uint32_t field_of(const uint32_t* words, int index) {
  const Field field = Fields<Bits>::field(index);
  uint32_t value = 0;
  for (int p = 0; p < field.pieces; p++) {
    const FieldPiece& piece = field.piece[p];
    const uint32_t mask = 0x01010101u * ((1u << piece.width) - 1);
    value |= ((words[piece.vector] >> piece.shift) & mask) << piece.at;
  }
  return value;
}

// Rows of a panel layout. `Places` gives the places of weights 4 step .. 4 step + 3 of row `lane` in a panel.
template <class Places>
struct PanelRows {
  static constexpr uint32_t kRows = Places::kRows;

  static Panels open(const void* buffer, const WeightShape& shape) { return read_panels(buffer, kRows, shape.n); }

  static float bias(const Panels& w, uint32_t row) {
    float value = 0;
    if (w.has_bias) memcpy(&value, w.panel(row / kRows) + w.bias_offset + 4 * (row % kRows), 4);
    return value;
  }

  // Decodes rows `lane` .. `lane + count - 1` of a panel to rows[0] .. rows[count - 1].
  template <int Bits, class T>
  static void read(const Panels& w, uint32_t panel, uint32_t lane, uint32_t count, const DecodedRow<T>* rows) {
    for (uint32_t i = 0; i < count; i++) read_row<Bits>(w, w.panel(panel), lane + i, rows[i]);
  }

 private:
  template <int Bits, class T>
  static void read_row(const Panels& w, const uint8_t* group, uint32_t lane, const DecodedRow<T>& row) {
    for (uint32_t g = 0; g < w.groups; g++, group += w.group_bytes)
      for (uint32_t i = 0; i < w.parts; i++) {
        const uint32_t part = g * w.parts + i, place = i * kRows + lane;
        row.scales[part] = number(w, group, g, 0, place, lane);
        if (w.has_minima) row.minima[part] = -number(w, group, g, w.minima_offset, place, kRows + lane);
        const int32_t zero = w.has_minima ? -(1 << (Bits - 1)) : zero_at(w, group, lane, place);
        const uint32_t start = i * w.part_length();
        read_group<Bits>(w, group + w.vectors_offset, {lane, start, w.part_columns(part)}, zero,
                         row.values + g * row.group_stride + start);
      }
  }

  // Zero point of row `lane`, whose scale is number `place` of a stored group.
  static int32_t zero_at(const Panels& w, const uint8_t* group, uint32_t lane, uint32_t place) {
    if (w.odd_zero != 0) return w.odd_zero * (group[place] & 1);
    if (!w.has_zeros) return 0;
    return static_cast<int8_t>(group[w.zeros_offset + lane]);
  }

  // A scale or minimum of group g: number `place` of those at `offset`. Integers are multiplied by factor number
  // `factor`.
  static float number(const Panels& w, const uint8_t* group, uint32_t g, uint32_t offset, uint32_t place,
                      uint32_t factor) {
    const uint8_t* at = group + offset + w.scale_bytes * place;
    if (w.scale_bytes == 4) {
      float value;
      memcpy(&value, at, 4);
      return value;
    }
    if (w.e4m3_scales) {
      float value;
      memcpy(&value, w.factors(group, g) + 4 * factor, 4);
      return e4m3_to_float(*at) * value;
    }
    uint16_t half;
    memcpy(&half, w.scale_bytes == 2 ? at : w.factors(group, g) + 2 * factor, 2);
    const float value = half_to_float(half);
    return w.scale_bytes == 2 ? value : static_cast<float>(static_cast<int8_t>(*at)) * value;
  }

  // Weights `start` .. `start + count - 1` of row `lane` in a group.
  struct Run {
    uint32_t lane, start, count;
  };

  template <int Bits, class T>
  static void read_group(const Panels& w, const uint8_t* vectors, const Run& run, int32_t zero, T* values) {
    constexpr int kVectors = Fields<Bits>::kVectors;
    const uint32_t lane = run.lane;
    for (uint32_t c = 0; c < run.count; c += 4) {
      const uint32_t step = (run.start + c) / 4;
      const uint8_t* at = vectors + Places::template byte<Bits>(lane, step);
      uint32_t words[kVectors];
      for (int v = 0; v < kVectors; v++) {
        memcpy(&words[v], at + Places::kVectorBytes * v, 4);
        words[v] ^= Places::kFlip;
      }
      const uint32_t four = field_of<Bits>(words, Places::template field<Bits>(lane, step));
      for (uint32_t j = 0; j < 4 && c + j < run.count; j++) {
        const int32_t stored = (four >> (8 * j)) & 255;
        const int32_t level = w.has_levels ? w.levels[stored & 15] : stored - (1 << (Bits - 1));
        values[c + j] = static_cast<T>(level - zero);
      }
    }
  }
};

// Places in the layout of src/kernels/layout/panel16.ts.
struct Panel16Places {
  static constexpr uint32_t kRows = 16, kVectorBytes = 64, kFlip = 0;
  template <int Bits>
  static uint32_t byte(uint32_t lane, uint32_t step) {
    return step / Fields<Bits>::kFields * Fields<Bits>::kVectors * kVectorBytes + 4 * lane;
  }
  template <int Bits>
  static int field(uint32_t, uint32_t step) {
    return step % Fields<Bits>::kFields;
  }
};

// Places in the layout of src/kernels/layout/panel32.ts.
struct Panel32Places {
  static constexpr uint32_t kRows = 32, kVectorBytes = 16, kFlip = 0x80808080;
  template <int Bits>
  static uint32_t byte(uint32_t lane, uint32_t step) {
    const uint32_t unit = lane / 4 / Fields<Bits>::kFields, units = 8 / Fields<Bits>::kFields;
    return (step * units + unit) * Fields<Bits>::kVectors * kVectorBytes + 4 * (lane & 3);
  }
  template <int Bits>
  static int field(uint32_t lane, uint32_t) {
    return lane / 4 % Fields<Bits>::kFields;
  }
};

// Rows of TorchAO's universal layout, as in src/kernels/layout/torchao-linear.ts.
struct TorchaoRows {
  static constexpr uint32_t kRows = 8, kStep = 16, kSegment = 8, kChunk = 128;

  static Panels open(const void* buffer, const WeightShape& shape) {
    const uint8_t* bytes = static_cast<const uint8_t*>(buffer);
    int32_t header[5];
    memcpy(header, bytes, sizeof header);
    Panels w{};
    w.panels = bytes + 64;
    w.bits = static_cast<uint32_t>(header[2]);
    w.has_zeros = header[3] != 0;
    w.has_bias = header[4] != 0;
    w.n = shape.n;
    w.k = shape.k;
    w.group_size = shape.group_size;
    w.group_length = std::min(w.group_size, w.k);
    w.groups = ceil_div(w.k, w.group_size);
    w.parts = 1;
    w.vectors_offset = 0;
    // A group's weights are followed by its scales, sums and zero points, 4 bytes each.
    w.zeros_offset = kRows * w.group_length * w.bits / 8;
    w.group_bytes = w.zeros_offset + kRows * (w.has_zeros ? 12 : 8);
    w.bias_offset = w.groups * w.group_bytes;
    w.panel_bytes = w.bias_offset + (w.has_bias ? 4 * kRows : 0);
    w.panel_count = ceil_div(w.n, kRows);
    return w;
  }

  static float bias(const Panels& w, uint32_t row) {
    float value = 0;
    if (w.has_bias) memcpy(&value, w.panel(row / kRows) + w.bias_offset + 4 * (row % kRows), 4);
    return value;
  }

  template <int Bits, class T>
  static void read(const Panels& w, uint32_t panel, uint32_t lane, uint32_t count, const DecodedRow<T>* rows) {
    const uint8_t* group = w.panel(panel);
    for (uint32_t g = 0; g < w.groups; g++, group += w.group_bytes) {
      int32_t zeros[kRows] = {};
      if (w.has_zeros) memcpy(zeros, group + w.zeros_offset + 8 * kRows, sizeof zeros);
      for (uint32_t i = 0; i < count; i++) memcpy(&rows[i].scales[g], group + w.zeros_offset + 4 * (lane + i), 4);
      for (uint32_t start = 0; start < w.group_length; start += kStep) {
        uint8_t values[kChunk];
        unpack_chunk<Bits>(group + start * kRows * Bits / 8, kChunk, values);
        for (uint32_t i = 0; i < count; i++) {
          T* out = rows[i].values + g * rows[i].group_stride + start;
          for (uint32_t c = 0; c < kStep; c++) {
            const uint8_t stored = values[c / kSegment * kRows * kSegment + (lane + i) * kSegment + c % kSegment];
            const int32_t q = Bits == 8 ? static_cast<int8_t>(stored) : stored - (1 << (Bits - 1));
            out[c] = static_cast<T>(q - zeros[lane + i]);
          }
        }
      }
    }
  }
};

// Applies scales and minima to a decoded row.
inline void scale_row(const Panels& w, const DecodedRow<float>& row) {
  for (uint32_t part = 0; part < w.part_count(); part++) {
    float* values = row.values + size_t{part} * w.part_size();
    for (uint32_t c = 0; c < w.part_columns(part); c++) {
      values[c] *= row.scales[part];
      if (w.has_minima) values[c] += row.minima[part];
    }
  }
}

// Table of a function template for 1 to 8 bits: table[bits - 1].
#define LOWBIT_BY_BITS(function) \
  {function<1>, function<2>, function<3>, function<4>, function<5>, function<6>, function<7>, function<8>}

}  // namespace
}  // namespace lowbit
