// y = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias.
#pragma once

#include "arguments.h"
#include "rms_norm.h"

namespace lowbit {

struct LayerNorm {
  using Args = LayerNormArguments;

  template <class Isa>
  static void row(const Args& args, size_t row) {
    const size_t dim = args.dim;
    const float* x = args.x + row * dim;
    float* y = args.y + row * dim;
    auto sum = Isa::set(0);
    each_vector<Isa>(dim, [&](size_t i, auto vector) { sum = sum + vector.load(x + i); });
    const auto mean = Isa::set(Isa::sum(sum) / static_cast<float>(dim));
    // The variance is of x - mean, since the mean may be far from 0. y may alias x.
    each_vector<Isa>(dim, [&](size_t i, auto vector) { vector.store(y + i, vector.load(x + i) - mean); });
    const double variance = sum_of_squares<Isa>(y, dim) / static_cast<double>(dim);
    const auto inverse = Isa::set(static_cast<float>(1 / std::sqrt(variance + args.eps)));
    each_vector<Isa>(dim, [&](size_t i, auto vector) {
      const auto scaled = vector.load(y + i) * inverse;
      const auto weight = vector.load(args.weight + i);
      vector.store(y + i, args.bias ? Isa::multiply_add(scaled, weight, vector.load(args.bias + i)) : scaled * weight);
    });
  }
};

}  // namespace lowbit
