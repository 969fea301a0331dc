// Causal grouped-query attention of the rows of a step, each over the keys and values of its own sequence, in a cache
// or in pages. Rows that have no position there give NaN, and nothing is written for them: a kernel cannot raise
// errors; operators check. A row's result is bit for bit the same whichever rows are beside it, and for any number of
// threads.
#pragma once

#include "attention_block.h"
#include "attention_plan.h"

namespace lowbit {

// How the queries of a head of keys and values fill vectors: lanes that they leave are for more keys.
template <class Isa>
struct LaneShape {
  uint32_t lane_rows, vectors;

  explicit LaneShape(uint32_t queries) : lane_rows(1) {
    while (lane_rows < queries && lane_rows < Isa::kLanes) lane_rows *= 2;
    vectors = ceil_div(queries, lane_rows);
  }
};

// A query's result so far, or of one chunk: `sums` are weighted values, and their weights those of `largest`.
struct PartialResult {
  float largest, total;
};

// What of keys and values is copied: floats, for integers without their scales. Words are multiplied as integers.
template <class Isa, class Element>
using CopiedBlock =
    KeyBlock<std::conditional_t<kScoresWords<Isa, Element>, int8_t, float>, float, std::is_same_v<Element, int8_t>>;

// Where the parts of one thread's scratch begin, in floats.
template <class Isa>
struct ThreadScratch {
  size_t q, results, sums, scores, copy, floats;
  // Of one vector.
  size_t q_floats, score_floats;

  // `heads` of keys and values with `queries` each; scores of all their vectors where there are several heads.
  ThreadScratch(uint32_t head_dim, uint32_t heads, uint32_t queries) {
    const LaneShape<Isa> shape(queries);
    const size_t vectors = static_cast<size_t>(heads) * shape.vectors, rows = vectors * shape.lane_rows;
    q_floats = shape.lane_rows * round_up(head_dim, Isa::kLanes);
    score_floats = kBlockKeys * shape.lane_rows;
    q = round_up(vectors * sizeof(QueryVector<Isa>), 64) / 4;
    results = q + vectors * q_floats;
    sums = results + rows * sizeof(PartialResult) / 4;
    scores = sums + rows * head_dim;
    copy = round_up(scores + (heads > 1 ? vectors : 1) * score_floats, 16);
    floats =
        round_up(copy + (shape.vectors > 1 && heads == 1 ? 2 * kBlockKeys * static_cast<size_t>(head_dim) : 0), 16);
  }
};

// Results of chunks of rows that several parts work on: [row][chunk][head] of sums, the largest score and the total.
struct ChunkResults {
  float* at;
  size_t chunks, heads, floats;

  explicit ChunkResults(const AttentionArgs& args)
      : at(thread_scratch(args, args.threads)),
        chunks(chunks_most(args)),
        heads(args.heads),
        floats(round_up(args.head_dim + 2, 4)) {}

  float* of(size_t row, size_t chunk, size_t head) const {
    return at + ((row * chunks + chunk) * heads + head) * floats;
  }

  // Chunks that the rows of a split run see at most.
  static size_t chunks_most(const AttentionArgs& args) {
    const size_t all = chunk_index(std::max(1u, args.capacity) - 1) + 1;
    return args.window == 0 ? all : std::min<size_t>(all, (args.window + kFewRows) / kChunkSizes[0].size + 2);
  }
};

// Adds the result of the next chunk to that of those before.
template <class Isa>
void merge_chunk(PartialResult& result, float* sums, PartialResult chunk, const float* chunk_sums, uint32_t dim) {
  const float largest = std::max(result.largest, chunk.largest);
  const auto factor = exp_of_negative<Isa>(Isa::set(result.largest) - Isa::set(largest));
  const auto chunk_factor = exp_of_negative<Isa>(Isa::set(chunk.largest) - Isa::set(largest));
  const auto total = Isa::multiply_add(Isa::set(result.total), factor, Isa::set(chunk.total) * chunk_factor);
  result = {largest, Isa::first_lane(total)};
  each_vector<Isa>(dim, [&](size_t d, auto vector) {
    vector.store(sums + d,
                 Isa::multiply_add(vector.load(sums + d), factor, vector.load(chunk_sums + d) * chunk_factor));
  });
}

// What the results of a head's chunks are added to: nothing, or its sink, whose value is zero.
static inline PartialResult first_result(const AttentionArgs& args, uint32_t head) {
  return args.sinks ? PartialResult{args.sinks[head], 1} : PartialResult{kNoneYet, 0};
}

template <class Isa>
void divide_sums(float* sums, PartialResult result, uint32_t dim) {
  const auto inverse = Isa::set(1 / result.total);
  each_vector<Isa>(dim, [&](size_t d, auto vector) { vector.store(sums + d, vector.load(sums + d) * inverse); });
}

// One part of a run's work: its rows first .. last, heads of keys and values kv_first .. kv_last and positions.
template <class Isa, class Element>
class AttentionPart {
 public:
  AttentionPart(const AttentionArgs& args, const AttentionJob& job, uint32_t part, float* scratch)
      : args_(args),
        job_(job),
        run_(job.run) {
    const uint32_t key_part = part % job.key_parts, row_part = part / job.key_parts % job.row_parts;
    const uint32_t head_part = part / job.key_parts / job.row_parts;
    kv_first_ = args.kv_heads * head_part / job.head_parts;
    kv_last_ = args.kv_heads * (head_part + 1) / job.head_parts;
    // Last rows first, as they see most keys.
    const uint32_t rows_before = job.row_parts - 1 - row_part;
    first_ = run_.rows * rows_before / job.row_parts;
    last_ = run_.rows * (rows_before + 1) / job.row_parts;
    begin_ = args.first_seen(run_.position + first_);
    end_ = run_.position + last_;
    first_chunk_ = chunk_index(begin_);
    if (job.key_parts > 1) split_keys(key_part);
    const LaneShape<Isa> shape((last_ - first_) * args.group);
    lane_rows_ = shape.lane_rows;
    vectors_per_head_ = shape.vectors;
    count_ = (kv_last_ - kv_first_) * vectors_per_head_;
    const ThreadScratch<Isa> parts(args.head_dim, kv_last_ - kv_first_, (last_ - first_) * args.group);
    vectors_ = reinterpret_cast<QueryVector<Isa>*>(scratch);
    results_ = reinterpret_cast<PartialResult*>(scratch + parts.results);
    sums_ = scratch + parts.sums;
    scores_ = scratch + parts.scores;
    score_floats_ = parts.score_floats;
    copy_ = scratch + parts.copy;
    for (uint32_t i = 0; i < count_; i++) vectors_[i].q = scratch + parts.q + i * parts.q_floats;
  }

  void attend() {
    if (begin_ >= end_) return;
    for (uint32_t i = 0; i < count_; i++) begin_vector(vectors_[i], i);
    const uint32_t dim = args_.head_dim;
    if (!is_split())
      each_query([&](const Query& query) {
        query.result = first_result(args_, query.head);
        memset(query.y, 0, 4 * static_cast<size_t>(dim));
      });
    attend_blocks();
    if (!is_split()) each_query([&](const Query& query) { divide_sums<Isa>(query.y, query.result, dim); });
  }

 private:
  // A lane of a vector, which is a head of a row of the run.
  struct Query {
    QueryVector<Isa>& vector;
    uint32_t lane, row, head;
    PartialResult& result;
    float* y;
  };

  bool is_split() const { return job_.key_parts > 1; }

  // Chunks of about equally many keys.
  void split_keys(uint32_t part) {
    const uint32_t begin = begin_, keys = end_ - begin;
    auto edge = [&](uint32_t part) {
      if (part == 0) return begin;
      if (part == job_.key_parts) return begin + keys;
      const uint32_t at = begin + static_cast<uint32_t>(static_cast<uint64_t>(keys) * part / job_.key_parts);
      const uint32_t before = chunk_begin(chunk_index(at)), after = chunk_begin(chunk_index(at) + 1);
      return std::min(begin + keys, std::max(begin, at - before < after - at ? before : after));
    };
    begin_ = edge(part);
    end_ = edge(part + 1);
  }

  // Fills one vector with its queries, scaled.
  void begin_vector(QueryVector<Isa>& v, uint32_t index) {
    const uint32_t queries = (last_ - first_) * args_.group, query = index % vectors_per_head_ * lane_rows_;
    v.kv = kv_first_ + index / vectors_per_head_;
    v.lane_rows = lane_rows_;
    v.rows = std::min(queries - query, lane_rows_);
    const auto scale = Isa::set(args_.rule.scale);
    for (uint32_t lane = 0; lane < Isa::kLanes; lane++) {
      const uint32_t own = query + std::min(lane % lane_rows_, v.rows - 1);
      const uint32_t row = row_of(own), position = run_.position + row;
      v.first[lane] = args_.first_seen(position);
      v.last[lane] = position + 1;
      if (lane >= lane_rows_) continue;
      const float* q = args_.q + place_of(row, head_of(v.kv, own));
      each_vector<Isa>(args_.head_dim, [&](size_t d, auto vector) {
        Isa::store(v.q + d * lane_rows_ + lane * Isa::kLanes, vector.load(q + d) * scale);
      });
    }
    v.earliest = v.first[0];
    v.latest = v.last[lane_rows_ - 1];
    if constexpr (kScoresWords<Isa, Element>) words_of_query<Isa>(v, args_.head_dim);
  }

  // Row and head of one of the queries of a head of keys and values.
  uint32_t row_of(uint32_t query) const { return first_ + query / args_.group; }
  uint32_t head_of(uint32_t kv, uint32_t query) const { return kv * args_.group + query % args_.group; }
  // Of q and y.
  size_t place_of(uint32_t row, uint32_t head) const {
    return (static_cast<size_t>(run_.row + row) * args_.heads + head) * args_.head_dim;
  }

  template <class Body>
  void each_query(Body&& body) {
    for (uint32_t i = 0; i < count_; i++) {
      QueryVector<Isa>& vector = vectors_[i];
      for (uint32_t lane = 0; lane < vector.rows; lane++) {
        const uint32_t query = i % vectors_per_head_ * lane_rows_ + lane;
        const uint32_t row = row_of(query), head = head_of(vector.kv, query);
        body(Query{vector, lane, row, head, results_[i * lane_rows_ + lane], args_.y + place_of(row, head)});
      }
    }
  }

  void attend_blocks() {
    CacheBlock<Element> blocks[2];
    CacheBlock<Element>*block = blocks, *next = blocks + 1;
    uint32_t start = begin_ / kBlockKeys * kBlockKeys;
    find_block(start, block);
    for (bool begins = true; start < end_; start += kBlockKeys) {
      if (begins) begin_chunk(start);
      const bool more = start + kBlockKeys < end_;
      if (more) find_block(start + kBlockKeys, next);
      block->next = more ? next : nullptr;
      if (vectors_per_head_ > 1 && kv_last_ - kv_first_ == 1) attend_copy(*block, more ? next : nullptr);
      else attend_cache(*block);
      std::swap(block, next);
      begins = is_chunk_begin(start + kBlockKeys);
      if (begins || !more) end_chunk(start);
    }
  }

  void find_block(uint32_t start, CacheBlock<Element>* block) {
    find_rows<Element>(args_, run_.slot, kv_first_, start, std::max(start, begin_), std::min(start + kBlockKeys, end_),
                       block);
  }

  void attend_cache(const CacheBlock<Element>& block) {
    attend_block<Isa>(vectors_, count_, block, {block.first, block.last}, args_.rule.softcap, scores_, score_floats_);
  }

  // Keys and values of one head as contiguous rows: strided ones would share few sets of the first cache.
  void attend_copy(const CacheBlock<Element>& block, const CacheBlock<Element>* next) {
    using Copy = CopiedBlock<Isa, Element>;
    using Key = typename Copy::KeyType;
    Copy copy;
    const uint32_t dim = args_.head_dim;
    copy.start = block.start;
    copy.first = block.first;
    copy.last = block.last;
    copy.dim = dim;
    copy.kv = block.kv;
    copy.is_strided = false;
    copy.next = nullptr;
    float* values = copy_ + kBlockKeys * dim;
    for (uint32_t key = block.first; key < block.last; key++) {
      if (next) {
        fetch_row(next->keys[key], dim);
        fetch_row(next->values[key], dim);
      }
      Key* copied = reinterpret_cast<Key*>(copy_) + key * dim;
      if constexpr (std::is_same_v<Key, int8_t>) {
        memcpy(copied, block.keys[key], dim);
      } else {
        each_vector<Isa>(dim,
                         [&](size_t d, auto vector) { vector.store(copied + d, vector.load(block.keys[key] + d)); });
      }
      each_vector<Isa>(dim, [&](size_t d, auto vector) {
        vector.store(values + key * dim + d, vector.load(block.values[key] + d));
      });
      copy.keys[key] = copied;
      copy.values[key] = values + key * dim;
      if constexpr (Copy::kIsScaled) {
        copy.key_scales[key] = block.key_scales[key];
        copy.value_scales[key] = block.value_scales[key];
      }
    }
    copy.repeat_ends();
    for (uint32_t i = 0; i < count_; i++) {
      const KeyRange keys = seen_keys(vectors_[i], copy);
      if (keys.first < keys.last)
        attend_block<Isa>(vectors_ + i, 1, copy, keys, args_.rule.softcap, scores_, score_floats_);
    }
  }

  void begin_chunk(uint32_t start) {
    const uint32_t chunk = chunk_index(start) - first_chunk_;
    for (uint32_t i = 0; i < count_; i++) {
      QueryVector<Isa>& v = vectors_[i];
      std::fill_n(v.largest, Isa::kLanes, kNoneYet);
      std::fill_n(v.totals, Isa::kLanes, 0.0f);
      for (uint32_t lane = 0; lane < lane_rows_; lane++)
        v.sums[lane] = sums_ + (static_cast<size_t>(i) * lane_rows_ + lane) * args_.head_dim;
    }
    if (is_split()) {
      const ChunkResults results(args_);
      each_query([&](const Query& query) {
        query.vector.sums[query.lane] = results.of(job_.split_row + query.row, chunk, query.head);
      });
    }
    for (uint32_t i = 0; i < count_; i++)
      for (uint32_t lane = 0; lane < vectors_[i].rows; lane++)
        memset(vectors_[i].sums[lane], 0, 4 * static_cast<size_t>(args_.head_dim));
  }

  // Ends the chunk whose last block began at `start`.
  void end_chunk(uint32_t start) {
    const uint32_t dim = args_.head_dim, index = chunk_index(start);
    each_query([&](const Query& query) {
      const QueryVector<Isa>& v = query.vector;
      float* sums = v.sums[query.lane];
      const PartialResult chunk = {v.largest[query.lane], v.totals[query.lane]};
      if (is_split()) memcpy(sums + dim, &chunk, sizeof chunk);
      else if (chunk_index(v.first[query.lane]) <= index && chunk_index(v.last[query.lane] - 1) >= index)
        merge_chunk<Isa>(query.result, query.y, chunk, sums, dim);
    });
  }

  const AttentionArgs& args_;
  const AttentionJob& job_;
  const Run& run_;
  uint32_t first_, last_, kv_first_, kv_last_, begin_, end_, first_chunk_;
  uint32_t lane_rows_, vectors_per_head_, count_;
  QueryVector<Isa>* vectors_;
  PartialResult* results_;
  float *sums_, *scores_, *copy_;
  size_t score_floats_;
};

// y of a query of a run in parts of keys.
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

// A share of the queries whose keys were in parts.
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

// Phases: plan and store, attend, merge.
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
      AttentionPart<Isa, Element>(args, job, part, scratch).attend();
    });
  } else {
    merge_tile<Isa>(args, tile, step.tiles[2]);
  }
}

}  // namespace lowbit
