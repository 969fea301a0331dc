// The bound call of a float linear layer, shared by all kernels of the family.
#pragma once

#include "../../half.h"
#include "arguments.h"

namespace lowbit {
namespace {

// y [m, n] = x [m, k] * weights [n, k]^T + bias
struct FloatCall {
  const void* weights;
  const float* bias;
  const float* x;
  float* y;
  uint32_t m, n, k;
  FloatType type;
};

inline FloatCall read_float_call(const Call& call) {
  const auto given = arguments_of<LinearFloatArguments>(call);
  FloatCall args{};
  args.m = given.m;
  args.n = given.n;
  args.k = given.k;
  args.type = static_cast<FloatType>(given.weights_type);
  args.x = given.x;
  args.weights = given.weights;
  args.bias = given.bias;
  args.y = given.y;
  return args;
}

}  // namespace
}  // namespace lowbit
