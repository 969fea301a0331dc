// The arguments of families of kernels. Written by `npm run families` from src/kernels/families/reduction/.
#pragma once

#include "../../call_arguments.h"

namespace lowbit {

struct ArgmaxArguments {
  // [rows, dim]
  const float* x;
  // [rows]
  int64_t* y;
  size_t rows, dim;
  void* scratch;
  static constexpr uint32_t kScalars = 2, kBuffers = 2;
};

template <class Visitor>
static inline void visit_arguments(ArgmaxArguments& args, Visitor& each) {
  each(args.rows, args.dim, args.x, args.y, args.scratch);
}

struct GroupSumsArguments {
  // [rows, dim]
  const float* x;
  // [rows, groups]
  float* y;
  size_t rows, dim, groups;
  uint32_t group_size;
  void* scratch;
  static constexpr uint32_t kScalars = 4, kBuffers = 2;
};

template <class Visitor>
static inline void visit_arguments(GroupSumsArguments& args, Visitor& each) {
  each(args.rows, args.dim, args.groups, args.x, args.y, args.group_size, args.scratch);
}

struct SoftmaxArguments {
  // [rows, dim]
  const float* x;
  // [rows, dim]
  float* y;
  size_t rows, dim;
  void* scratch;
  static constexpr uint32_t kScalars = 2, kBuffers = 2;
};

template <class Visitor>
static inline void visit_arguments(SoftmaxArguments& args, Visitor& each) {
  each(args.rows, args.dim, args.x, args.y, args.scratch);
}

}  // namespace lowbit
