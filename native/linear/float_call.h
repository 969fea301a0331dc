// What a call of a float linear says, for all kernels of the family.
#pragma once

#include "../half.h"
#include "../kernel.h"

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

// scalars: m, n, k, type, 1 with a bias; buffers: x, weights, bias, y, scratch.
inline FloatCall read_float_call(const Call& call) {
  FloatCall args{};
  args.m = static_cast<uint32_t>(call.scalars[0]);
  args.n = static_cast<uint32_t>(call.scalars[1]);
  args.k = static_cast<uint32_t>(call.scalars[2]);
  args.type = static_cast<FloatType>(static_cast<uint32_t>(call.scalars[3]));
  args.x = static_cast<const float*>(call.buffers[0]);
  args.weights = call.buffers[1];
  args.bias = call.scalars[4] != 0 ? static_cast<const float*>(call.buffers[2]) : nullptr;
  args.y = static_cast<float*>(call.buffers[3]);
  return args;
}

}  // namespace
}  // namespace lowbit
