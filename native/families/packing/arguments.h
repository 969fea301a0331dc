// The arguments of families of kernels. Written by `npm run families` from src/kernels/families/packing/.
#pragma once

#include "../../call_arguments.h"

namespace lowbit {

namespace quantize_affine_mapping_type {
constexpr uint32_t kSymmetric = 0, kSymmetricNoClippingErr = 1, kAsymmetric = 2, kCodebook = 3, kKmeans = 4, kCount = 5;
}  // namespace quantize_affine_mapping_type

namespace quantize_affine_scale_type {
constexpr uint32_t kF32 = 0, kF16 = 1, kI8 = 2, kCount = 3;
}  // namespace quantize_affine_scale_type

namespace quantize_affine_dtype {
constexpr uint32_t kF32 = 0, kF16 = 1, kBf16 = 2, kCount = 3;
}  // namespace quantize_affine_dtype

namespace quantize_affine_algorithm {
constexpr uint32_t kAffine = 0, kHqqScaleOnly = 1, kMse = 2, kCount = 3;
}  // namespace quantize_affine_algorithm

struct QuantizeAffineArguments {
  const void* weights;
  // [n, k]
  int8_t* qvals;
  float* scales;
  float* super_scales;
  int8_t* zeros;
  // [importances]
  const float* importance;
  const float* trials;
  const int8_t* levels;
  // [1]
  int32_t* failed;
  size_t n, k, importances;
  float odd_zero;
  uint32_t group_size;
  uint32_t bits;
  // A number of quantize_affine_mapping_type.
  uint32_t mapping_type;
  // A number of quantize_affine_scale_type.
  uint32_t scale_type;
  // A number of quantize_affine_dtype.
  uint32_t dtype;
  // A number of quantize_affine_algorithm.
  uint32_t algorithm;
  void* scratch;
  static constexpr uint32_t kScalars = 10, kBuffers = 9;
};

template <class Visitor>
static inline void visit_arguments(QuantizeAffineArguments& args, Visitor& each) {
  each(args.n, args.k, args.importances, args.weights, args.qvals, args.scales, args.super_scales, args.zeros,
       args.odd_zero, args.importance, args.trials, args.levels, args.failed, args.group_size, args.bits,
       args.mapping_type, args.scale_type, args.dtype, args.algorithm, args.scratch);
}

namespace gptq_block_mapping_type {
constexpr uint32_t kSymmetric = 0, kSymmetricNoClippingErr = 1, kAsymmetric = 2, kCodebook = 3, kKmeans = 4, kCount = 5;
}  // namespace gptq_block_mapping_type

namespace gptq_block_scale_type {
constexpr uint32_t kF32 = 0, kF16 = 1, kI8 = 2, kCount = 3;
}  // namespace gptq_block_scale_type

struct GptqBlockArguments {
  float* scales;
  float* super_scales;
  int8_t* zeros;
  // [importances]
  const float* importance;
  const float* trials;
  const int8_t* levels;
  // [1]
  int32_t* failed;
  // [n, k]
  int8_t* qvals;
  // [n, k]
  const float* original;
  // [n, k]
  float* current;
  // [n, k]
  float* changes;
  // [k, k]
  const float* square;
  size_t importances, n, k;
  float odd_zero;
  uint32_t group_size;
  uint32_t bits;
  // A number of gptq_block_mapping_type.
  uint32_t mapping_type;
  // A number of gptq_block_scale_type.
  uint32_t scale_type;
  uint32_t first;
  uint32_t end;
  void* scratch;
  static constexpr uint32_t kScalars = 10, kBuffers = 12;
};

template <class Visitor>
static inline void visit_arguments(GptqBlockArguments& args, Visitor& each) {
  each(args.importances, args.n, args.k, args.scales, args.super_scales, args.zeros, args.odd_zero, args.importance,
       args.trials, args.levels, args.failed, args.group_size, args.bits, args.mapping_type, args.scale_type,
       args.qvals, args.original, args.current, args.changes, args.square, args.first, args.end, args.scratch);
}

struct QuantizePackArguments {
  // [n, k]
  const int8_t* qvals;
  const float* scales;
  // Or null.
  const int8_t* zeros;
  // Or null.
  const int8_t* levels;
  // Or null.
  const float* minima;
  // Or null.
  const float* super_scales;
  // Or null.
  const float* super_minima;
  uint8_t* panels;
  // [1]
  int32_t* negative;
  size_t n, k;
  uint32_t group_size;
  uint32_t bits;
  uint32_t scale_bytes;
  bool has_e4m3;
  float odd_zero;
  bool has_bias;
  void* scratch;
  static constexpr uint32_t kScalars = 13, kBuffers = 9;
};

template <class Visitor>
static inline void visit_arguments(QuantizePackArguments& args, Visitor& each) {
  each(args.n, args.k, args.qvals, args.scales, OrNull{args.zeros}, OrNull{args.levels}, OrNull{args.minima},
       OrNull{args.super_scales}, OrNull{args.super_minima}, args.group_size, args.bits, args.scale_bytes,
       args.has_e4m3, args.odd_zero, args.panels, args.negative, args.has_bias, args.scratch);
}

}  // namespace lowbit
