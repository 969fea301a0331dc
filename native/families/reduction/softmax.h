// y = exp(x - max(x)) / sum(exp(x - max(x))) for each row.
#pragma once

#include "../division.h"
#include "arguments.h"

namespace lowbit {

template <class Isa>
float largest_of(const float* x, size_t count) {
  if (count < Isa::kLanes) {
    float largest = x[0];
    for (size_t i = 1; i < count; i++) largest = x[i] > largest ? x[i] : largest;
    return largest;
  }
  auto largest = Isa::load(x);
  for (size_t i = Isa::kLanes; i + Isa::kLanes <= count; i += Isa::kLanes)
    largest = Isa::max(Isa::load(x + i), largest);
  // The last vector may overlap the one before it.
  return Isa::largest(Isa::max(Isa::load(x + count - Isa::kLanes), largest));
}

struct Softmax {
  using Args = SoftmaxArguments;

  template <class Isa>
  static void row(const Args& args, size_t row) {
    const size_t dim = args.dim;
    const float* x = args.x + row * dim;
    float* y = args.y + row * dim;
    const auto largest = Isa::set(largest_of<Isa>(x, dim));
    auto total = Isa::set(0);
    float rest = 0;
    each_vector<Isa>(dim, [&](size_t i, auto vector) {
      const auto e = exp_of<Isa>(vector.load(x + i) - largest);
      vector.store(y + i, e);
      if (i + Isa::kLanes <= dim) total = total + e;
    });
    for (size_t i = dim - dim % Isa::kLanes; i < dim; i++) rest += y[i];
    const auto inverse = Isa::set(1 / (Isa::sum(total) + rest));
    each_vector<Isa>(dim, [&](size_t i, auto vector) { vector.store(y + i, vector.load(y + i) * inverse); });
  }
};

}  // namespace lowbit
