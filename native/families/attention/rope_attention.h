// Attention with rotary position embedding over a fused qkv: phase 0 rotates queries and keys into scratch.
#pragma once

#include "attention_calls.h"
#include "rope.h"

namespace lowbit {

// Arguments of attention whose q, k and v are in scratch, where phase 0 puts them rotated. `attention` must come first:
// the phases of attention read these arguments as AttentionArgs.
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
  // Rotates all tokens, those without a position, too: attention checks positions.
  if (phase == 0) {
    const size_t kv = to.stride(), q = static_cast<size_t>(to.heads) * to.head_dim;
    each_stored_range(to, tile, step.tiles[0], [&](uint32_t first, uint32_t last) {
      for (size_t t = first; t < last; t++) {
        const float* row = args.qkv + t * (q + 2 * kv);
        const float* angles = args.angles + t * 2 * to.half;
        rotate_heads<Isa>(row, angles, to.half, to.heads, to.head_dim, const_cast<float*>(to.q) + t * q);
        rotate_heads<Isa>(row + q, angles, to.half, to.kv_heads, to.head_dim, const_cast<float*>(to.k) + t * kv);
        memcpy(const_cast<float*>(to.v) + t * kv, row + q + kv, 4 * kv);
      }
    });
  }
  args.attend(step, phase, tile, thread);
}

// Floats of q, of k (and of v), and of all three. In scratch they come before attention's own.
struct RotatedFloats {
  size_t q, kv, all;

  RotatedFloats(size_t rows, size_t heads, size_t kv_heads, size_t head_dim)
      : q(round_up(rows * heads * head_dim, 16)),
        kv(round_up(rows * kv_heads * head_dim, 16)),
        all(q + 2 * kv) {}
};

static inline RotatedFloats rotated_floats(const RopeUpdateAndAttendArguments& given) {
  return {given.rows, given.heads, given.kv_heads, given.head_dim};
}

// Arguments of the attention over q at `q`, followed by k, v and its scratch.
static inline UpdateAndAttendArguments rotated_arguments(const RopeUpdateAndAttendArguments& given, float* q) {
  const RotatedFloats floats = rotated_floats(given);
  UpdateAndAttendArguments to{};
  to.q = q;
  to.k = q + floats.q;
  to.v = q + floats.q + floats.kv;
  to.scratch = q + floats.all;
  to.runs = given.runs;
  to.pages = given.pages;
  to.sinks = given.sinks;
  to.y = given.y;
  to.rows = given.rows;
  to.heads = given.heads;
  to.head_dim = given.head_dim;
  to.kv_heads = given.kv_heads;
  to.runs_max = given.runs_max;
  to.page_positions = given.page_positions;
  to.pages_max = given.pages_max;
  to.cache_type = given.cache_type;
  to.key_offset = given.key_offset;
  to.value_offset = given.value_offset;
  to.key_scale_offset = given.key_scale_offset;
  to.value_scale_offset = given.value_scale_offset;
  to.residual_pages = given.residual_pages;
  to.residual_key_offset = given.residual_key_offset;
  to.residual_value_offset = given.residual_value_offset;
  to.scale = given.scale;
  to.window = given.window;
  to.softcap = given.softcap;
  return to;
}

// Scratch of a call whose attention is an update_and_attend kernel with scratch `Scratch`.
template <size_t (*Scratch)(const Call&)>
size_t rope_update_and_attend_scratch(const Call& call) {
  const auto given = arguments_of<RopeUpdateAndAttendArguments>(call);
  const CallOf<UpdateAndAttendArguments> to(rotated_arguments(given, nullptr));
  return 4 * rotated_floats(given).all + Scratch(to.call(call.threads));
}

template <class Isa, void (*Prepare)(Step&, const Call&)>
void rope_update_and_attend_prepare(Step& step, const Call& call) {
  const auto given = arguments_of<RopeUpdateAndAttendArguments>(call);
  const CallOf<UpdateAndAttendArguments> to(rotated_arguments(given, static_cast<float*>(given.scratch)));
  Prepare(step, to.call(call.threads));
  const AttentionArgs attention = step.as<AttentionArgs>();
  RotatedAttentionArgs& args = step.init<RotatedAttentionArgs>();
  args.attention = attention;
  args.qkv = given.qkv;
  args.angles = given.angles;
  args.attend = step.run;
  args.attention.half = static_cast<uint32_t>(given.half);
  step.run = rope_update_and_attend_run<Isa>;
}

}  // namespace lowbit
