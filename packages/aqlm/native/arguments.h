// The arguments of families of kernels. Written by `npm run families` from packages/aqlm/src/arguments.ts.
#pragma once

#include "call_arguments.h"

namespace lowbit {
namespace aqlm {

struct AqlmArguments {
  const float* x;
  const uint8_t* codes;
  const void* vectors;
  const void* scales;
  // Or null.
  const float* bias;
  float* y;
  bool vectors_are_half;
  bool scales_are_half;
  uint32_t m;
  void* scratch;
  static constexpr uint32_t kScalars = 4, kBuffers = 6;
};

template <class Visitor>
static inline void visit_arguments(AqlmArguments& args, Visitor& each) {
  each(args.x, args.codes, args.vectors, args.vectors_are_half, args.scales, args.scales_are_half, OrNull{args.bias},
       args.y, args.m, args.scratch);
}

}  // namespace aqlm
}  // namespace lowbit
