// Magnitudes of x and of the codebooks' vectors, which determine the steps of integers, and vectors in such steps. An
// `Isa8` supplies eight floats (x86/floats8.h, arm/floats8.h).
#pragma once

#include <cmath>

#include "codes.h"

namespace lowbit {
namespace aqlm {
namespace {

template <class Isa8>
inline typename Isa8::F8 load8(const Arguments& a, size_t at) {
  if (a.half_vectors) return Isa8::load(static_cast<const uint16_t*>(a.vectors) + at);
  return Isa8::load(static_cast<const float*>(a.vectors) + at);
}

// Largest magnitude of floats, eight at a time.
template <class Isa8>
struct Magnitudes {
  using F8 = typename Isa8::F8;
  F8 peak = Isa8::zero(), none = Isa8::zero();
  void add(F8 v) {
    peak = Isa8::larger_magnitude(peak, v);
    none = Isa8::multiply_add(v, Isa8::zero(), none);
  }
  float largest() const { return std::max(Isa8::largest(peak), 0x1p-100f); }
  // 0, or NaN where a float is not finite, which maxima may pass over.
  float zero() const { return Isa8::sum(none); }
};

// Squared length of the longest of the vectors of `length` values times `unit`; `load` gives eight values.
template <class Isa8, class Load>
float longest_square(size_t count, uint32_t length, float unit, Load load) {
  using F8 = typename Isa8::F8;
  float longest = 0;
  for (size_t i = 0; i < count; i += length) {
    F8 squares = Isa8::zero();
    for (uint32_t j = 0; j < length; j += 8) {
      const F8 v = Isa8::multiply_add(load(i + j), Isa8::set(unit), Isa8::zero());
      squares = Isa8::multiply_add(v, v, squares);
    }
    longest = std::max(longest, Isa8::sum(squares));
  }
  return longest;
}

// The vectors' step, NaN where a value is not finite; the length of the longest vector; the sum of the codebooks'
// longest, in steps; and the vectors.
template <class Value>
struct PreparedVectors {
  float* step;
  float* longest;
  float* lengths;
  Value* values;
};

constexpr size_t kSizesBytes = 64;

template <class Value>
inline PreparedVectors<Value> prepared_vectors(uint8_t* memory) {
  float* first = reinterpret_cast<float*>(memory);
  return {first, first + 1, first + 2, reinterpret_cast<Value*>(memory + kSizesBytes)};
}

// Measures vectors of 8-bit codes, whose largest value is to be `largest` steps; returns the inverse step.
template <class Isa8, class Value>
float measure_vectors(const Arguments& p, float largest, const PreparedVectors<Value>& prepared) {
  const size_t book = size_t{kEntries} * p.codes.in_group, count = p.codes.codebooks * book;
  Magnitudes<Isa8> all;
  for (size_t i = 0; i < count; i += 8) all.add(load8<Isa8>(p, i));
  // Scales vectors by the inverse of their largest value, so that floats can hold the squares.
  const float unit = 1 / all.largest();
  *prepared.longest = *prepared.lengths = 0;
  for (size_t first = 0; first < count; first += book) {
    const float square =
        longest_square<Isa8>(book, p.codes.in_group, unit, [&](size_t i) { return load8<Isa8>(p, first + i); });
    *prepared.longest = std::max(*prepared.longest, std::sqrt(square) * largest);
    *prepared.lengths += std::sqrt(square) * largest;
  }
  *prepared.step = all.largest() / largest + all.zero();
  return 1 / *prepared.step;
}

}  // namespace
}  // namespace aqlm
}  // namespace lowbit
