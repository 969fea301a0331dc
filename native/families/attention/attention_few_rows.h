// Attention of few tokens (decode) over all KV heads of a part. Keys and values are read where they lie in the cache.
#pragma once

#include "attention_block.h"
#include "attention_part.h"

namespace lowbit {

// How many queries of a KV head a vector has: lanes that these leave take further keys.
template <class Isa>
struct LaneShape {
  uint32_t lane_rows, vectors;

  explicit LaneShape(uint32_t queries) : lane_rows(1) {
    while (lane_rows < queries && lane_rows < Isa::kLanes) lane_rows *= 2;
    vectors = ceil_div(queries, lane_rows);
  }
  LaneShape(uint32_t lane_rows, uint32_t vectors) : lane_rows(lane_rows), vectors(vectors) {}
};

// Offsets in a thread's scratch, in floats, for `heads` KV heads with `queries` queries each.
template <class Isa>
struct FewRowsScratch {
  LaneShape<Isa> shape;
  size_t q, results, sums, scores, floats;
  // Per vector.
  size_t q_floats, score_floats;

  FewRowsScratch(uint32_t head_dim, uint32_t heads, LaneShape<Isa> shape) : shape(shape) {
    const size_t vectors = static_cast<size_t>(heads) * shape.vectors, rows = vectors * shape.lane_rows;
    q_floats = shape.lane_rows * round_up(head_dim, Isa::kLanes);
    score_floats = kBlockKeys * shape.lane_rows;
    q = round_up(vectors * sizeof(QueryVector<Isa>), 64) / 4;
    results = q + vectors * q_floats;
    sums = results + rows * sizeof(PartialResult) / 4;
    scores = sums + rows * head_dim;
    floats = round_up(scores + vectors * score_floats, 16);
  }
};

template <class Isa, class Element>
class FewRowsPart : protected AttentionPart<Isa, Element> {
  using Part = AttentionPart<Isa, Element>;
  using typename Part::Query;

 public:
  FewRowsPart(const Part& part, float* scratch)
      : FewRowsPart(part, scratch, {part.head_dim(), part.heads(), LaneShape<Isa>(part.queries())}) {}

  void attend() {
    attend_chunks([this](const CacheBlock<Element>& block, bool, bool) {
      attend_block<Isa>(this->vectors_, this->count_, block, {block.first, block.last}, this->args_.rule.softcap,
                        scores_, score_floats_, this->heads() * this->args_.head_dim);
    });
  }

 protected:
  FewRowsPart(const Part& part, float* scratch, const FewRowsScratch<Isa>& at) : Part(part) {
    results_ = reinterpret_cast<PartialResult*>(scratch + at.results);
    sums_ = scratch + at.sums;
    scores_ = scratch + at.scores;
    score_floats_ = at.score_floats;
    this->begin_vectors(reinterpret_cast<QueryVector<Isa>*>(scratch), at.shape.lane_rows, scratch + at.q, at.q_floats);
  }

  // Calls body(block, begins, ends) for each block: whether it is the first, and the last, block of its chunk.
  template <class Body>
  void attend_chunks(Body&& body) {
    begin_results();
    bool begins = true;
    this->each_block([&](const CacheBlock<Element>& block, uint32_t chunk, bool ends) {
      if (begins) begin_chunk(chunk);
      body(block, begins, ends);
      if (ends) end_chunk(chunk);
      begins = ends;
    });
    end_results();
  }

  void begin_results() {
    if (this->is_split()) return;
    this->each_query([&](const Query& query) {
      result_of(query) = first_result(this->args_, query.head);
      memset(query.y, 0, 4 * static_cast<size_t>(this->args_.head_dim));
    });
  }

  void end_results() {
    if (this->is_split()) return;
    this->each_query([&](const Query& query) { divide_sums<Isa>(query.y, result_of(query), this->args_.head_dim); });
  }

  void begin_chunk(uint32_t chunk) {
    const size_t dim = this->args_.head_dim;
    for (uint32_t i = 0; i < this->count_; i++) {
      QueryVector<Isa>& v = this->vectors_[i];
      std::fill_n(v.largest, Isa::kLanes, kNoneYet);
      std::fill_n(v.totals, Isa::kLanes, 0.0f);
      for (uint32_t lane = 0; lane < this->lane_rows_; lane++)
        v.sums[lane] = sums_ + (i * this->lane_rows_ + lane) * dim;
    }
    const ChunkResults results(this->args_);
    this->each_query([&](const Query& query) {
      float*& sums = this->vectors_[query.vector].sums[query.lane];
      if (this->is_split()) sums = results.of(this->job_.split_row + query.row, chunk - this->first_chunk_, query.head);
      memset(sums, 0, 4 * dim);
    });
  }

  void end_chunk(uint32_t index) {
    const uint32_t dim = this->args_.head_dim;
    this->each_query([&](const Query& query) {
      const QueryVector<Isa>& v = this->vectors_[query.vector];
      float* sums = v.sums[query.lane];
      const PartialResult chunk = {v.largest[query.lane], v.totals[query.lane]};
      if (this->is_split()) memcpy(sums + dim, &chunk, sizeof chunk);
      else if (this->sees_chunk(v, query.lane, index)) merge_chunk<Isa>(result_of(query), query.y, chunk, sums, dim);
    });
  }

  float* scores_;
  // Per vector.
  size_t score_floats_;

 private:
  PartialResult& result_of(const Query& query) { return results_[query.vector * this->lane_rows_ + query.lane]; }

  PartialResult* results_;
  float* sums_;
};

}  // namespace lowbit
