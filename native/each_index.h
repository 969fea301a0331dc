// Unrolled loops.
#pragma once

#include <type_traits>

#include "kernel.h"

namespace lowbit {

// Calls body(0) .. body(N - 1) with compile-time constants, so that arrays indexed by them stay in registers. The calls
// are written out: expanding a pack of indices is one more call to inline, and GCC optimizes a body again for each call
// around it.
template <int N, class Body>
inline LOWBIT_INLINE void each_index(Body&& body) {
  static_assert(N <= 16);
  if constexpr (N > 0) body(std::integral_constant<int, 0>{});
  if constexpr (N > 1) body(std::integral_constant<int, 1>{});
  if constexpr (N > 2) body(std::integral_constant<int, 2>{});
  if constexpr (N > 3) body(std::integral_constant<int, 3>{});
  if constexpr (N > 4) body(std::integral_constant<int, 4>{});
  if constexpr (N > 5) body(std::integral_constant<int, 5>{});
  if constexpr (N > 6) body(std::integral_constant<int, 6>{});
  if constexpr (N > 7) body(std::integral_constant<int, 7>{});
  if constexpr (N > 8) body(std::integral_constant<int, 8>{});
  if constexpr (N > 9) body(std::integral_constant<int, 9>{});
  if constexpr (N > 10) body(std::integral_constant<int, 10>{});
  if constexpr (N > 11) body(std::integral_constant<int, 11>{});
  if constexpr (N > 12) body(std::integral_constant<int, 12>{});
  if constexpr (N > 13) body(std::integral_constant<int, 13>{});
  if constexpr (N > 14) body(std::integral_constant<int, 14>{});
  if constexpr (N > 15) body(std::integral_constant<int, 15>{});
}

}  // namespace lowbit
