// The arguments of families of kernels. Written by `npm run families` from src/kernels/families/sampling/.
#pragma once

#include "../../call_arguments.h"

namespace lowbit {

struct VocabularyMaximaArguments {
  // [blocks, 128]
  float* x;
  // [blocks, 4]
  const uint32_t* allowed;
  // [blocks]
  float* maxima;
  size_t blocks;
  void* scratch;
  static constexpr uint32_t kScalars = 1, kBuffers = 3;
};

template <class Visitor>
static inline void visit_arguments(VocabularyMaximaArguments& args, Visitor& each) {
  each(args.blocks, args.x, args.allowed, args.maxima, args.scratch);
}

struct VocabularyWeightsArguments {
  // [blocks, 128]
  const float* x;
  // [blocks]
  const float* maxima;
  // [3]
  const float* settings;
  // [blocks, 128]
  float* weights;
  // [blocks]
  float* sums;
  size_t blocks;
  void* scratch;
  static constexpr uint32_t kScalars = 1, kBuffers = 5;
};

template <class Visitor>
static inline void visit_arguments(VocabularyWeightsArguments& args, Visitor& each) {
  each(args.blocks, args.x, args.maxima, args.settings, args.weights, args.sums, args.scratch);
}

}  // namespace lowbit
