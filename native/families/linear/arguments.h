// The arguments of families of kernels. Written by `npm run families` from src/kernels/families/linear/.
#pragma once

#include "../../call_arguments.h"

namespace lowbit {

struct PackedLinearArguments {
  // [m, k]
  const float* x;
  const uint8_t* weights;
  // [m, n]
  float* y;
  size_t m;
  uint32_t n;
  uint32_t k;
  uint32_t group_size;
  void* scratch;
  static constexpr uint32_t kScalars = 4, kBuffers = 3;
};

template <class Visitor>
static inline void visit_arguments(PackedLinearArguments& args, Visitor& each) {
  each(args.m, args.x, args.weights, args.n, args.k, args.group_size, args.y, args.scratch);
}

namespace linear_float_weights_type {
constexpr uint32_t kF32 = 0, kF16 = 1, kBf16 = 2, kCount = 3;
}  // namespace linear_float_weights_type

struct LinearFloatArguments {
  // [m, k]
  const float* x;
  // [n, k]
  const void* weights;
  // [n], or null
  const float* bias;
  // [m, n]
  float* y;
  size_t m, k, n;
  // A number of linear_float_weights_type.
  uint32_t weights_type;
  void* scratch;
  static constexpr uint32_t kScalars = 5, kBuffers = 4;
};

template <class Visitor>
static inline void visit_arguments(LinearFloatArguments& args, Visitor& each) {
  each(args.m, args.k, args.n, args.x, args.weights, args.weights_type, OrNull{args.bias}, args.y, args.scratch);
}

}  // namespace lowbit
