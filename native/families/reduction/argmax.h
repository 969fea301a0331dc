// Index of the first largest value of each row, or of the first NaN.
#pragma once

#include <cmath>

#include "../division.h"
#include "arguments.h"

namespace lowbit {

template <class Isa>
size_t argmax_of(const float* x, size_t count) {
  constexpr size_t kBlock = 1024;
  size_t best = 0;
  float largest = x[0];
  for (size_t start = 0; start < count && !std::isnan(largest); start += kBlock) {
    const size_t end = std::min(count, start + kBlock);
    auto vector = Isa::set(largest);
    // Vector maxima may drop a NaN. The sum of 0 * value is 0 unless there is a NaN or an infinity.
    auto zeros = Isa::set(0.0f);
    size_t i = start;
    for (; i + Isa::kLanes <= end; i += Isa::kLanes) {
      const auto values = Isa::load(x + i);
      vector = Isa::max(values, vector);
      zeros = Isa::multiply_add(values, Isa::set(0.0f), zeros);
    }
    if (i == end && Isa::sum(zeros) == 0 && !(Isa::largest(vector) > largest)) continue;
    for (size_t j = start; j < end && !std::isnan(largest); j++)
      if (!(x[j] <= largest)) largest = x[best = j];
  }
  return best;
}

struct Argmax {
  using Args = ArgmaxArguments;

  template <class Isa>
  static void row(const Args& args, size_t row) {
    args.y[row] = static_cast<int64_t>(argmax_of<Isa>(args.x + row * args.dim, args.dim));
  }
};

}  // namespace lowbit
