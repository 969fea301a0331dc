// The arguments of families of kernels. Written by `npm run families` from src/kernels/families/embedding/.
#pragma once

#include "../../call_arguments.h"

namespace lowbit {

namespace embedding_float_weights_type {
constexpr uint32_t kF32 = 0, kF16 = 1, kBf16 = 2, kCount = 3;
}  // namespace embedding_float_weights_type

struct EmbeddingFloatArguments {
  // [rows, dim]
  const void* weights;
  // [count]
  const void* indices;
  // [count, dim]
  float* y;
  size_t rows, dim, count;
  // A number of embedding_float_weights_type.
  uint32_t weights_type;
  uint32_t indices_bytes;
  void* scratch;
  static constexpr uint32_t kScalars = 5, kBuffers = 3;
};

template <class Visitor>
static inline void visit_arguments(EmbeddingFloatArguments& args, Visitor& each) {
  each(args.rows, args.dim, args.count, args.weights, args.weights_type, args.indices, args.indices_bytes, args.y,
       args.scratch);
}

struct EmbeddingPackedArguments {
  const uint8_t* packed;
  // [rows, groups]
  const float* scales;
  // [rows, groups]
  const int8_t* zeros;
  // [count]
  const void* indices;
  // [count, dim]
  float* y;
  size_t rows, groups, count, dim;
  uint32_t indices_bytes;
  uint32_t bits;
  void* scratch;
  static constexpr uint32_t kScalars = 6, kBuffers = 5;
};

template <class Visitor>
static inline void visit_arguments(EmbeddingPackedArguments& args, Visitor& each) {
  each(args.rows, args.groups, args.count, args.dim, args.packed, args.scales, args.zeros, args.indices,
       args.indices_bytes, args.y, args.bits, args.scratch);
}

struct SharedEmbeddingArguments {
  const uint8_t* weights;
  // [count]
  const void* indices;
  // [count, k]
  float* y;
  size_t count;
  uint32_t n;
  uint32_t k;
  uint32_t group_size;
  uint32_t indices_bytes;
  uint32_t first;
  uint32_t rows;
  void* scratch;
  static constexpr uint32_t kScalars = 7, kBuffers = 3;
};

template <class Visitor>
static inline void visit_arguments(SharedEmbeddingArguments& args, Visitor& each) {
  each(args.count, args.weights, args.n, args.k, args.group_size, args.indices, args.indices_bytes, args.y, args.first,
       args.rows, args.scratch);
}

}  // namespace lowbit
