// Fused operators: gates of the halves of rows, a sum and its norm, and rotary embedding before attention.
#pragma once

#include "../call_arguments.h"
#include "attention_calls.h"
#include "elementwise.h"
#include "norm.h"

namespace lowbit {

template <class Isa, class Operation>
void halves_run(const Step& step, uint32_t, uint32_t tile, uint32_t) {
  const RowsArgs& args = step.as<RowsArgs>();
  const uint32_t last = std::min(args.rows, (tile + 1) * args.rows_per_tile);
  const auto one = Isa::set(1.0f);
  for (uint32_t row = tile * args.rows_per_tile; row < last; row++) {
    const float* a = args.x + 2 * static_cast<size_t>(row) * args.dim;
    const float* b = a + args.dim;
    float* y = static_cast<float*>(args.y) + static_cast<size_t>(row) * args.dim;
    each_vector<Isa>(args.dim, [&](size_t i, auto vector) {
      vector.store(y + i, Operation::template apply<Isa>(vector.load(a + i), vector.load(b + i), one));
    });
  }
}

template <class Isa, class Operation>
void halves_prepare(Step& step, const Call& call) {
  split_rows<Isa>(step, call, {halves::kRows, halves::kDim, halves::kX, halves::kY});
  step.run = halves_run<Isa, Operation>;
}

struct AddNormArgs : RowsArgs {
  float* sum;
  const float* addend;
  float alpha;
};

template <class Isa>
void add_rms_norm_run(const Step& step, uint32_t, uint32_t tile, uint32_t) {
  const AddNormArgs& args = step.as<AddNormArgs>();
  const uint32_t first = tile * args.rows_per_tile, last = std::min(args.rows, first + args.rows_per_tile);
  const auto alpha = Isa::set(args.alpha);
  for (uint32_t row = first; row < last; row++) {
    float* sum = args.sum + static_cast<size_t>(row) * args.dim;
    const float* addend = args.addend + static_cast<size_t>(row) * args.dim;
    each_vector<Isa>(args.dim, [&](size_t i, auto vector) {
      vector.store(sum + i, AddOperation::apply<Isa>(vector.load(sum + i), vector.load(addend + i), alpha));
    });
    norm_row<Isa>(args, row);
  }
}

template <class Isa>
void add_rms_norm_prepare(Step& step, const Call& call) {
  const RowsArgs rows =
      split_rows<Isa>(step, call, {add_rms_norm::kRows, add_rms_norm::kDim, add_rms_norm::kX, add_rms_norm::kY});
  AddNormArgs& args = step.init<AddNormArgs>();
  static_cast<RowsArgs&>(args) = rows;
  args.eps = scalar_of<double>(call, add_rms_norm::kEps);
  args.weight = buffer_of<const float>(call, add_rms_norm::kWeight);
  args.sum = buffer_of<float>(call, add_rms_norm::kX);
  args.addend = buffer_of<const float>(call, add_rms_norm::kAddend);
  args.alpha = scalar_of<float>(call, add_rms_norm::kAlpha);
  step.run = add_rms_norm_run<Isa>;
}

// Attention over queries, keys and values that its first phase puts in scratch, rotated. `attention` comes first: the
// steps of attention see no other arguments.
struct RopeAttentionArgs {
  AttentionArgs attention;
  const float* qkv;
  const float* angles;
  void (*attend)(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread);
};
static_assert(sizeof(RopeAttentionArgs) <= kArgsMax);

template <class Isa>
void rope_attention_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread) {
  const RopeAttentionArgs& args = step.as<RopeAttentionArgs>();
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

// Numbers of attention are the first ones, so that its rows can read them.
static_assert(rope_attention::kTokens == attention::kTokens && rope_attention::kStores == attention::kStores &&
              rope_attention::kHalf == ScalarIndex{attention::kScalars});
static_assert(rope_update_and_attend::kRows == update_and_attend::kRows &&
              rope_update_and_attend::kHasSinks == update_and_attend::kHasSinks &&
              rope_update_and_attend::kHalf == ScalarIndex{update_and_attend::kScalars});
// Both families begin with the same numbers.
static_assert(update_and_attend::kRows == attention::kTokens && update_and_attend::kHeads == attention::kHeads &&
              update_and_attend::kKvHeads == attention::kKvHeads && update_and_attend::kHeadDim == attention::kHeadDim);

static inline RotatedFloats rotated_floats(const Call& call) {
  return {scalar_of<size_t>(call, attention::kTokens), scalar_of<size_t>(call, attention::kHeads),
          scalar_of<size_t>(call, attention::kKvHeads), scalar_of<size_t>(call, attention::kHeadDim)};
}

template <size_t (*Scratch)(const Call&)>
size_t rope_attention_scratch(const Call& call) {
  return 4 * rotated_floats(call).all + Scratch(call);
}

// A call of attention over what is rotated, `q` and what follows it. `Prepare` is that of a row of attention.
template <class Isa, uint32_t Scalars, uint32_t Buffers>
struct RotatedCall {
  CallArguments<Scalars, Buffers> to;
  RotatedFloats floats;
  float* q;

  RotatedCall(const Call& call, BufferIndex scratch)
      : floats(rotated_floats(call)),
        q(buffer_of<float>(call, scratch)) {
    for (uint32_t i = 0; i < Scalars; i++) to[ScalarIndex{i}] = call.scalars[i];
    to[BufferIndex{0}] = q;
    to[BufferIndex{1}] = q + floats.q;
    to[BufferIndex{2}] = q + floats.q + floats.kv;
    to.scratch() = q + floats.all;
  }

  void prepare(void (*prepare)(Step&, const Call&), Step& step, const Call& call, uint32_t half) {
    prepare(step, to.call(call.threads));
    const AttentionArgs attention = step.as<AttentionArgs>();
    RopeAttentionArgs& args = step.init<RopeAttentionArgs>();
    args.attention = attention;
    args.qkv = buffer_of<const float>(call, BufferIndex{0});
    args.angles = buffer_of<const float>(call, BufferIndex{1});
    args.attend = step.run;
    args.attention.half = half;
    step.run = rope_attention_run<Isa>;
  }
};
static_assert(attention::kQ == BufferIndex{0} && attention::kK == BufferIndex{1} && attention::kV == BufferIndex{2});
static_assert(update_and_attend::kQ == BufferIndex{0} && update_and_attend::kK == BufferIndex{1} &&
              update_and_attend::kV == BufferIndex{2});
static_assert(rope_attention::kQkv == BufferIndex{0} && rope_attention::kAngles == BufferIndex{1});
static_assert(rope_update_and_attend::kQkv == BufferIndex{0} && rope_update_and_attend::kAngles == BufferIndex{1});

// `Prepare` is that of a row of attention.
template <class Isa, void (*Prepare)(Step&, const Call&)>
void rope_attention_prepare(Step& step, const Call& call) {
  namespace from = rope_attention;
  RotatedCall<Isa, attention::kScalars, attention::kBuffers> rotated(call, from::kScratch);
  rotated.to[attention::kKeyCache] = buffer_of<void>(call, from::kKeyCache);
  rotated.to[attention::kValueCache] = buffer_of<void>(call, from::kValueCache);
  rotated.to[attention::kKeyScales] = buffer_of<void>(call, from::kKeyScales);
  rotated.to[attention::kValueScales] = buffer_of<void>(call, from::kValueScales);
  rotated.to[attention::kPosition] = buffer_of<void>(call, from::kPosition);
  rotated.to[attention::kY] = buffer_of<void>(call, from::kY);
  rotated.prepare(Prepare, step, call, scalar_of<uint32_t>(call, from::kHalf));
}

// `Prepare` is that of a row of update_and_attend.
template <class Isa, void (*Prepare)(Step&, const Call&)>
void rope_update_and_attend_prepare(Step& step, const Call& call) {
  namespace from = rope_update_and_attend;
  RotatedCall<Isa, update_and_attend::kScalars, update_and_attend::kBuffers> rotated(call, from::kScratch);
  rotated.to[update_and_attend::kRuns] = buffer_of<void>(call, from::kRuns);
  rotated.to[update_and_attend::kPages] = buffer_of<void>(call, from::kPages);
  rotated.to[update_and_attend::kSinks] = buffer_of<void>(call, from::kSinks);
  rotated.to[update_and_attend::kY] = buffer_of<void>(call, from::kY);
  rotated.prepare(Prepare, step, call, scalar_of<uint32_t>(call, from::kHalf));
}

}  // namespace lowbit
