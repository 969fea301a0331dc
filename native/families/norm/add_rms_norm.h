// x += alpha * addend, then y = x / sqrt(mean(x^2) + eps) * weight.
#pragma once

#include "arguments.h"
#include "rms_norm.h"

namespace lowbit {

struct AddRmsNorm {
  using Args = AddRmsNormArguments;

  template <class Isa>
  static void row(const Args& args, size_t row) {
    const size_t at = row * args.dim;
    float* sum = args.x + at;
    const float* addend = args.addend + at;
    const auto alpha = Isa::set(args.alpha);
    each_vector<Isa>(args.dim, [&](size_t i, auto vector) {
      vector.store(sum + i, Isa::multiply_add(alpha, vector.load(addend + i), vector.load(sum + i)));
    });
    norm_row<Isa>(sum, args.weight, args.dim, args.eps, args.y + at);
  }
};

}  // namespace lowbit
