// Sums over groups of neighbouring values of each row.
#pragma once

#include "../division.h"
#include "arguments.h"

namespace lowbit {

struct GroupSums {
  using Args = GroupSumsArguments;

  template <class Isa>
  static void row(const Args& args, size_t row) {
    const float* x = args.x + row * args.dim;
    float* y = args.y + row * args.groups;
    for (size_t g = 0, c = 0; g < args.groups; g++, c += args.group_size) {
      auto sum = Isa::set(0);
      each_vector<Isa>(std::min<size_t>(args.group_size, args.dim - c),
                       [&](size_t i, auto vector) { sum = sum + vector.load(x + c + i); });
      y[g] = Isa::sum(sum);
    }
  }
};

}  // namespace lowbit
