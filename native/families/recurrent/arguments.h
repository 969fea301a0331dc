// The arguments of families of kernels. Written by `npm run families` from src/kernels/families/recurrent/.
#pragma once

#include "../../call_arguments.h"

namespace lowbit {

struct ShortConvolutionArguments {
  // [rows, channels]
  const float* x;
  // [taps, channels]
  const float* weight;
  // [channels], or null
  const float* bias;
  const int32_t* runs;
  const uint64_t* states;
  const uint64_t* next_states;
  // [rows, channels]
  float* y;
  size_t rows, channels, taps;
  uint32_t runs_max;
  uint32_t slots;
  size_t state_offset;
  bool silu;
  void* scratch;
  static constexpr uint32_t kScalars = 8, kBuffers = 7;
};

template <class Visitor>
static inline void visit_arguments(ShortConvolutionArguments& args, Visitor& each) {
  each(args.rows, args.channels, args.taps, args.x, args.weight, OrNull{args.bias}, args.runs, args.states,
       args.next_states, args.runs_max, args.slots, args.state_offset, args.y, args.silu, args.scratch);
}

struct LinearRecurrenceArguments {
  // [rows, key_heads, key_dim]
  const float* q;
  // [rows, key_heads, key_dim]
  const float* k;
  // [rows, heads, value_dim]
  const float* v;
  // [rows, heads]
  const float* log_decay;
  // [rows, heads], or null
  const float* beta;
  const int32_t* runs;
  const uint64_t* states;
  const uint64_t* next_states;
  // [rows, heads, value_dim]
  float* y;
  size_t rows, key_heads, key_dim, heads, value_dim;
  uint32_t runs_max;
  uint32_t slots;
  size_t state_offset;
  float scale;
  void* scratch;
  static constexpr uint32_t kScalars = 10, kBuffers = 9;
};

template <class Visitor>
static inline void visit_arguments(LinearRecurrenceArguments& args, Visitor& each) {
  each(args.rows, args.key_heads, args.key_dim, args.heads, args.value_dim, args.q, args.k, args.v, args.log_decay,
       OrNull{args.beta}, args.runs, args.states, args.next_states, args.runs_max, args.slots, args.state_offset,
       args.y, args.scale, args.scratch);
}

}  // namespace lowbit
