// What a call of a float linear says, for all kernels of the family.
#pragma once

#include "../../families.h"
#include "../../half.h"

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
  FloatCall args{};
  args.m = scalar_of<uint32_t>(call, float_linear::kM);
  args.n = scalar_of<uint32_t>(call, float_linear::kN);
  args.k = scalar_of<uint32_t>(call, float_linear::kK);
  args.type = scalar_of<FloatType>(call, float_linear::kWeightType);
  args.x = buffer_of<const float>(call, float_linear::kX);
  args.weights = buffer_of<void>(call, float_linear::kWeights);
  args.bias =
      scalar_of<bool>(call, float_linear::kHasBias) ? buffer_of<const float>(call, float_linear::kBias) : nullptr;
  args.y = buffer_of<float>(call, float_linear::kY);
  return args;
}

}  // namespace
}  // namespace lowbit
