// Unpacks TorchAO's chunks of 128, 64 and 32 values, as in src/kernels/layout/torchao-bits.ts.
#pragma once

#include <cstdint>

namespace lowbit {
namespace {

// Shape of a chunk: runs of `lanes` values, `kFields` of which share a run of bytes.
template <int Bits>
struct Chunk {
  static constexpr uint32_t kFields = Bits == 8 ? 1 : Bits == 4 ? 2 : Bits % 2 == 0 ? 4 : 8;
  static constexpr uint32_t kBytes = kFields * Bits / 8;
  static constexpr bool halved(uint32_t size) { return size == 64 && (Bits == 1 || Bits == 5); }
  static constexpr uint32_t lanes(uint32_t size) {
    if (halved(size)) return 8;
    if (size == 32 && kFields == 8) return 1;
    const uint32_t all = size / kFields;
    return (Bits == 2 || Bits == 4 || Bits == 6) && all > 16 ? 16 : all;
  }
};

// v = the fields in bytes b.
template <int Bits>
void unpack(const uint8_t* b, uint8_t* v) {
  if constexpr (Bits == 8) {
    v[0] = b[0];
  } else if constexpr (Bits == 4) {
    v[0] = b[0] & 15;
    v[1] = b[0] >> 4;
  } else if constexpr (Bits == 1) {
    for (int i = 0; i < 8; i++) v[i] = (b[0] >> (7 - i)) & 1;
  } else if constexpr (Bits == 2) {
    for (int i = 0; i < 4; i++) v[i] = (b[0] >> (6 - 2 * i)) & 3;
  } else if constexpr (Bits == 3) {
    for (int i = 0; i < 3; i++) {
      v[2 * i] = (b[i] >> 3) & 7;
      v[2 * i + 1] = b[i] & 7;
    }
    v[6] = (b[0] >> 6) | ((b[2] >> 5) & 4);
    v[7] = (b[1] >> 6) | ((b[2] >> 4) & 4);
  } else if constexpr (Bits == 5) {
    for (int i = 0; i < 4; i++) {
      v[2 * i] = b[i] & 31;
      v[2 * i + 1] = (b[i] >> 5) | ((b[4] >> (2 * i)) & 3) << 3;
    }
  } else if constexpr (Bits == 6) {
    for (int i = 0; i < 3; i++) v[i] = b[i] & 63;
    v[3] = (b[0] >> 6) | (b[1] >> 6) << 2 | (b[2] >> 6) << 4;
  } else {
    v[7] = 0;
    for (int i = 0; i < 7; i++) {
      v[i] = b[i] & 127;
      v[7] |= (b[i] >> 7) << i;
    }
  }
}

// Chunks of 64 whose fields are half vectors.
template <int Bits>
void unpack_halved(const uint8_t* b, uint8_t* v) {
  if constexpr (Bits == 1) {
    for (int i = 0; i < 4; i++) {
      v[2 * i] = (b[0] >> (3 - i)) & 1;
      v[2 * i + 1] = (b[0] >> (7 - i)) & 1;
    }
  } else {
    constexpr int kLow[] = {0, 1, 4, 5}, kHigh[] = {2, 3, 6, 7};
    for (int i = 0; i < 4; i++) {
      v[kLow[i]] = b[i] & 31;
      v[kHigh[i]] = (b[i] >> 5) | ((b[4] >> (2 * i)) & 3) << 3;
    }
  }
}

// Unpacks the `size` unsigned values of a chunk.
template <int Bits>
void unpack_chunk(const uint8_t* bytes, uint32_t size, uint8_t* values) {
  using C = Chunk<Bits>;
  const uint32_t lanes = C::lanes(size);
  for (uint32_t base = 0; base < size; base += C::kFields * lanes) {
    for (uint32_t j = 0; j < lanes; j++) {
      uint8_t b[C::kBytes], v[C::kFields];
      for (uint32_t t = 0; t < C::kBytes; t++) b[t] = bytes[base * Bits / 8 + t * lanes + j];
      if constexpr (Bits == 1 || Bits == 5) {
        if (C::halved(size)) unpack_halved<Bits>(b, v);
        else unpack<Bits>(b, v);
      } else {
        unpack<Bits>(b, v);
      }
      for (uint32_t i = 0; i < C::kFields; i++) values[base + i * lanes + j] = v[i];
    }
  }
}

}  // namespace
}  // namespace lowbit
