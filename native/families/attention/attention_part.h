// A part of a run's work, which one thread does: some of its tokens, KV heads and positions.
#pragma once

#include <utility>

#include "attention_plan.h"
#include "attention_softmax.h"

namespace lowbit {

// State of a query's online softmax: the largest score, and the total of exp(score - largest). Sums of weighted values
// are relative to the same largest score.
struct PartialResult {
  float largest, total;
};

// Results of single chunks for split-K: [token][chunk][head] of sums [head_dim], largest score and total.
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

  // The most chunks that the tokens of a split run see.
  static size_t chunks_most(const AttentionArgs& args) {
    const size_t all = chunk_index(std::max(1u, args.capacity) - 1) + 1;
    return args.window == 0 ? all : std::min<size_t>(all, (args.window + kFewRows) / kChunkSizes[0].size + 2);
  }
};

// Merges the next chunk's result into that of the chunks before it (online softmax).
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

// What a head's result starts with: nothing, or its attention sink, a score whose value is zero.
static inline PartialResult first_result(const AttentionArgs& args, uint32_t head) {
  return args.sinks ? PartialResult{args.sinks[head], 1} : PartialResult{kNoneYet, 0};
}

template <class Isa>
void divide_sums(float* sums, PartialResult result, uint32_t dim) {
  const auto inverse = Isa::set(1 / result.total);
  each_vector<Isa>(dim, [&](size_t d, auto vector) { vector.store(sums + d, vector.load(sums + d) * inverse); });
}

// Queries first .. last - 1 of a KV head.
struct QueryRange {
  uint32_t first, last;
};

// Tokens first_ .. last_ - 1 of a run, KV heads kv_first_ .. kv_last_ - 1, positions begin_ .. end_ - 1.
template <class Isa, class Element>
class AttentionPart {
 public:
  AttentionPart(const AttentionArgs& args, const AttentionJob& job, uint32_t part)
      : args_(args),
        job_(job),
        run_(job.run) {
    const uint32_t key_part = part % job.key_parts, row_part = part / job.key_parts % job.row_parts;
    const uint32_t head_part = part / job.key_parts / job.row_parts;
    kv_first_ = args.kv_heads * head_part / job.head_parts;
    kv_last_ = args.kv_heads * (head_part + 1) / job.head_parts;
    // Last tokens first: they see most keys.
    const uint32_t rows_before = job.row_parts - 1 - row_part;
    first_ = run_.rows * rows_before / job.row_parts;
    last_ = run_.rows * (rows_before + 1) / job.row_parts;
    begin_ = args.first_seen(run_.position + first_);
    end_ = run_.position + last_;
    first_chunk_ = chunk_index(begin_);
    if (job.key_parts > 1) split_keys(key_part);
  }

  // The number of KV heads, and of queries of each.
  uint32_t heads() const { return kv_last_ - kv_first_; }
  uint32_t queries() const { return (last_ - first_) * args_.group; }
  uint32_t head_dim() const { return args_.head_dim; }
  bool is_empty() const { return begin_ >= end_; }

 protected:
  // A query: a query head of a token of the run, and where it is in the vectors.
  struct Query {
    uint32_t vector, lane, row, head;
    float* y;
  };

  bool is_split() const { return job_.key_parts > 1; }

  // Fills the vectors of queries. The floats of vector i are at q + i * q_floats.
  void begin_vectors(QueryVector<Isa>* vectors, uint32_t lane_rows, float* q, size_t q_floats) {
    vectors_ = vectors;
    lane_rows_ = lane_rows;
    vectors_per_head_ = ceil_div(queries(), lane_rows);
    count_ = heads() * vectors_per_head_;
    for (uint32_t i = 0; i < count_; i++) {
      vectors[i].q = q + i * q_floats;
      begin_vector(vectors[i], i);
    }
  }

  template <class Body>
  void each_query(Body&& body) {
    for (uint32_t i = 0; i < count_; i++) {
      for (uint32_t lane = 0; lane < vectors_[i].rows; lane++) {
        const uint32_t query = i % vectors_per_head_ * lane_rows_ + lane;
        const uint32_t row = row_of(query), head = head_of(vectors_[i].kv, query);
        body(Query{i, lane, row, head, args_.y + place_of(row, head)});
      }
    }
  }

  // The token, and the query head, of query number `query` of a KV head.
  uint32_t row_of(uint32_t query) const { return first_ + query / args_.group; }
  uint32_t head_of(uint32_t kv, uint32_t query) const { return kv * args_.group + query % args_.group; }
  // How many queries of a KV head have tokens before a position.
  uint32_t queries_before(uint32_t position) const {
    const uint32_t first = run_.position + first_, last = run_.position + last_;
    return (std::min(std::max(position, first), last) - first) * args_.group;
  }
  // The queries that read the int4 page at `start` in f16, and those that read it in 4 bits. Queries are ordered by
  // token.
  std::pair<QueryRange, QueryRange> int4_ranges(uint32_t start) const {
    const uint32_t next = start + kBlockKeys, window = args_.window;
    const uint32_t own = queries_before(start), beyond = window > 0 ? queries_before(next + window - 1) : queries();
    const uint32_t later = start == 0 ? beyond : queries_before(next);
    return {{own, later}, {later, beyond}};
  }
  // Index of a query's row in q and y.
  size_t place_of(uint32_t row, uint32_t head) const {
    return (static_cast<size_t>(run_.row + row) * args_.heads + head) * args_.head_dim;
  }

  // Whether the query of a lane sees any key of a chunk.
  bool sees_chunk(const QueryVector<Isa>& v, uint32_t lane, uint32_t chunk) const {
    return chunk_index(v.first[lane]) <= chunk && chunk_index(v.last[lane] - 1) >= chunk;
  }

  // Calls body(block, chunk, ends) for the blocks in order, with each block's chunk and whether it is the chunk's last
  // block.
  template <class Body>
  void each_block(Body&& body) {
    CacheBlock<Element> blocks[2];
    CacheBlock<Element>*block = blocks, *next = blocks + 1;
    uint32_t start = begin_ / kBlockKeys * kBlockKeys;
    find_block(start, block);
    for (; start < end_; start += kBlockKeys, std::swap(block, next)) {
      const bool more = start + kBlockKeys < end_;
      if (more) find_block(start + kBlockKeys, next);
      block->next = more ? next : nullptr;
      body(*block, chunk_index(start), !more || is_chunk_begin(start + kBlockKeys));
    }
  }

  void find_block(uint32_t start, CacheBlock<Element>* block) {
    find_rows<Element>(args_, run_.slot, kv_first_, start, std::max(start, begin_), std::min(start + kBlockKeys, end_),
                       block);
  }

  const AttentionArgs& args_;
  const AttentionJob& job_;
  const Run& run_;
  uint32_t first_, last_, kv_first_, kv_last_, begin_, end_, first_chunk_;
  uint32_t lane_rows_, vectors_per_head_, count_;
  QueryVector<Isa>* vectors_;

 private:
  // Limits the part to its share of the keys: whole chunks, with about as many keys as the other parts have.
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

  // Fills a vector with its queries times the scale of scores.
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
};

}  // namespace lowbit
