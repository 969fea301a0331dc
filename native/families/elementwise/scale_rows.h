// y[r, c] = factors[r mod factorCount] * x[r, c].
#pragma once

#include "../division.h"
#include "arguments.h"

namespace lowbit {

struct ScaleRows {
  using Args = ScaleRowsArguments;

  template <class Isa>
  static void row(const Args& args, size_t row) {
    const float* x = args.x + row * args.dim;
    float* y = args.y + row * args.dim;
    const auto factor = Isa::set(args.factors[row % args.factor_count]);
    each_vector<Isa>(args.dim, [&](size_t i, auto vector) { vector.store(y + i, factor * vector.load(x + i)); });
  }
};

}  // namespace lowbit
