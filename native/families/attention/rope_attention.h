// Rotary embedding before attention.
#pragma once

#include "../../call_arguments.h"
#include "attention_calls.h"
#include "rope.h"

namespace lowbit {

// Attention over queries, keys and values that its first phase puts in scratch, rotated. `attention` comes first: the
// steps of attention see no other arguments.
struct RotatedAttentionArgs {
  AttentionArgs attention;
  const float* qkv;
  const float* angles;
  void (*attend)(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread);
};
static_assert(sizeof(RotatedAttentionArgs) <= kArgsMax);

template <class Isa>
void rope_update_and_attend_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread) {
  const RotatedAttentionArgs& args = step.as<RotatedAttentionArgs>();
  const AttentionArgs& to = args.attention;
  // Into scratch, wherever the rows are: the attention checks.
  if (phase == 0) {
    const size_t kv = to.stride(), q = static_cast<size_t>(to.heads) * to.head_dim;
    const uint32_t first = tile * to.stored_per_tile, last = std::min(to.rows, first + to.stored_per_tile);
    for (size_t t = first; t < last; t++) {
      const float* row = args.qkv + t * (q + 2 * kv);
      const float* angles = args.angles + t * 2 * to.half;
      rotate_heads<Isa>(row, angles, to.half, to.heads, to.head_dim, const_cast<float*>(to.q) + t * q);
      rotate_heads<Isa>(row + q, angles, to.half, to.kv_heads, to.head_dim, const_cast<float*>(to.k) + t * kv);
      memcpy(const_cast<float*>(to.v) + t * kv, row + q + kv, 4 * kv);
    }
  }
  args.attend(step, phase, tile, thread);
}

// Queries, keys and values in scratch, before that of the attention.
struct RotatedFloats {
  size_t q, kv, all;

  RotatedFloats(size_t rows, size_t heads, size_t kv_heads, size_t head_dim)
      : q(round_up(rows * heads * head_dim, 16)),
        kv(round_up(rows * kv_heads * head_dim, 16)),
        all(q + 2 * kv) {}
};

// Numbers of update_and_attend are the first ones, and its rows read them.
static_assert(rope_update_and_attend::kRows == update_and_attend::kRows &&
              rope_update_and_attend::kHasSinks == update_and_attend::kHasSinks &&
              rope_update_and_attend::kHalf == ScalarIndex{update_and_attend::kScalars});

static inline RotatedFloats rotated_floats(const Call& call) {
  namespace from = rope_update_and_attend;
  return {scalar_of<size_t>(call, from::kRows), scalar_of<size_t>(call, from::kHeads),
          scalar_of<size_t>(call, from::kKvHeads), scalar_of<size_t>(call, from::kHeadDim)};
}

// `Scratch` and `Prepare` are those of a row of update_and_attend.
template <size_t (*Scratch)(const Call&)>
size_t rope_update_and_attend_scratch(const Call& call) {
  return 4 * rotated_floats(call).all + Scratch(call);
}

template <class Isa, void (*Prepare)(Step&, const Call&)>
void rope_update_and_attend_prepare(Step& step, const Call& call) {
  namespace from = rope_update_and_attend;
  const RotatedFloats floats = rotated_floats(call);
  float* q = buffer_of<float>(call, from::kScratch);
  CallArguments<update_and_attend::kScalars, update_and_attend::kBuffers> to;
  for (uint32_t i = 0; i < update_and_attend::kScalars; i++) to[ScalarIndex{i}] = call.scalars[i];
  to[update_and_attend::kQ] = q;
  to[update_and_attend::kK] = q + floats.q;
  to[update_and_attend::kV] = q + floats.q + floats.kv;
  to[update_and_attend::kRuns] = buffer_of<void>(call, from::kRuns);
  to[update_and_attend::kPages] = buffer_of<void>(call, from::kPages);
  to[update_and_attend::kSinks] = buffer_of<void>(call, from::kSinks);
  to[update_and_attend::kY] = buffer_of<void>(call, from::kY);
  to.scratch() = q + floats.all;
  Prepare(step, to.call(call.threads));
  const AttentionArgs attention = step.as<AttentionArgs>();
  RotatedAttentionArgs& args = step.init<RotatedAttentionArgs>();
  args.attention = attention;
  args.qkv = buffer_of<const float>(call, from::kQkv);
  args.angles = buffer_of<const float>(call, from::kAngles);
  args.attend = step.run;
  args.attention.half = scalar_of<uint32_t>(call, from::kHalf);
  step.run = rope_update_and_attend_run<Isa>;
}

}  // namespace lowbit
