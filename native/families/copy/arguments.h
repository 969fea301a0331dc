// The arguments of families of kernels. Written by `npm run families` from src/kernels/families/copy/.
#pragma once

#include "../../call_arguments.h"

namespace lowbit {

struct GatherColumnsArguments {
  // [rows, dim]
  const float* x;
  // [count]
  const void* columns;
  // [rows, count]
  float* y;
  size_t rows, dim, count;
  uint32_t columns_bytes;
  void* scratch;
  static constexpr uint32_t kScalars = 4, kBuffers = 3;
};

template <class Visitor>
static inline void visit_arguments(GatherColumnsArguments& args, Visitor& each) {
  each(args.rows, args.dim, args.count, args.x, args.columns, args.columns_bytes, args.y, args.scratch);
}

struct JoinColumnsArguments {
  // [rows, first]
  const float* left;
  // [rows, second]
  const float* right;
  // [rows, columns]
  float* y;
  size_t rows, first, second, columns;
  void* scratch;
  static constexpr uint32_t kScalars = 4, kBuffers = 3;
};

template <class Visitor>
static inline void visit_arguments(JoinColumnsArguments& args, Visitor& each) {
  each(args.rows, args.first, args.second, args.columns, args.left, args.right, args.y, args.scratch);
}

struct SelectArguments {
  const uint8_t* x;
  // [outer, block_bytes]
  uint8_t* y;
  size_t outer, block_bytes;
  size_t stride;
  size_t offset;
  void* scratch;
  static constexpr uint32_t kScalars = 4, kBuffers = 2;
};

template <class Visitor>
static inline void visit_arguments(SelectArguments& args, Visitor& each) {
  each(args.outer, args.block_bytes, args.x, args.y, args.stride, args.offset, args.scratch);
}

}  // namespace lowbit
