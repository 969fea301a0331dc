// Bit ranges of the fields of panel16 chunks, as in src/kernels/layout/fields.ts.
#pragma once

#include <cstdint>

namespace lowbit {

struct FieldPiece {
  uint8_t vector, shift, width, at;
};

struct Field {
  uint8_t pieces;
  FieldPiece piece[7];
};

template <int Bits>
struct Fields {
  // 8 / Bits whole fields in one vector.
  static constexpr int kVectors = 1, kFields = 8 / Bits;
  static constexpr Field field(int i) { return {1, {{0, static_cast<uint8_t>(i * Bits), Bits, 0}}}; }
};

template <>
struct Fields<3> {
  static constexpr int kVectors = 3, kFields = 8;
  static constexpr Field field(int i) {
    if (i < 6) return {1, {{static_cast<uint8_t>(i / 2), static_cast<uint8_t>(3 * (i % 2)), 3, 0}}};
    return {2, {{static_cast<uint8_t>(i - 6), 6, 2, 0}, {2, static_cast<uint8_t>(i), 1, 2}}};
  }
};

template <>
struct Fields<5> {
  static constexpr int kVectors = 5, kFields = 8;
  static constexpr Field field(int i) {
    if (i < 5) return {1, {{static_cast<uint8_t>(i), 0, 5, 0}}};
    if (i < 7) return {2, {{static_cast<uint8_t>(i - 5), 5, 3, 0}, {static_cast<uint8_t>(i - 2), 5, 2, 3}}};
    return {3, {{2, 5, 3, 0}, {3, 7, 1, 3}, {4, 7, 1, 4}}};
  }
};

template <>
struct Fields<6> {
  static constexpr int kVectors = 3, kFields = 4;
  static constexpr Field field(int i) {
    if (i < 3) return {1, {{static_cast<uint8_t>(i), 0, 6, 0}}};
    return {3, {{0, 6, 2, 0}, {1, 6, 2, 2}, {2, 6, 2, 4}}};
  }
};

template <>
struct Fields<7> {
  static constexpr int kVectors = 7, kFields = 8;
  static constexpr Field field(int i) {
    if (i < 7) return {1, {{static_cast<uint8_t>(i), 0, 7, 0}}};
    return {7, {{0, 7, 1, 0}, {1, 7, 1, 1}, {2, 7, 1, 2}, {3, 7, 1, 3}, {4, 7, 1, 4}, {5, 7, 1, 5}, {6, 7, 1, 6}}};
  }
};

// Whether weights may come in pairs of groups of 16: see src/kernels/layout/panels.ts.
template <int Bits, bool Levels>
constexpr bool kMayPair = Bits >= 2 && (Bits <= 4 || (Bits == 6 && !Levels));

// Whether scales may be 8-bit floats (e4m3): only codebooks with groups of 16 have them.
template <int Bits, bool Levels>
constexpr bool kMayE4m3 = Levels && Bits == 4;

// Whether kernels have code of their own for groups of 32 with integer scales: for codebooks, and for 4 and 5 bits,
// which GGUF has.
template <int Bits, bool Levels>
constexpr bool kMayNest = Levels ? Bits >= 2 : Bits == 4 || Bits == 5;

}  // namespace lowbit
