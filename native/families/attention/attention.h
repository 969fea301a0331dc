// Causal grouped-query attention of a step's tokens, each over the KV cache of its own sequence, contiguous or in
// pages: y [heads, head_dim] = sum over keys: softmax(rule(q . key)) * value, with q of a query head and keys of its KV
// head. rule(s) = scale * s, or softcap * tanh(scale * s / softcap).
//
// A token without a position in the cache gets NaN and stores nothing: a kernel cannot raise errors, operators do. A
// token's result has the same bits whichever tokens are beside it, and for any number of threads.
#pragma once

#include "attention_few_rows.h"
#include "attention_many_rows.h"

namespace lowbit {

template <class Isa, class Element>
void attend_part(const AttentionPart<Isa, Element>& part, float* scratch) {
  if (part.is_empty()) return;
  if (share_keys<Isa>(part.heads(), part.queries())) ManyRowsPart<Isa, Element>(part, scratch).attend();
  else FewRowsPart<Isa, Element>(part, scratch).attend();
}

// Merges the results of a query's chunks into y (split-K).
template <class Isa>
void merge_chunks(const AttentionArgs& args, const AttentionJob& job, uint32_t row, uint32_t head) {
  const ChunkResults results(args);
  const uint32_t position = job.run.position + row, dim = args.head_dim;
  const uint32_t base = chunk_index(args.first_seen(job.run.position));
  float* y = args.y + (static_cast<size_t>(job.run.row + row) * args.heads + head) * dim;
  memset(y, 0, 4 * static_cast<size_t>(dim));
  PartialResult result = first_result(args, head);
  for (uint32_t chunk = chunk_index(args.first_seen(position)); chunk <= chunk_index(position); chunk++) {
    const float* sums = results.of(job.split_row + row, chunk - base, head);
    PartialResult part;
    memcpy(&part, sums + dim, sizeof part);
    merge_chunk<Isa>(result, y, part, sums, dim);
  }
  divide_sums<Isa>(y, result, dim);
}

// Merges the chunks of a tile's share of all split-K queries.
template <class Isa>
void merge_tile(const AttentionArgs& args, uint32_t tile, uint32_t tiles) {
  const AttentionPlan& plan = plan_of(args);
  const size_t queries = static_cast<size_t>(plan.split_rows) * args.heads;
  const size_t begin = queries * tile / tiles, end = queries * (tile + 1) / tiles;
  for (uint32_t i = 0; i < plan.jobs; i++) {
    const AttentionJob& job = jobs_of(args)[i];
    if (job.key_parts == 1) continue;
    const size_t first = static_cast<size_t>(job.split_row) * args.heads, count = job.run.rows * args.heads;
    for (size_t query = std::max(begin, first); query < std::min(end, first + count); query++) {
      const uint32_t own = static_cast<uint32_t>(query - first);
      merge_chunks<Isa>(args, job, own / args.heads, own % args.heads);
    }
  }
}

// Phase 0 plans the work and stores keys and values, phase 1 attends, phase 2 merges chunks.
template <class Isa, class Element>
void attention_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread) {
  const AttentionArgs& args = step.as<AttentionArgs>();
  if (phase == 0) {
    if (tile == 0) plan_attention(args);
    const uint32_t first = tile * args.stored_per_tile;
    store_tile<Isa, Element>(args, first, std::min(args.rows, first + args.stored_per_tile));
  } else if (phase == 1) {
    float* scratch = thread_scratch(args, thread);
    each_part(args, tile, step.tiles[1], [&](const AttentionJob& job, uint32_t part) {
      attend_part<Isa>(AttentionPart<Isa, Element>(args, job, part), scratch);
    });
  } else {
    merge_tile<Isa>(args, tile, step.tiles[2]);
  }
}

}  // namespace lowbit
