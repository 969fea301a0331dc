// The arguments of families of kernels. Written by `npm run families` from src/kernels/families/elementwise/.
#pragma once

#include "../../call_arguments.h"

namespace lowbit {

struct AddArguments {
  // [count]
  const float* a;
  // [count]
  const float* b;
  // [count]
  float* y;
  size_t count;
  float alpha;
  void* scratch;
  static constexpr uint32_t kScalars = 2, kBuffers = 3;
};

template <class Visitor>
static inline void visit_arguments(AddArguments& args, Visitor& each) {
  each(args.count, args.a, args.b, args.y, args.alpha, args.scratch);
}

namespace gelu_approximate {
constexpr uint32_t kNone = 0, kTanh = 1, kCount = 2;
}  // namespace gelu_approximate

struct GeluArguments {
  // [count]
  const float* x;
  // [count]
  float* y;
  size_t count;
  // A number of gelu_approximate.
  uint32_t approximate;
  void* scratch;
  static constexpr uint32_t kScalars = 2, kBuffers = 2;
};

template <class Visitor>
static inline void visit_arguments(GeluArguments& args, Visitor& each) {
  each(args.count, args.x, args.y, args.approximate, args.scratch);
}

static inline uint32_t choice_of(const GeluArguments& args) { return args.approximate; }

struct ScaleArguments {
  // [count]
  const float* x;
  // [count]
  float* y;
  size_t count;
  float factor;
  void* scratch;
  static constexpr uint32_t kScalars = 2, kBuffers = 2;
};

template <class Visitor>
static inline void visit_arguments(ScaleArguments& args, Visitor& each) {
  each(args.count, args.x, args.y, args.factor, args.scratch);
}

struct ScaleRowsArguments {
  // [rows, dim]
  const float* x;
  // [factor_count]
  const float* factors;
  // [rows, dim]
  float* y;
  size_t rows, dim, factor_count;
  void* scratch;
  static constexpr uint32_t kScalars = 3, kBuffers = 3;
};

template <class Visitor>
static inline void visit_arguments(ScaleRowsArguments& args, Visitor& each) {
  each(args.rows, args.dim, args.factor_count, args.x, args.factors, args.y, args.scratch);
}

struct SigmoidArguments {
  // [count]
  const float* x;
  // [count]
  float* y;
  size_t count;
  void* scratch;
  static constexpr uint32_t kScalars = 1, kBuffers = 2;
};

template <class Visitor>
static inline void visit_arguments(SigmoidArguments& args, Visitor& each) {
  each(args.count, args.x, args.y, args.scratch);
}

struct SoftcapArguments {
  // [count]
  const float* x;
  // [count]
  float* y;
  size_t count;
  float cap;
  void* scratch;
  static constexpr uint32_t kScalars = 2, kBuffers = 2;
};

template <class Visitor>
static inline void visit_arguments(SoftcapArguments& args, Visitor& each) {
  each(args.count, args.x, args.y, args.cap, args.scratch);
}

struct SoftplusArguments {
  // [rows, dim]
  const float* x;
  // [dim]
  const float* bias;
  // [dim]
  const float* factors;
  // [rows, dim]
  float* y;
  size_t rows, dim;
  void* scratch;
  static constexpr uint32_t kScalars = 2, kBuffers = 4;
};

template <class Visitor>
static inline void visit_arguments(SoftplusArguments& args, Visitor& each) {
  each(args.rows, args.dim, args.x, args.bias, args.factors, args.y, args.scratch);
}

}  // namespace lowbit
