// Unpacks vectors of panel32 weights to signed bytes: src/kernels/layout/panel32.ts has their order.
#pragma once

#include "../families/linear/fields.h"
#include "panel32.h"

namespace lowbit {
namespace {

// A field of a unit's vectors as unsigned weights, a byte each. The highest bits of bytes are flipped back before.
template <int Bits, int Index>
inline LOWBIT_INLINE uint8x16_t unsigned_field(const uint8x16_t* bytes) {
  constexpr Field field = Fields<Bits>::field(Index);
  uint8x16_t value{};
  each_index<field.pieces>([&](auto p) LOWBIT_INLINE {
    constexpr FieldPiece piece = Fields<Bits>::field(Index).piece[p];
    constexpr int kMask = ((1 << piece.width) - 1) << piece.at, kShift = piece.shift - piece.at;
    uint8x16_t part = bytes[piece.vector];
    if constexpr (kShift > 0) part = vshrq_n_u8(part, kShift);
    if constexpr (kShift < 0) part = vshlq_n_u8(part, -kShift);
    if constexpr (piece.at > 0 || piece.shift + piece.width < 8) part = vandq_u8(part, vdupq_n_u8(kMask));
    value = p == 0 ? part : vorrq_u8(value, part);
  });
  return value;
}

// Unpacks the 8 quads of a panel at 4 k to signed weights, or to levels of the codebook.
template <int Bits, bool Levels>
inline LOWBIT_INLINE void unpack_step(const uint8_t* at, uint8x16_t levels, int8x16_t* quads) {
  constexpr int kFields = Fields<Bits>::kFields, kVectors = Fields<Bits>::kVectors;
  each_index<kQuads / kFields>([&](auto unit) LOWBIT_INLINE {
    uint8x16_t bytes[kVectors];
    for (int v = 0; v < kVectors; v++) {
      bytes[v] = vld1q_u8(at + 16 * (unit * kVectors + v));
      if constexpr (Bits < 8) bytes[v] = veorq_u8(bytes[v], vdupq_n_u8(0x80));
    }
    each_index<kFields>([&](auto f) LOWBIT_INLINE {
      const uint8x16_t value = unsigned_field<Bits, f>(bytes);
      if constexpr (Levels) quads[unit * kFields + f] = vreinterpretq_s8_u8(vqtbl1q_u8(levels, value));
      else if constexpr (Bits == 8) quads[unit] = vreinterpretq_s8_u8(value);
      else quads[unit * kFields + f] = vreinterpretq_s8_u8(vsubq_u8(value, vdupq_n_u8(1 << (Bits - 1))));
    });
  });
}

inline uint8x16_t load_levels(const Panels& w) { return vreinterpretq_u8_s8(vld1q_s8(w.levels)); }

}  // namespace
}  // namespace lowbit
