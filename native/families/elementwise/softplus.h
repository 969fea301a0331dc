// y = factors * ln(1 + exp(x + bias)).
#pragma once

#include "../division.h"
#include "arguments.h"

namespace lowbit {

// ln(1 + exp(x)) = max(x, 0) + ln(1 + e) with e = exp(-|x|) in 0 .. 1, and ln(1 + e) = 2 atanh(s), s = e / (2 + e): a
// series in s^2 <= 1 / 9, relative error 1e-8.
template <class Isa>
inline LOWBIT_INLINE typename Isa::V softplus_of(typename Isa::V x) {
  const auto zero = Isa::set(0.0f);
  const auto e = exp_of_negative<Isa>(Isa::min(x, zero - x));
  const auto s = e / (Isa::set(2.0f) + e);
  const auto square = s * s;
  auto series = Isa::set(2.0f / 15);
  for (float power : {13.0f, 11.0f, 9.0f, 7.0f, 5.0f, 3.0f, 1.0f})
    series = Isa::multiply_add(series, square, Isa::set(2.0f / power));
  return Isa::multiply_add(s, series, Isa::max(zero, x));
}

struct Softplus {
  using Args = SoftplusArguments;

  template <class Isa>
  static void row(const Args& args, size_t row) {
    const float* x = args.x + row * args.dim;
    float* y = args.y + row * args.dim;
    each_vector<Isa>(args.dim, [&](size_t i, auto vector) {
      const auto shifted = vector.load(x + i) + vector.load(args.bias + i);
      vector.store(y + i, vector.load(args.factors + i) * softplus_of<Isa>(shifted));
    });
  }
};

}  // namespace lowbit
