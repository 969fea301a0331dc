// y = cap * tanh(x / cap).
#pragma once

#include "../division.h"
#include "arguments.h"

namespace lowbit {

struct Softcap {
  using Args = SoftcapArguments;

  template <class Isa, class Vector>
  static inline LOWBIT_INLINE void vector(const Args& args, size_t i, Vector vector) {
    const auto cap = Isa::set(args.cap);
    vector.store(args.y + i, cap * tanh_of<Isa>(vector.load(args.x + i) / cap));
  }
};

}  // namespace lowbit
