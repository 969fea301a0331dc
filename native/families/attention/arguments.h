// The arguments of families of kernels. Written by `npm run families` from src/kernels/families/attention/.
#pragma once

#include "../../call_arguments.h"

namespace lowbit {

struct RopeAnglesArguments {
  // [positions]
  const int64_t* position;
  // [half]
  const float* inverse_frequencies;
  // [tokens, 2, half]
  float* angles;
  size_t positions, half, tokens;
  float scale;
  void* scratch;
  static constexpr uint32_t kScalars = 4, kBuffers = 3;
};

template <class Visitor>
static inline void visit_arguments(RopeAnglesArguments& args, Visitor& each) {
  each(args.positions, args.half, args.tokens, args.position, args.inverse_frequencies, args.angles, args.scale,
       args.scratch);
}

struct RopeArguments {
  // [tokens, heads, head_dim]
  const float* x;
  // [tokens, 2, half]
  const float* angles;
  // [tokens, heads, head_dim]
  float* y;
  size_t tokens, heads, head_dim, half;
  void* scratch;
  static constexpr uint32_t kScalars = 4, kBuffers = 3;
};

template <class Visitor>
static inline void visit_arguments(RopeArguments& args, Visitor& each) {
  each(args.tokens, args.heads, args.head_dim, args.half, args.x, args.angles, args.y, args.scratch);
}

struct AttentionArguments {
  // [tokens, heads, head_dim]
  const float* q;
  // [tokens, kv_heads, head_dim], or null
  const float* k;
  // [tokens, kv_heads, head_dim], or null
  const float* v;
  // [capacity, kv_heads, head_dim]
  float* key_cache;
  // [capacity, kv_heads, head_dim]
  float* value_cache;
  // [1]
  const int64_t* position;
  // [tokens, heads, head_dim]
  float* y;
  size_t tokens, heads, head_dim, kv_heads, capacity;
  float scale;
  double window;
  float softcap;
  void* scratch;
  static constexpr uint32_t kScalars = 10, kBuffers = 7;
};

template <class Visitor>
static inline void visit_arguments(AttentionArguments& args, Visitor& each) {
  each(args.tokens, args.heads, args.head_dim, args.kv_heads, args.capacity, args.q, OrNull{args.k}, OrNull{args.v},
       args.key_cache, args.value_cache, args.position, args.y, args.scale, args.window, args.softcap, args.scratch);
}

namespace update_and_attend_cache_type {
constexpr uint32_t kF32 = 0, kF16 = 1, kInt8 = 2, kCount = 3;
}  // namespace update_and_attend_cache_type

struct UpdateAndAttendArguments {
  // [rows, heads, head_dim]
  const float* q;
  // [rows, kv_heads, head_dim], or null
  const float* k;
  // [rows, kv_heads, head_dim], or null
  const float* v;
  const int32_t* runs;
  const uint64_t* pages;
  // [heads], or null
  const float* sinks;
  // [rows, heads, head_dim]
  float* y;
  size_t rows, heads, head_dim, kv_heads;
  uint32_t runs_max;
  uint32_t page_positions;
  uint32_t pages_max;
  // A number of update_and_attend_cache_type.
  uint32_t cache_type;
  size_t key_offset;
  size_t value_offset;
  size_t key_scale_offset;
  size_t value_scale_offset;
  float scale;
  double window;
  float softcap;
  void* scratch;
  static constexpr uint32_t kScalars = 18, kBuffers = 7;
};

template <class Visitor>
static inline void visit_arguments(UpdateAndAttendArguments& args, Visitor& each) {
  each(args.rows, args.heads, args.head_dim, args.kv_heads, args.q, OrNull{args.k}, OrNull{args.v}, args.runs,
       args.runs_max, args.pages, args.page_positions, args.pages_max, args.cache_type, args.key_offset,
       args.value_offset, args.key_scale_offset, args.value_scale_offset, OrNull{args.sinks}, args.y, args.scale,
       args.window, args.softcap, args.scratch);
}

namespace rope_update_and_attend_cache_type {
constexpr uint32_t kF32 = 0, kF16 = 1, kInt8 = 2, kCount = 3;
}  // namespace rope_update_and_attend_cache_type

struct RopeUpdateAndAttendArguments {
  const float* qkv;
  // [rows, 2, half]
  const float* angles;
  const int32_t* runs;
  const uint64_t* pages;
  // [heads], or null
  const float* sinks;
  // [rows, heads, head_dim]
  float* y;
  size_t rows, half, heads, head_dim;
  uint32_t kv_heads;
  uint32_t runs_max;
  uint32_t page_positions;
  uint32_t pages_max;
  // A number of rope_update_and_attend_cache_type.
  uint32_t cache_type;
  size_t key_offset;
  size_t value_offset;
  size_t key_scale_offset;
  size_t value_scale_offset;
  float scale;
  double window;
  float softcap;
  void* scratch;
  static constexpr uint32_t kScalars = 17, kBuffers = 6;
};

template <class Visitor>
static inline void visit_arguments(RopeUpdateAndAttendArguments& args, Visitor& each) {
  each(args.rows, args.half, args.heads, args.head_dim, args.qkv, args.angles, args.kv_heads, args.runs, args.runs_max,
       args.pages, args.page_positions, args.pages_max, args.cache_type, args.key_offset, args.value_offset,
       args.key_scale_offset, args.value_scale_offset, OrNull{args.sinks}, args.y, args.scale, args.window,
       args.softcap, args.scratch);
}

struct AttendPackedArguments {
  // [rows, heads, head_dim]
  const float* q;
  // [rows, kv_heads, head_dim]
  const float* k;
  // [rows, kv_heads, head_dim]
  const float* v;
  // [bounds]
  const int64_t* offsets;
  // [rows, heads, head_dim]
  float* y;
  size_t rows, heads, head_dim, kv_heads, bounds;
  float scale;
  uint32_t before;
  uint32_t after;
  void* scratch;
  static constexpr uint32_t kScalars = 8, kBuffers = 5;
};

template <class Visitor>
static inline void visit_arguments(AttendPackedArguments& args, Visitor& each) {
  each(args.rows, args.heads, args.head_dim, args.kv_heads, args.bounds, args.q, args.k, args.v, args.offsets, args.y,
       args.scale, args.before, args.after, args.scratch);
}

}  // namespace lowbit
