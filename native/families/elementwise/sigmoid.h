// y = 1 / (1 + exp(-x)).
#pragma once

#include "../division.h"
#include "arguments.h"

namespace lowbit {

struct Sigmoid {
  using Args = SigmoidArguments;

  template <class Isa, class Vector>
  static inline LOWBIT_INLINE void vector(const Args& args, size_t i, Vector vector) {
    const auto one = Isa::set(1.0f);
    vector.store(args.y + i, one / (one + exp_of<Isa>(Isa::set(0.0f) - vector.load(args.x + i))));
  }
};

}  // namespace lowbit
