// y = x / sqrt(mean(x^2) + eps) * weight.
#pragma once

#include <cmath>

#include "../division.h"
#include "arguments.h"

namespace lowbit {

// The mean of squares, in double precision so that squares of large values do not overflow.
template <class Isa>
double sum_of_squares(const float* x, size_t count) {
  constexpr size_t kSums = 16;
  double sums[kSums] = {};
  size_t i = 0;
  for (; i + kSums <= count; i += kSums)
    for (size_t j = 0; j < kSums; j++) sums[j] += static_cast<double>(x[i + j]) * static_cast<double>(x[i + j]);
  double total = 0;
  for (; i < count; i++) total += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  for (double sum : sums) total += sum;
  return total;
}

// Normalizes one row of `dim` values.
template <class Isa>
void norm_row(const float* x, const float* weight, size_t dim, double eps, float* y) {
  const double mean = sum_of_squares<Isa>(x, dim) / static_cast<double>(dim);
  const auto inverse = Isa::set(static_cast<float>(1 / std::sqrt(mean + eps)));
  each_vector<Isa>(
      dim, [&](size_t i, auto vector) { vector.store(y + i, vector.load(x + i) * inverse * vector.load(weight + i)); });
}

struct RmsNorm {
  using Args = RmsNormArguments;

  template <class Isa>
  static void row(const Args& args, size_t row) {
    const size_t at = row * args.dim;
    norm_row<Isa>(args.x + at, args.weight, args.dim, args.eps, args.y + at);
  }
};

}  // namespace lowbit
