// Binds calls of attention over a contiguous KV cache and over pages: sizes, scratch and steps.
#pragma once

#include "../division.h"
#include "arguments.h"
#include "attention.h"
#include "attention_int4.h"

namespace lowbit {

// Most queries that share copies of keys and values: enough to pay for the copies, and few enough for a part's scratch
// to stay in the second-level cache.
constexpr uint32_t kPartQueries = 256;

// Tokens of a part: at most `queries` queries with heads of up to 64 columns, fewer with larger heads, and fewer where
// some threads would get no part.
static inline uint32_t rows_of_tile(const AttentionArgs& args, uint32_t queries) {
  const uint32_t most = std::max(1u, std::min(queries, 64 * queries / args.head_dim) / args.group);
  const uint32_t tiles_wanted = ceil_div(4 * args.threads, args.kv_heads);
  return std::max(1u, std::min(most, args.rows / tiles_wanted));
}

// Queries that are multiplied at once, and the cost of copying a block, in queries.
struct CopyCosts {
  uint32_t at_once, copies;
};

// Tokens of a part, at most `queries` queries, with which the last thread ends soonest: larger parts copy less, smaller
// ones share better.
static inline uint32_t rows_of_copies(const AttentionArgs& args, uint32_t queries, CopyCosts costs) {
  const uint32_t most = std::max(1u, queries / args.group);
  uint32_t best = 0;
  uint64_t least = UINT64_MAX;
  for (uint32_t parts = ceil_div(args.rows, most); parts <= std::min(args.rows, 16 * args.threads); parts++) {
    const uint32_t rows = ceil_div(args.rows, parts);
    const uint64_t cost = round_up(rows * args.group, costs.at_once) + costs.copies;
    const uint64_t longest = ceil_div(args.kv_heads * parts, args.threads) * cost;
    if (longest < least) {
      least = longest;
      best = rows;
    }
  }
  return best > 0 ? best : most;
}

// Floats of one thread's scratch.
template <class Isa>
size_t floats_of_thread(const AttentionArgs& args) {
  const uint32_t few = std::min(args.rows, kFewRows) * args.group;
  const uint32_t many = std::max(few, args.rows_per_tile * args.group);
  const size_t of_few = FewRowsScratch<Isa>(args.head_dim, args.kv_heads, LaneShape<Isa>(few)).floats;
  const LaneShape<Isa> shape(std::min(many, Isa::kLanes));
  const size_t of_one_head = FewRowsScratch<Isa>(args.head_dim, 1, shape).floats;
  const size_t of_many = ManyRowsScratch<Isa>(args.head_dim, many).floats;
  const size_t of_int4 = args.is_int4 ? int4_floats<Isa>(args, few, many) : 0;
  return std::max({of_few, of_one_head, of_many, of_int4});
}

// Sets the fields that follow from the sizes.
template <class Isa>
void size_attention(AttentionArgs& args) {
  args.group = args.heads / args.kv_heads;
  args.rows_per_tile = rows_of_tile(args, kPartQueries);
  const size_t stored_least = kTileValues / std::max<size_t>(1, args.stride());
  args.stored_per_tile = items_per_tile<Isa>(args.rows, stored_least, args.threads);
  args.split_rows = args.threads > 1 ? std::min(args.rows, kSplitRowsMost) : 0;
  args.thread_floats = floats_of_thread<Isa>(args);
}

// Sizes of a call on a contiguous cache, without buffers; pages_args has those of a call on pages.
template <class Isa>
AttentionArgs cache_args(const Call& call) {
  const auto given = arguments_of<AttentionArguments>(call);
  AttentionArgs args{};
  args.rows = given.tokens;
  args.heads = given.heads;
  args.kv_heads = given.kv_heads;
  args.head_dim = given.head_dim;
  args.capacity = given.capacity;
  args.rule = {given.scale, given.softcap};
  // A window longer than the cache hides nothing, and may not fit 32 bits.
  args.window = static_cast<uint32_t>(std::min(given.window, 1.0 * args.capacity));
  args.threads = call.threads;
  size_attention<Isa>(args);
  return args;
}

// Element type of pages, as numbered in src/kernels/sequence-table.ts.
enum class CacheType : uint32_t { kFloats, kHalves, kIntegers, kInt4 };

// Whether prefill may round queries, keys, values and weights: not on f32 pages, which ask for exactness.
static inline bool rounds_prompts(const Call& call) {
  const auto type = static_cast<CacheType>(arguments_of<UpdateAndAttendArguments>(call).cache_type);
  return type != CacheType::kFloats;
}

template <class Isa>
AttentionArgs pages_args(const Call& call) {
  const auto given = arguments_of<UpdateAndAttendArguments>(call);
  AttentionArgs args{};
  args.rows = given.rows;
  args.heads = given.heads;
  args.kv_heads = given.kv_heads;
  args.head_dim = given.head_dim;
  const uint32_t positions = given.page_positions;
  while (1u << args.page_shift < positions) args.page_shift++;
  args.pages_max = given.pages_max;
  args.runs_max = given.runs_max;
  args.capacity = static_cast<uint32_t>(std::min(1.0 * args.pages_max * positions, 1.0 * INT32_MAX));
  args.rule = {given.scale, given.softcap};
  args.window = static_cast<uint32_t>(std::min(given.window, 1.0 * args.capacity));
  args.threads = call.threads;
  args.is_int4 = static_cast<CacheType>(given.cache_type) == CacheType::kInt4;
  size_attention<Isa>(args);
  return args;
}

static inline size_t attention_floats(const AttentionArgs& args) {
  const ChunkResults results(args);
  return plan_floats(args) + args.threads * args.thread_floats +
         static_cast<size_t>(args.split_rows) * results.chunks * results.heads * results.floats;
}

template <class Isa>
size_t attention_scratch(const Call& call) {
  return 4 * attention_floats(cache_args<Isa>(call));
}

template <class Isa>
size_t update_and_attend_scratch(const Call& call) {
  return 4 * attention_floats(pages_args<Isa>(call));
}

static inline void begin_attention(Step& step, const AttentionArgs& args) {
  step.init<AttentionArgs>() = args;
  step.phases = args.split_rows > 0 ? 3 : 2;
  step.tiles[0] = ceil_div(args.rows, args.stored_per_tile);
  // Several tiles per thread, so that threads end at about the same time.
  step.tiles[1] = args.threads == 1 ? 1 : args.threads * std::min(std::max(args.rows / 2, 4u), 16u);
  step.tiles[2] = std::min(args.threads, ceil_div(args.split_rows * args.heads * args.head_dim, 1024));
}

// Binds the buffers of a call on a contiguous cache.
static inline void bind_cache(AttentionArgs& args, const Call& call) {
  const auto given = arguments_of<AttentionArguments>(call);
  args.q = given.q;
  args.k = given.k;
  args.v = given.v;
  args.keys = reinterpret_cast<uintptr_t>(given.key_cache);
  args.values = reinterpret_cast<uintptr_t>(given.value_cache);
  args.runs = given.position;
  args.y = given.y;
  args.scratch = static_cast<float*>(given.scratch);
}

template <class Isa>
void attention_prepare(Step& step, const Call& call) {
  AttentionArgs args = cache_args<Isa>(call);
  bind_cache(args, call);
  begin_attention(step, args);
  step.run = attention_run<Isa, float>;
}

// Binds the buffers of a call on pages, and the layer's offsets in a page.
static inline void bind_pages(AttentionArgs& args, const Call& call) {
  const auto given = arguments_of<UpdateAndAttendArguments>(call);
  args.q = given.q;
  args.k = given.k;
  args.v = given.v;
  args.keys = given.key_offset;
  args.values = given.value_offset;
  args.key_scales = given.key_scale_offset;
  args.value_scales = given.value_scale_offset;
  args.runs = given.runs;
  args.pages = given.pages;
  args.sinks = given.sinks;
  args.y = given.y;
  args.scratch = static_cast<float*>(given.scratch);
  if (!args.is_int4) return;
  args.full_pages = given.pages;
  args.full_keys = given.key_offset;
  args.full_values = given.value_offset;
  args.pages = given.residual_pages;
  args.keys = given.residual_key_offset;
  args.values = given.residual_value_offset;
}

template <class Isa>
void update_and_attend_prepare(Step& step, const Call& call) {
  const auto given = arguments_of<UpdateAndAttendArguments>(call);
  AttentionArgs args = pages_args<Isa>(call);
  bind_pages(args, call);
  begin_attention(step, args);
  switch (static_cast<CacheType>(given.cache_type)) {
    case CacheType::kFloats: step.run = attention_run<Isa, float>; break;
    case CacheType::kHalves: step.run = attention_run<Isa, uint16_t>; break;
    case CacheType::kIntegers: step.run = attention_run<Isa, int8_t>; break;
    case CacheType::kInt4: step.run = int4_run<typename Isa::Bytes>; break;
  }
}

}  // namespace lowbit
