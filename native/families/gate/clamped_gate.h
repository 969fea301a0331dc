// y = (clamp(up, -limit, limit) + 1) * c * sigmoid(slope * c), c = min(gate, limit).
#pragma once

#include "../division.h"
#include "arguments.h"

namespace lowbit {

struct ClampedGate {
  using Args = ClampedGateArguments;

  template <class Isa, class Vector>
  static inline LOWBIT_INLINE void vector(const Args& args, size_t i, Vector vector) {
    const auto zero = Isa::set(0.0f), one = Isa::set(1.0f), slope = Isa::set(-args.slope), limit = Isa::set(args.limit);
    // Isa::max returns its second argument where either is NaN, so that NaN stays.
    const auto at_most = [&](auto x) LOWBIT_INLINE { return zero - Isa::max(zero - limit, zero - x); };
    const auto gate = at_most(vector.load(args.gate + i));
    const auto up = Isa::max(zero - limit, at_most(vector.load(args.up + i)));
    vector.store(args.y + i, (up + one) * (gate / (one + exp_of<Isa>(gate * slope))));
  }
};

}  // namespace lowbit
