// The arguments of families of kernels. Written by `npm run families` from src/kernels/families/experts/.
#pragma once

#include "../../call_arguments.h"

namespace lowbit {

namespace route_scores {
constexpr uint32_t kSoftmax = 0, kSigmoid = 1, kCount = 2;
}  // namespace route_scores

struct RouteArguments {
  // [rows, experts]
  const float* logits;
  // [experts], or null
  const float* bias;
  // [experts], or null
  const float* factors;
  int32_t* routing;
  size_t rows, experts;
  uint32_t top_k;
  // A number of route_scores.
  uint32_t scores;
  bool normalize;
  double eps;
  double scale;
  void* scratch;
  static constexpr uint32_t kScalars = 9, kBuffers = 4;
};

template <class Visitor>
static inline void visit_arguments(RouteArguments& args, Visitor& each) {
  each(args.rows, args.experts, args.logits, OrNull{args.bias}, OrNull{args.factors}, args.routing, args.top_k,
       args.scores, args.normalize, args.eps, args.scale, args.scratch);
}

struct ExpertRowsArguments {
  // [rows, dim]
  const float* x;
  const int32_t* routing;
  // [rows, top_k, dim]
  float* y;
  size_t rows, dim, top_k;
  uint32_t experts;
  void* scratch;
  static constexpr uint32_t kScalars = 4, kBuffers = 3;
};

template <class Visitor>
static inline void visit_arguments(ExpertRowsArguments& args, Visitor& each) {
  each(args.rows, args.dim, args.top_k, args.x, args.routing, args.y, args.experts, args.scratch);
}

struct CombineExpertsArguments {
  // [rows, top_k, dim]
  const float* x;
  const int32_t* routing;
  // [rows, dim]
  float* y;
  size_t rows, top_k, dim;
  uint32_t experts;
  void* scratch;
  static constexpr uint32_t kScalars = 4, kBuffers = 3;
};

template <class Visitor>
static inline void visit_arguments(CombineExpertsArguments& args, Visitor& each) {
  each(args.rows, args.top_k, args.dim, args.x, args.routing, args.y, args.experts, args.scratch);
}

struct ExpertLinearPackedArguments {
  // [places, k]
  const float* x;
  const int32_t* routing;
  // [places, n]
  float* y;
  const uint8_t* weights;
  size_t places, k, n;
  uint32_t experts;
  size_t part_bytes;
  uint32_t group_size;
  uint32_t from[8];
  uint32_t kernels[8];
  void* scratch;
  static constexpr uint32_t kScalars = 22, kBuffers = 4;
};

template <class Visitor>
static inline void visit_arguments(ExpertLinearPackedArguments& args, Visitor& each) {
  each(args.places, args.k, args.n, args.x, args.routing, args.y, args.experts, args.weights, args.part_bytes,
       args.group_size, args.from, args.kernels, args.scratch);
}

namespace expert_linear_float_weights_type {
constexpr uint32_t kF32 = 0, kF16 = 1, kBf16 = 2, kCount = 3;
}  // namespace expert_linear_float_weights_type

struct ExpertLinearFloatArguments {
  // [places, k]
  const float* x;
  const int32_t* routing;
  // [places, n]
  float* y;
  const void* weights;
  // Or null.
  const float* bias;
  size_t places, k, n;
  uint32_t experts;
  size_t part_bytes;
  // A number of expert_linear_float_weights_type.
  uint32_t weights_type;
  uint32_t from[8];
  uint32_t kernels[8];
  void* scratch;
  static constexpr uint32_t kScalars = 23, kBuffers = 5;
};

template <class Visitor>
static inline void visit_arguments(ExpertLinearFloatArguments& args, Visitor& each) {
  each(args.places, args.k, args.n, args.x, args.routing, args.y, args.experts, args.weights, OrNull{args.bias},
       args.part_bytes, args.weights_type, args.from, args.kernels, args.scratch);
}

}  // namespace lowbit
