// y = x * factor.
#pragma once

#include "../division.h"
#include "arguments.h"

namespace lowbit {

struct Scale {
  using Args = ScaleArguments;

  template <class Isa, class Vector>
  static inline LOWBIT_INLINE void vector(const Args& args, size_t i, Vector vector) {
    vector.store(args.y + i, vector.load(args.x + i) * Isa::set(args.factor));
  }
};

}  // namespace lowbit
