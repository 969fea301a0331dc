// How attention's work is shared among threads. A query's result does not depend on it: chunks of keys begin at fixed
// positions, and their results are merged in order (split-K, as in FlashDecoding).
#pragma once

#include "attention_cache.h"

namespace lowbit {

// From position `begin` on, chunks have `size` keys and are numbered from `index` on. From position 512 on a chunk is
// at most an eighth of the context before it, so that threads get about equal shares.
struct ChunkSizes {
  uint32_t begin, size, index;
};
constexpr ChunkSizes kChunkSizes[] = {{0, 64, 0}, {1024, 128, 16}, {2048, 256, 24}, {8192, 512, 48}, {16384, 1024, 64}};
constexpr uint32_t kChunkSizesLast = sizeof kChunkSizes / sizeof *kChunkSizes - 1;

constexpr bool chunks_follow_each_other() {
  for (uint32_t i = 0; i < kChunkSizesLast; i++) {
    const ChunkSizes own = kChunkSizes[i], next = kChunkSizes[i + 1];
    if (own.begin + (next.index - own.index) * own.size != next.begin) return false;
  }
  return true;
}
static_assert(chunks_follow_each_other());

static inline uint32_t chunk_index(uint32_t position) {
  uint32_t i = kChunkSizesLast;
  while (position < kChunkSizes[i].begin) i--;
  return kChunkSizes[i].index + (position - kChunkSizes[i].begin) / kChunkSizes[i].size;
}

static inline uint32_t chunk_begin(uint32_t chunk) {
  uint32_t i = kChunkSizesLast;
  while (chunk < kChunkSizes[i].index) i--;
  return kChunkSizes[i].begin + (chunk - kChunkSizes[i].index) * kChunkSizes[i].size;
}

// Whether a chunk begins at `position`, a multiple of kBlockKeys.
static inline bool is_chunk_begin(uint32_t position) { return chunk_begin(chunk_index(position)) == position; }

// A run, and the number of parts that its KV heads, its tokens and its keys are split into.
struct AttentionJob {
  Run run;
  uint32_t head_parts, row_parts, key_parts;
  // The first of the run's rows in ChunkResults, where key_parts > 1.
  uint32_t split_row;
  uint64_t cost_before, cost_of_part;

  uint32_t parts() const { return head_parts * row_parts * key_parts; }
};

// The plan that phase 0 leaves in scratch. Its jobs follow.
struct AttentionPlan {
  uint64_t cost;
  uint32_t jobs, split_rows;
};

static inline AttentionPlan& plan_of(const AttentionArgs& args) {
  return *reinterpret_cast<AttentionPlan*>(args.scratch);
}
static inline AttentionJob* jobs_of(const AttentionArgs& args) {
  return reinterpret_cast<AttentionJob*>(args.scratch + sizeof(AttentionPlan) / 4);
}
static inline size_t plan_floats(const AttentionArgs& args) {
  return round_up(sizeof(AttentionPlan) + args.rows * sizeof(AttentionJob), 64) / 4;
}

static inline float* thread_scratch(const AttentionArgs& args, uint32_t thread) {
  return args.scratch + plan_floats(args) + thread * args.thread_floats;
}

// Runs of up to kFewRows tokens are computed with all KV heads together, from the cache. Longer runs are computed one
// KV head at a time, from copies of its keys.
constexpr uint32_t kFewRows = 4;
// Most tokens of a step that may be split over keys (split-K).
constexpr uint32_t kSplitRowsMost = 32;
// Least cost of a part that is worth splitting off, as cost_of counts it.
constexpr uint64_t kLeastCost = 32;

// Cost of a run: the number of pairs of a token and a key that it sees.
static inline uint64_t cost_of(const AttentionArgs& args, const Run& run) {
  const uint32_t last = run.position + run.rows - 1;
  const uint64_t most = last + 1 - args.first_seen(last), least = run.position + 1 - args.first_seen(run.position);
  return run.rows * (most + least) / 2 + 1;
}

// Splits a run of few tokens into `wanted` parts: by keys, and by KV heads where there are too few chunks of keys.
// Parts of the keys are contiguous in memory; threads that read heads of the same rows slow each other down.
static inline void split_job(const AttentionArgs& args, uint32_t wanted, AttentionPlan& plan, AttentionJob& job) {
  const Run& run = job.run;
  const uint32_t last = run.position + run.rows - 1;
  const uint32_t chunks = chunk_index(last) - chunk_index(args.first_seen(run.position)) + 1;
  if (plan.split_rows + run.rows <= args.split_rows) job.key_parts = std::min(wanted, chunks);
  job.head_parts = std::min(args.kv_heads, wanted / job.key_parts);
  if (job.key_parts == 1) return;
  job.split_row = plan.split_rows;
  plan.split_rows += run.rows;
}

static inline void plan_attention(const AttentionArgs& args) {
  AttentionPlan& plan = plan_of(args);
  AttentionJob* jobs = jobs_of(args);
  plan = {0, 0, 0};
  each_run(args, [&](const Run& run) {
    jobs[plan.jobs++] = {run, 1, 1, 1, 0, 0, 0};
    plan.cost += cost_of(args, run);
  });
  const uint64_t total = plan.cost, parts = 2 * args.threads;
  plan.cost = 0;
  for (uint32_t i = 0; i < plan.jobs; i++) {
    AttentionJob& job = jobs[i];
    const uint64_t cost = cost_of(args, job.run);
    if (job.run.rows > kFewRows || (args.copies_for_prefill && job.run.is_prefill)) {
      job.head_parts = args.kv_heads;
      job.row_parts = ceil_div(job.run.rows, args.rows_per_tile);
    } else if (args.threads > 1) {
      const uint64_t wanted = std::min((cost * parts + total - 1) / total, cost / kLeastCost);
      if (wanted > 1) split_job(args, static_cast<uint32_t>(wanted), plan, job);
    }
    job.cost_before = plan.cost;
    job.cost_of_part = cost * args.kv_heads / job.parts() + 1;
    plan.cost += job.cost_of_part * job.parts();
  }
}

// Calls body(job, part) for the parts in share `tile` of `tiles` equal shares of the cost.
template <class Body>
void each_part(const AttentionArgs& args, uint32_t tile, uint32_t tiles, Body&& body) {
  const AttentionPlan& plan = plan_of(args);
  const AttentionJob* jobs = jobs_of(args);
  const uint64_t begin = plan.cost * tile / tiles, end = plan.cost * (tile + 1) / tiles;
  for (uint32_t i = 0; i < plan.jobs; i++) {
    const AttentionJob& job = jobs[i];
    // The first part that begins at or after a cost.
    auto first_from = [&](uint64_t cost) {
      if (cost <= job.cost_before) return 0u;
      const uint64_t part = (cost - job.cost_before + job.cost_of_part - 1) / job.cost_of_part;
      return static_cast<uint32_t>(std::min<uint64_t>(part, job.parts()));
    };
    for (uint32_t part = first_from(begin), last = first_from(end); part < last; part++) body(job, part);
  }
}

}  // namespace lowbit
