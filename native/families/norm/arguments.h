// The arguments of families of kernels. Written by `npm run families` from src/kernels/families/norm/.
#pragma once

#include "../../call_arguments.h"

namespace lowbit {

struct AddRmsNormArguments {
  // [rows, dim]
  float* x;
  // [rows, dim]
  const float* addend;
  // [dim]
  const float* weight;
  // [rows, dim]
  float* y;
  size_t rows, dim;
  double eps;
  float alpha;
  void* scratch;
  static constexpr uint32_t kScalars = 4, kBuffers = 4;
};

template <class Visitor>
static inline void visit_arguments(AddRmsNormArguments& args, Visitor& each) {
  each(args.rows, args.dim, args.x, args.addend, args.weight, args.y, args.eps, args.alpha, args.scratch);
}

struct LayerNormArguments {
  // [rows, dim]
  const float* x;
  // [dim]
  const float* weight;
  // [dim], or null
  const float* bias;
  // [rows, dim]
  float* y;
  size_t rows, dim;
  double eps;
  void* scratch;
  static constexpr uint32_t kScalars = 4, kBuffers = 4;
};

template <class Visitor>
static inline void visit_arguments(LayerNormArguments& args, Visitor& each) {
  each(args.rows, args.dim, args.x, args.weight, OrNull{args.bias}, args.y, args.eps, args.scratch);
}

struct RmsNormArguments {
  // [rows, dim]
  const float* x;
  // [dim]
  const float* weight;
  // [rows, dim]
  float* y;
  size_t rows, dim;
  double eps;
  void* scratch;
  static constexpr uint32_t kScalars = 3, kBuffers = 3;
};

template <class Visitor>
static inline void visit_arguments(RmsNormArguments& args, Visitor& each) {
  each(args.rows, args.dim, args.x, args.weight, args.y, args.eps, args.scratch);
}

}  // namespace lowbit
