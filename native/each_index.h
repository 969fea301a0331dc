// Loops that are written out.
#pragma once

#include <type_traits>
#include <utility>

namespace lowbit {

// For bodies of each_index that are too large for compilers to inline by themselves: [&](auto i) LOWBIT_INLINE { … }
#define LOWBIT_INLINE __attribute__((always_inline))

template <class Body, int... I>
inline __attribute__((always_inline)) void each_index(std::integer_sequence<int, I...>, Body&& body) {
  (body(std::integral_constant<int, I>{}), ...);
}

// Calls body(0) .. body(N - 1) with constants, for loops that must not stay loops: arrays they index are registers.
template <int N, class Body>
inline __attribute__((always_inline)) void each_index(Body&& body) {
  each_index(std::make_integer_sequence<int, N>{}, body);
}

}  // namespace lowbit
