// Attention of many queries of one KV head (prefill): each block of keys and values is copied once for all of them.
#pragma once

#include "attention_packed.h"
#include "attention_part.h"

namespace lowbit {

// Whether copying keys and values pays for `queries` queries of each of `heads` KV heads.
template <class Isa>
bool share_keys(uint32_t heads, uint32_t queries) {
  return heads == 1 && queries > Isa::kLanes;
}

// The result of a vector of queries over the chunks that have ended. QueryVector has that of the current chunk.
template <class Isa>
struct PackedResult {
  // Largest score, and total of exp(score - largest): equal in all lanes of a query.
  float largest[Isa::kLanes], totals[Isa::kLanes];
  // Merging a chunk: results = results * factor + sums * chunk_factor.
  float factor[Isa::kLanes], chunk_factor[Isa::kLanes];
  // Keys of the block that at least one query sees, and whether all queries see all of these.
  KeyRange keys;
  bool is_even;
  // Whether a chunk has begun that is not merged yet.
  bool is_open;
};

// Offsets in a thread's scratch, in floats.
template <class Isa>
struct ManyRowsScratch {
  size_t results, q, sums, result_sums, scores, block, floats;
  // Per vector: queries, sums and results have query_floats each, scores kScoreFloats.
  size_t query_floats;
  static constexpr size_t kScoreFloats = kBlockKeys * kPackedRows;

  ManyRowsScratch(uint32_t head_dim, uint32_t queries) {
    const size_t vectors = ceil_div(queries, kPackedRows);
    query_floats = kPackedRows * round_up(head_dim, Isa::kLanes);
    results = round_up(vectors * sizeof(QueryVector<Isa>), 64) / 4;
    q = results + round_up(vectors * sizeof(PackedResult<Isa>), 64) / 4;
    sums = q + vectors * query_floats;
    result_sums = sums + vectors * query_floats;
    scores = result_sums + vectors * query_floats;
    block = round_up(scores + vectors * kScoreFloats, 16);
    floats = round_up(block + PackedBlock<Isa, int8_t>::floats(head_dim), 16);
  }
};

template <class Isa, class Element>
class ManyRowsPart : AttentionPart<Isa, Element> {
  using Part = AttentionPart<Isa, Element>;
  using typename Part::Query;

 public:
  ManyRowsPart(const Part& part, float* scratch)
      : Part(part),
        at_(this->args_.head_dim, this->queries()),
        scratch_(scratch),
        block_(this->args_.head_dim, scratch + at_.block) {
    results_ = reinterpret_cast<PackedResult<Isa>*>(scratch + at_.results);
    this->begin_vectors(reinterpret_cast<QueryVector<Isa>*>(scratch), kPackedRows, scratch + at_.q, at_.query_floats);
  }

  void attend() {
    begin_results();
    this->each_block([&](const CacheBlock<Element>& block, uint32_t chunk, bool ends) {
      block_.pack(block);
      start_ = block.start;
      ends_ = ends && !this->is_split();
      score(block);
      weigh();
      add_values();
      if (ends) end_chunk(chunk);
    });
    if (!this->is_split()) end_results();
  }

 private:
  float* sums_of(uint32_t i) const { return scratch_ + at_.sums + i * at_.query_floats; }
  float* result_sums_of(uint32_t i) const { return scratch_ + at_.result_sums + i * at_.query_floats; }
  float* scores_of(uint32_t i) const { return scratch_ + at_.scores + i * at_.kScoreFloats; }
  // Floats from one query's sums to the next one's.
  size_t apart() const { return at_.query_floats / kPackedRows; }

  void begin_results() {
    for (uint32_t i = 0; i < this->count_; i++) results_[i].is_open = false;
    if (this->is_split()) return;
    memset(result_sums_of(0), 0, 4 * this->count_ * at_.query_floats);
    for (uint32_t i = 0; i < this->count_; i++) {
      const QueryVector<Isa>& v = this->vectors_[i];
      for (uint32_t lane = 0; lane < Isa::kLanes; lane++) {
        const uint32_t query = i * kPackedRows + std::min(lane % kPackedRows, v.rows - 1);
        const PartialResult first = first_result(this->args_, v.kv * this->args_.group + query % this->args_.group);
        results_[i].largest[lane] = first.largest;
        results_[i].totals[lane] = first.total;
      }
    }
  }

  void end_results() {
    this->each_query([&](const Query& query) {
      const float* sums = result_sums_of(query.vector) + query.lane * apart();
      const auto inverse = Isa::set(1 / results_[query.vector].totals[query.lane]);
      each_vector<Isa>(this->args_.head_dim,
                       [&](size_t d, auto vector) { vector.store(query.y + d, Isa::load(sums + d) * inverse); });
    });
  }

  // Scores of all queries with the block's keys, in groups of keys that stay in the first-level cache. The next block
  // is prefetched during the first group.
  void score(const CacheBlock<Element>& block) {
    constexpr uint32_t kBytes = 16384;
    const uint32_t key_bytes = 4 * Isa::kLanes * block_.key_vectors;
    const uint32_t at_once = std::max(kBlockKeys / 8, std::min(kBlockKeys, kBytes / key_bytes / 8 * 8));
    for (uint32_t from = block.first / 8 * 8, fetched = 0; from < block.last; from += at_once) {
      for (uint32_t i = 0; i < this->count_; i++) {
        for (; block.next && fetched < kBlockKeys * (i + 1) / this->count_; fetched++) {
          fetch_row(block.next->keys[fetched], block.dim);
          fetch_row(block.next->values[fetched], block.dim);
        }
        KeyRange& keys = results_[i].keys;
        if (from <= block.first) keys = seen_keys(this->vectors_[i], start_, {block.first, block.last});
        const KeyRange some = {std::max(from, keys.first), std::min(from + at_once, keys.last)};
        if (some.first < some.last) score_packed<Isa, Element>(this->vectors_[i], block_, some, scores_of(i));
      }
    }
  }

  void weigh() {
    for (uint32_t i = 0; i < this->count_; i++) {
      QueryVector<Isa>& v = this->vectors_[i];
      PackedResult<Isa>& result = results_[i];
      if (result.keys.first >= result.keys.last) continue;
      if (!result.is_open) {
        std::fill_n(v.largest, Isa::kLanes, kNoneYet);
        std::fill_n(v.totals, Isa::kLanes, 0.0f);
      }
      weigh_packed<Isa, Element>(v, block_, start_, result.keys, this->args_.rule.softcap, scores_of(i));
      result.is_even = true;
      for (uint32_t row = 0; row < kPackedRows; row++) {
        const KeyRange own = keys_of_query(v, row, start_, result.keys);
        result.is_even = result.is_even && own.first == result.keys.first && own.last == result.keys.last;
      }
      if (ends_ && result.is_even) merge_totals(i);
    }
  }

  // Merges a chunk's largest scores and totals into the results, and sets the factors that will merge its sums.
  void merge_totals(uint32_t i) {
    using V = typename Isa::V;
    const QueryVector<Isa>& v = this->vectors_[i];
    PackedResult<Isa>& result = results_[i];
    const V before = Isa::load(result.largest), chunk = Isa::load(v.largest), largest = Isa::max(chunk, before);
    const V factor = exp_of_negative<Isa>(before - largest), chunk_factor = exp_of_negative<Isa>(chunk - largest);
    Isa::store(result.factor, factor);
    Isa::store(result.chunk_factor, chunk_factor);
    Isa::store(result.largest, largest);
    Isa::store(result.totals, Isa::multiply_add(Isa::load(result.totals), factor, Isa::load(v.totals) * chunk_factor));
  }

  PackedSums sums_to(uint32_t i) const {
    const PackedResult<Isa>& result = results_[i];
    const float* shrink = result.is_open ? this->vectors_[i].shrink : nullptr;
    const bool merges = ends_ && result.is_even;
    return {result.keys,
            scores_of(i),
            sums_of(i),
            result_sums_of(i),
            apart(),
            shrink,
            merges ? result.factor : nullptr,
            merges ? result.chunk_factor : nullptr};
  }

  void add_values() {
    for (uint32_t vector = 0, added = 0; vector < block_.value_vectors; vector += added)
      for (uint32_t i = 0; i < this->count_; i++) {
        const PackedResult<Isa>& result = results_[i];
        if (result.keys.first < result.keys.last && result.is_even)
          added = add_vectors<Isa, kPackedRows>(block_, vector, sums_to(i));
        else added = vector < block_.grouped ? Isa::kColumns : 1;
      }
    for (uint32_t i = 0; i < this->count_; i++) {
      PackedResult<Isa>& result = results_[i];
      if (result.keys.first >= result.keys.last) continue;
      if (!result.is_even) add_uneven(i);
      result.is_open = !(ends_ && result.is_even);
    }
  }

  // Adds values where queries see different keys, as WeighedValues::add does: keys that all see in one pass, between
  // those that only some see.
  void add_uneven(uint32_t i) {
    static const float kOnes[kPackedRows] = {1, 1, 1, 1};
    const PackedSums to = sums_to(i);
    KeyRange own[kPackedRows], all = to.keys;
    for (uint32_t row = 0; row < kPackedRows; row++) {
      own[row] = keys_of_query(this->vectors_[i], row, start_, to.keys);
      all = {std::max(all.first, own[row].first), std::min(all.last, own[row].last)};
    }
    all.last = std::max(all.first, all.last);
    for (uint32_t vector = 0, added = 0; vector < block_.value_vectors; vector += added) {
      auto add_single = [&](uint32_t row, KeyRange keys, const float* shrink) {
        PackedSums single = to;
        single.keys = keys;
        single.weights += row;
        single.sums += row * to.apart;
        single.shrink = shrink;
        added = add_vectors<Isa, 1>(block_, vector, single);
      };
      for (uint32_t row = 0; row < kPackedRows; row++)
        add_single(row, {own[row].first, std::min(all.first, own[row].last)}, to.shrink ? to.shrink + row : nullptr);
      PackedSums shared = to;
      shared.keys = all;
      shared.shrink = kOnes;
      add_vectors<Isa, kPackedRows>(block_, vector, shared);
      for (uint32_t row = 0; row < kPackedRows; row++)
        if (all.last < own[row].last) add_single(row, {all.last, own[row].last}, kOnes);
    }
  }

  // Ends a chunk: merges it for the vectors whose queries see different keys of its last block.
  void end_chunk(uint32_t chunk) {
    for (uint32_t i = 0; i < this->count_; i++) {
      if (!results_[i].is_open) continue;
      results_[i].is_open = false;
      if (this->is_split()) continue;
      const PackedResult<Isa> before = results_[i];
      merge_totals(i);
      for (uint32_t lane = 0; lane < Isa::kLanes; lane++)
        if (!this->sees_chunk(this->vectors_[i], lane, chunk)) {
          results_[i].largest[lane] = before.largest[lane];
          results_[i].totals[lane] = before.totals[lane];
        }
      for (uint32_t row = 0; row < this->vectors_[i].rows; row++)
        if (this->sees_chunk(this->vectors_[i], row, chunk)) merge_sums(i, row);
    }
    if (this->is_split()) keep_chunk(chunk);
  }

  void merge_sums(uint32_t i, uint32_t row) {
    const auto factor = Isa::set(results_[i].factor[row]), chunk_factor = Isa::set(results_[i].chunk_factor[row]);
    const float* sums = sums_of(i) + row * apart();
    float* to = result_sums_of(i) + row * apart();
    for (size_t d = 0; d < apart(); d += Isa::kLanes)
      Isa::store(to + d, Isa::multiply_add(Isa::load(to + d), factor, Isa::load(sums + d) * chunk_factor));
  }

  // Stores a chunk's sums for merge_chunks (split-K).
  void keep_chunk(uint32_t chunk) {
    const ChunkResults results(this->args_);
    const uint32_t dim = this->args_.head_dim;
    this->each_query([&](const Query& query) {
      const QueryVector<Isa>& v = this->vectors_[query.vector];
      if (!this->sees_chunk(v, query.lane, chunk)) return;
      float* to = results.of(this->job_.split_row + query.row, chunk - this->first_chunk_, query.head);
      const PartialResult part = {v.largest[query.lane], v.totals[query.lane]};
      memcpy(to, sums_of(query.vector) + query.lane * apart(), 4 * static_cast<size_t>(dim));
      memcpy(to + dim, &part, sizeof part);
    });
  }

  const ManyRowsScratch<Isa> at_;
  float* scratch_;
  PackedBlock<Isa, Element> block_;
  PackedResult<Isa>* results_;
  // Start of the block.
  uint32_t start_;
  // Whether the block ends a chunk, which is then merged.
  bool ends_;
};

}  // namespace lowbit
