// Vectorized loops over arrays of floats, and functions of vectors. An `Isa` supplies the vector type and its
// operations: x86/floats_avx512.h, x86/floats_avx2.h, generic/floats.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "each_index.h"

// Not inlined: loops that need all registers.
#define LOWBIT_APART __attribute__((noinline))

namespace lowbit {

// Loads and stores of whole vectors.
template <class Isa>
struct WholeVector {
  using V = typename Isa::V;
  V load(const float* p) const { return Isa::load(p); }
  V load(const uint16_t* halves) const { return Isa::load_halves(halves); }
  V load(const int8_t* integers) const { return Isa::load_integers(integers); }
  void store(float* p, V v) const { Isa::store(p, v); }
  void store(uint16_t* halves, V v) const { Isa::store_halves(halves, v); }
  // Rounds to even; values are within -128 .. 127.
  void store(int8_t* integers, V v) const { Isa::store_integers(integers, v); }
};

// Loads and stores of the first lanes; the others read as 0.
template <class Isa>
struct PartialVector {
  using V = typename Isa::V;
  uint32_t lanes;
  V load(const float* p) const { return Isa::load_some(p, lanes); }
  V load(const uint16_t* halves) const { return Isa::load_some_halves(halves, lanes); }
  V load(const int8_t* integers) const {
    int8_t all[Isa::kLanes] = {};
    memcpy(all, integers, lanes);
    return Isa::load_integers(all);
  }
  void store(float* p, V v) const { Isa::store_some(p, v, lanes); }
  void store(uint16_t* halves, V v) const { Isa::store_some_halves(halves, v, lanes); }
  void store(int8_t* integers, V v) const {
    int8_t all[Isa::kLanes];
    Isa::store_integers(all, v);
    memcpy(integers, all, lanes);
  }
};

// Calls body(index, vector) for `count` values; the last vector may be partial.
template <class Isa, class Body>
inline LOWBIT_INLINE void each_vector(size_t count, Body&& body) {
  size_t i = 0;
  for (; i + Isa::kLanes <= count; i += Isa::kLanes) body(i, WholeVector<Isa>{});
  if (i < count) body(i, PartialVector<Isa>{static_cast<uint32_t>(count - i)});
}

// Keeps a vector in a register: compilers otherwise load it again with each operation that has a memory operand.
template <class V>
inline LOWBIT_INLINE void load_once([[maybe_unused]] V& v) {
#if defined(__x86_64__)
  __asm__("" : "+v"(v));
#endif
}

// exp(x) = 2^n * (1 + r + r^2 q(r)) with x = n ln2 + r, |r| <= ln2 / 2. `rest` is r + r^2 q(r), relative error 1e-8
// before rounding (q interpolates at Chebyshev points). NaN stays NaN.
template <class Isa>
struct ExpParts {
  using V = typename Isa::V;
  V power, rest;

  explicit ExpParts(V x) {
    // Adding and taking away 1.5 * 2^23 rounds to whole numbers.
    const V rounder = Isa::set(12582912.0f);
    power = Isa::multiply_add(x, Isa::set(1.44269504f), rounder) - rounder;
    // ln2 in two parts, the first of so few bits that its product is exact.
    V r = Isa::multiply_add(power, Isa::set(-0.693359375f), x);
    r = Isa::multiply_add(power, Isa::set(2.12194440e-4f), r);
    V q = Isa::set(1.39262504e-3f);
    q = Isa::multiply_add(q, r, Isa::set(8.36323295e-3f));
    q = Isa::multiply_add(q, r, Isa::set(4.16665524e-2f));
    q = Isa::multiply_add(q, r, Isa::set(1.66665763e-1f));
    q = Isa::multiply_add(q, r, Isa::set(0.5f));
    rest = Isa::multiply_add(q * r, r, r);
  }
};

// exp(x), relative error 2e-7. Infinity above 88.8; 0 in place of subnormal results, which are slow.
template <class Isa>
inline LOWBIT_INLINE typename Isa::V exp_of(typename Isa::V x) {
  const auto lowest = Isa::set(-87.0f);
  const ExpParts<Isa> parts(Isa::min(Isa::set(89.0f), Isa::max(lowest, x)));
  const auto power = Isa::scale_by_power(parts.rest + Isa::set(1.0f), parts.power);
  return Isa::choose_less(x, lowest, Isa::set(0.0f), power);
}

// exp(x) for x <= 0, in fewer operations.
template <class Isa>
inline LOWBIT_INLINE typename Isa::V exp_of_negative(typename Isa::V x) {
  const auto lowest = Isa::set(-87.0f);
  const ExpParts<Isa> parts(Isa::max(lowest, x));
  const auto power = Isa::add_to_exponent(parts.rest + Isa::set(1.0f), parts.power);
  return Isa::choose_less(x, lowest, Isa::set(0.0f), power);
}

// 2^x for x in -125 .. 0, relative error 2e-9 before rounding.
template <class Isa>
inline LOWBIT_INLINE typename Isa::V exp2_of_small(typename Isa::V x) {
  // Adding and taking away 1.5 * 2^23 rounds to whole numbers.
  const auto rounder = Isa::set(12582912.0f);
  const auto power = (x + rounder) - rounder, f = x - power;
  auto p = Isa::set(1.53533649e-4f);
  for (float coefficient : {1.3398875e-3f, 9.61843692e-3f, 5.55033237e-2f, 2.40226477e-1f, 6.93147182e-1f, 1.0f})
    p = Isa::multiply_add(p, f, Isa::set(coefficient));
  return Isa::add_to_exponent(p, power);
}

// `Count` vectors as one, for long dependency chains: a core's window is too short to overlap several chains that
// follow each other.
template <class Isa, int Count>
struct SideBySide {
  struct V {
    typename Isa::V parts[Count];

    friend V operator+(V a, V b) {
      return each([&](auto i) LOWBIT_INLINE { return a.parts[i] + b.parts[i]; });
    }
    friend V operator-(V a, V b) {
      return each([&](auto i) LOWBIT_INLINE { return a.parts[i] - b.parts[i]; });
    }
    friend V operator*(V a, V b) {
      return each([&](auto i) LOWBIT_INLINE { return a.parts[i] * b.parts[i]; });
    }
  };

  // The vectors part(0) .. part(Count - 1).
  template <class Part>
  static inline LOWBIT_INLINE V each(Part&& part) {
    V all;
    each_index<Count>([&](auto i) LOWBIT_INLINE { all.parts[i] = part(i); });
    return all;
  }
  static V set(float value) {
    return each([&](auto) LOWBIT_INLINE { return Isa::set(value); });
  }
  static V max(V a, V b) {
    return each([&](auto i) LOWBIT_INLINE { return Isa::max(a.parts[i], b.parts[i]); });
  }
  static V multiply_add(V a, V b, V c) {
    return each([&](auto i) LOWBIT_INLINE { return Isa::multiply_add(a.parts[i], b.parts[i], c.parts[i]); });
  }
  static V choose_less(V a, V b, V x, V y) {
    return each([&](auto i) LOWBIT_INLINE {
      return Isa::choose_less(a.parts[i], b.parts[i], x.parts[i], y.parts[i]);
    });
  }
  static V add_to_exponent(V x, V n) {
    return each([&](auto i) LOWBIT_INLINE { return Isa::add_to_exponent(x.parts[i], n.parts[i]); });
  }
};

// tanh(x) = (e - 1) / (e + 1) for e = exp(2x), with e - 1 computed without cancellation, so that it is accurate near 0.
template <class Isa>
inline LOWBIT_INLINE typename Isa::V tanh_of(typename Isa::V x) {
  x = Isa::min(Isa::set(20.0f), Isa::max(Isa::set(-20.0f), x + x));
  const ExpParts<Isa> parts(x);
  const auto one = Isa::set(1.0f);
  const auto power = Isa::scale_by_power(one, parts.power);
  const auto e_minus_one = Isa::multiply_add(power, parts.rest, power - one);
  return e_minus_one / (e_minus_one + one + one);
}

// Items in a tile: about four tiles for each thread, of at least `least` items each.
template <class Isa>
uint32_t items_per_tile(size_t items, size_t least, uint32_t threads) {
  const size_t share = threads > 1 ? (items + 4 * threads - 1) / (4 * threads) : items;
  return static_cast<uint32_t>(std::max<size_t>(std::max<size_t>(1, least), share));
}

}  // namespace lowbit
