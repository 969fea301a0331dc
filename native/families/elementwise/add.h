// y = a + alpha * b.
#pragma once

#include "../division.h"
#include "arguments.h"

namespace lowbit {

struct Add {
  using Args = AddArguments;

  template <class Isa, class Vector>
  static inline LOWBIT_INLINE void vector(const Args& args, size_t i, Vector vector) {
    const auto a = vector.load(args.a + i), b = vector.load(args.b + i);
    vector.store(args.y + i, Isa::multiply_add(Isa::set(args.alpha), b, a));
  }
};

}  // namespace lowbit
