// Types in which floats are stored, and scalar conversions from and to bf16, f16 and e4m3 for CPUs without instructions
// for them; C++ twins of src/half.ts and src/float8.ts.
#pragma once

#include <cstdint>
#include <cstring>

namespace lowbit {

// Indices of floatTypes in src/kernels/records.ts.
enum class FloatType : uint32_t { kF32, kF16, kBf16 };

static inline float float_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

static inline uint32_t bits_of_float(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return bits;
}

// A product moves the exponent: 2^112 is the ratio of the two formats' biases, and subnormals become normal.
static inline float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t magnitude = half & 0x7fff;
  if (magnitude >= 0x7c00) return float_of_bits(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  return float_of_bits(sign | bits_of_float(float_of_bits(magnitude << 13) * 0x1p112f));
}

// Rounds to nearest, ties to even; overflow gives infinity.
static inline uint16_t float_to_half(float value) {
  const uint32_t bits = bits_of_float(value);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00);
  if (magnitude >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);
  if (magnitude < 0x38800000) {
    // Adding 0.5 places the unit of the last f16 bit (2^-24) in the last f32 bit, rounded to even.
    return static_cast<uint16_t>(sign | (bits_of_float(float_of_bits(magnitude) + 0.5f) - 0x3f000000));
  }
  return static_cast<uint16_t>(sign | (magnitude - 0x38000000 + 0xfff + ((magnitude >> 13) & 1)) >> 13);
}

static inline float bf16_to_float(uint16_t value) { return float_of_bits(static_cast<uint32_t>(value) << 16); }

// An e4m3 byte, sign-extended to 32 bits and shifted left by 20, masked with these bits, is the float
// 2^-120 * number.
constexpr int32_t kE4m3Bits = static_cast<int32_t>(0x87f00000);
constexpr float kE4m3Scale = 0x1p120f;

static inline float e4m3_to_float(uint8_t code) {
  const uint32_t word = static_cast<uint32_t>(static_cast<int32_t>(static_cast<int8_t>(code)));
  return float_of_bits((word << 20) & static_cast<uint32_t>(kE4m3Bits)) * kE4m3Scale;
}

// The code of the nearest e4m3 number; numbers beyond the largest give its code.
static inline uint8_t float_to_e4m3(float value) {
  const uint32_t bits = bits_of_float(value * (1 / kE4m3Scale)), largest = 0x7e;
  const uint32_t code = ((bits & 0x7fffffff) + 0x80000) >> 20;
  return static_cast<uint8_t>((code < largest ? code : largest) | (bits >> 24 & 0x80));
}

}  // namespace lowbit
