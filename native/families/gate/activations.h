// Activation functions f of gated linear units (Shazeer 2020). `times(a, b)` is f(a) * b.
#pragma once

#include "../division.h"
#include "arguments.h"

namespace lowbit {

// The activation that this number of gate_activation names.
template <uint32_t Activation>
struct ActivationOf;

// silu: a / (1 + exp(-a))
template <>
struct ActivationOf<gate_activation::kSilu> {
  template <class Isa>
  static inline LOWBIT_INLINE typename Isa::V times(typename Isa::V a, typename Isa::V b) {
    return a / (Isa::set(1.0f) + exp_of<Isa>(Isa::set(0.0f) - a)) * b;
  }
};

// gelu(a) = max(a, 0) + n Q(n) with n = -|a|, where Q is the tail of the normal distribution beyond |a|. log2 Q is
// approximated by a polynomial of degree 8 in n (minimax over |a| in 0 .. 9 by linear programming), which leaves an
// error of n Q of at most 9e-9 before rounding. The polynomial goes on falling, so that n Q stays below 1e-31
// beyond 10.
template <>
struct ActivationOf<gate_activation::kGelu> {
  template <class Isa>
  static inline LOWBIT_INLINE typename Isa::V times(typename Isa::V a, typename Isa::V b) {
    const auto zero = Isa::set(0.0f);
    const auto n = Isa::max(Isa::set(-10.0f), Isa::min(a, zero - a));
    auto p = Isa::set(-1.90205287e-6f);
    for (float coefficient : {-2.80568111e-5f, -1.31472756e-4f, 2.72076402e-4f, 7.24542141e-3f, 5.26276119e-2f,
                              -4.59162146e-1f, 1.15111101f, -1.0f})
      p = Isa::multiply_add(p, n, Isa::set(coefficient));
    return Isa::multiply_add(n, exp2_of_small<Isa>(p), Isa::max(a, zero)) * b;
  }
};

// gelu by tanh: a / (1 + exp(-2z)), z = sqrt(2 / pi) * (a + 0.044715 a^3). The sigmoid of 2z equals (1 + tanh(z)) / 2
// and has no cancellation.
template <>
struct ActivationOf<gate_activation::kGeluTanh> {
  template <class Isa>
  static inline LOWBIT_INLINE typename Isa::V times(typename Isa::V a, typename Isa::V b) {
    const auto one = Isa::set(1.0f);
    const auto bend = Isa::multiply_add(a * a, Isa::set(0.044715f), one);
    const auto exponent = a * Isa::set(-1.5957691216f) * bend;
    return a / (one + exp_of<Isa>(exponent)) * b;
  }
};

// quick gelu: a * sigmoid(1.702 a)
template <>
struct ActivationOf<gate_activation::kQuickGelu> {
  template <class Isa>
  static inline LOWBIT_INLINE typename Isa::V times(typename Isa::V a, typename Isa::V b) {
    return a / (Isa::set(1.0f) + exp_of<Isa>(a * Isa::set(-1.702f))) * b;
  }
};

// sigmoid: 1 / (1 + exp(-a))
template <>
struct ActivationOf<gate_activation::kSigmoid> {
  template <class Isa>
  static inline LOWBIT_INLINE typename Isa::V times(typename Isa::V a, typename Isa::V b) {
    return b / (Isa::set(1.0f) + exp_of<Isa>(Isa::set(0.0f) - a));
  }
};

// relu: max(a, 0)
template <>
struct ActivationOf<gate_activation::kRelu> {
  template <class Isa>
  static inline LOWBIT_INLINE typename Isa::V times(typename Isa::V a, typename Isa::V b) {
    return Isa::max(Isa::set(0.0f), a) * b;
  }
};

// squared relu: max(a, 0)^2
template <>
struct ActivationOf<gate_activation::kSquaredRelu> {
  template <class Isa>
  static inline LOWBIT_INLINE typename Isa::V times(typename Isa::V a, typename Isa::V b) {
    const auto positive = Isa::max(Isa::set(0.0f), a);
    return positive * positive * b;
  }
};

// identity: a
template <>
struct ActivationOf<gate_activation::kIdentity> {
  template <class Isa>
  static inline LOWBIT_INLINE typename Isa::V times(typename Isa::V a, typename Isa::V b) {
    return a * b;
  }
};

using Silu = ActivationOf<gate_activation::kSilu>;

}  // namespace lowbit
