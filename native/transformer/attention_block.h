// Attention of a vector of queries over one block of keys: scores, online softmax, weighted sum of values (Milakov &
// Gimelshein 2018; Dao et al. 2022). Each lane is a query, so that softmax needs no sums across lanes; lanes that share
// keys and values share what is loaded of them.
#pragma once

#include <cmath>

#include "vectors.h"

// Loops that are to have all registers for themselves.
#define LOWBIT_APART __attribute__((noinline))

namespace lowbit {

constexpr uint32_t kBlockKeys = 64;
// Largest score before any was seen: finite, so that differences are.
constexpr float kNoneYet = -1e30f;

struct ScoreRule {
  float scale, softcap;
};

// Keys and values `start` .. `start + count` from one head on: rows `stride` elements apart, heads of `dim` columns one
// after the other. Element is float, or uint16_t for halves.
template <class Element>
struct KeyBlock {
  const Element* keys;
  const Element* values;
  size_t stride;
  uint32_t dim, start, count;
  // Elements from a row to the one that is fetched meanwhile; 0 for none.
  size_t ahead;
};

// Queries in lanes: `heads` heads of keys and values times `rows` queries of each; head p has lanes p * lane_rows on.
// Other lanes repeat queries, and their results are not used.
template <class Isa>
struct QueryVector {
  static constexpr uint32_t kLanes = Isa::kLanes;
  // [columns / lanes][lane][lanes]: scaled, with zeros after the last column.
  float* q;
  float* sums[kLanes];
  // Keys that each sees, from `first` to before `last`; as floats to be compared in vectors.
  float first[kLanes], last[kLanes];
  float largest[kLanes], totals[kLanes];
  uint32_t kv, heads, rows, lane_rows;
  // Keys that any sees.
  uint32_t earliest, latest;
};

// Fetches row `row` of a later block, for `heads` heads.
template <class Element>
inline __attribute__((always_inline)) void prefetch_row(const KeyBlock<Element>& block, size_t row, uint32_t heads) {
  if (block.ahead == 0) return;
  const size_t start = row * block.stride + block.ahead;
  for (uint32_t d = 0; d < heads * block.dim; d += 64 / sizeof(Element)) {
    __builtin_prefetch(block.keys + start + d, 0, 2);
    __builtin_prefetch(block.values + start + d, 0, 2);
  }
}

// scores[key - first][lane] for keys first .. last of the block. Rows is lane_rows.
template <class Isa, class Element, int Rows>
LOWBIT_APART void score_keys(const QueryVector<Isa>& queries, const KeyBlock<Element>& block, uint32_t first,
                             uint32_t last, float* scores) {
  using V = typename Isa::V;
  constexpr uint32_t kLanes = Isa::kLanes;
  constexpr int kHeads = kLanes / Rows;
  for (uint32_t key = first; key < last; key++, scores += kLanes) {
    prefetch_row(block, key, queries.heads);
    V sums[kLanes];
    for (uint32_t i = 0; i < kLanes; i++) sums[i] = Isa::set(0);
    each_index<kHeads>([&](auto index) {
      constexpr uint32_t p = index;
      const uint32_t head = p < queries.heads ? p : queries.heads - 1;
      const Element* row = block.keys + key * block.stride + head * block.dim;
      const float* q = queries.q + p * Rows * kLanes;
      each_vector<Isa>(block.dim, [&](size_t d, auto vector) {
        const V k = vector.load(row + d);
        for (int r = 0; r < Rows; r++)
          sums[p * Rows + r] = Isa::multiply_add(Isa::load(q + (d + r) * kLanes), k, sums[p * Rows + r]);
      });
    });
    Isa::store(scores, Isa::sums(sums));
  }
}

// Caps scores and hides keys that a query does not see; `key` is the index of the first.
template <class Isa>
LOWBIT_APART void rule_scores(const QueryVector<Isa>& queries, float softcap, uint32_t key, uint32_t count,
                              float* scores) {
  const auto first = Isa::load(queries.first), last = Isa::load(queries.last);
  const auto none = Isa::set(-INFINITY), cap = Isa::set(softcap);
  for (uint32_t i = 0; i < count; i++, scores += Isa::kLanes) {
    auto score = Isa::load(scores);
    if (softcap > 0) score = cap * tanh_of<Isa>(score / cap);
    const auto index = Isa::set(static_cast<float>(key + i));
    score = Isa::choose_less(index, first, none, score);
    Isa::store(scores, Isa::choose_less(index, last, score, none));
  }
}

// Scores to weights exp(score - largest), in place. `shrink` gets the factors by which earlier sums shrink.
template <class Isa>
LOWBIT_APART void softmax_block(QueryVector<Isa>& queries, uint32_t count, float* scores, float* shrink) {
  using V = typename Isa::V;
  constexpr uint32_t kLanes = Isa::kLanes, kChains = 4;
  const V before = Isa::load(queries.largest);
  V chains[kChains] = {before, before, before, before};
  uint32_t i = 0;
  for (; i + kChains <= count; i += kChains)
    for (uint32_t c = 0; c < kChains; c++) chains[c] = Isa::max(Isa::load(scores + (i + c) * kLanes), chains[c]);
  for (; i < count; i++) chains[0] = Isa::max(Isa::load(scores + i * kLanes), chains[0]);
  const V largest = Isa::max(Isa::max(chains[0], chains[1]), Isa::max(chains[2], chains[3]));
  V total = Isa::set(0);
  for (i = 0; i < count; i++) {
    const V weight = exp_of<Isa>(Isa::load(scores + i * kLanes) - largest);
    Isa::store(scores + i * kLanes, weight);
    total = total + weight;
  }
  const V factor = exp_of<Isa>(before - largest);
  Isa::store(shrink, factor);
  Isa::store(queries.largest, largest);
  Isa::store(queries.totals, Isa::multiply_add(Isa::load(queries.totals), factor, total));
}

// Rows of weights [key][lanes] times values of one head: from lane `lane`, for `count` keys from `values`.
template <class Element>
struct WeightedValues {
  const Element* values;
  size_t stride;
  uint32_t count;
  float* const* sums;
  const float* weights;
  const float* shrink;
};

// sums[r] = sums[r] * shrink[r] + weights[r] . values, for `Columns` vectors from column d.
template <class Isa, class Element, int Rows, int Columns, class Vector>
LOWBIT_APART void add_columns(const WeightedValues<Element>& block, size_t d, Vector vector) {
  using V = typename Isa::V;
  V sums[Rows][Columns];
  for (int r = 0; r < Rows; r++)
    for (int c = 0; c < Columns; c++)
      sums[r][c] = vector.load(block.sums[r] + d + c * Isa::kLanes) * Isa::set(block.shrink[r]);
  const Element* value = block.values + d;
  const float* weights = block.weights;
  for (uint32_t key = 0; key < block.count; key++, value += block.stride, weights += Isa::kLanes) {
    V values[Columns];
    for (int c = 0; c < Columns; c++) values[c] = vector.load(value + c * Isa::kLanes);
    for (int r = 0; r < Rows; r++) {
      const V weight = Isa::set(weights[r]);
      for (int c = 0; c < Columns; c++) sums[r][c] = Isa::multiply_add(weight, values[c], sums[r][c]);
    }
  }
  for (int r = 0; r < Rows; r++)
    for (int c = 0; c < Columns; c++) vector.store(block.sums[r] + d + c * Isa::kLanes, sums[r][c]);
}

template <class Isa, class Element, int Rows>
void add_rows(const WeightedValues<Element>& block, uint32_t dim) {
  constexpr int kColumns = Rows == 4 ? Isa::kColumns : 4;
  uint32_t d = 0;
  for (; d + kColumns * Isa::kLanes <= dim; d += kColumns * Isa::kLanes)
    add_columns<Isa, Element, Rows, kColumns>(block, d, WholeVector<Isa>{});
  for (; d + Isa::kLanes <= dim; d += Isa::kLanes)
    add_columns<Isa, Element, Rows, 1>(block, d, WholeVector<Isa>{});
  if (d < dim) add_columns<Isa, Element, Rows, 1>(block, d, PartialVector<Isa>{dim - d});
}

// All sums of the queries, head by head, some rows at once.
template <class Isa, class Element>
void add_values(const QueryVector<Isa>& queries, const KeyBlock<Element>& block, uint32_t first, uint32_t last,
                const float* weights, const float* shrink) {
  for (uint32_t p = 0; p < queries.heads; p++) {
    const Element* values = block.values + first * block.stride + p * block.dim;
    uint32_t row = 0;
    auto rows_at = [&] {
      const uint32_t lane = p * queries.lane_rows + row;
      return WeightedValues<Element>{values,         block.stride, last - first, queries.sums + lane,
                                     weights + lane, shrink + lane};
    };
    for (; row + 4 <= queries.rows; row += 4) add_rows<Isa, Element, 4>(rows_at(), block.dim);
    for (; row + 2 <= queries.rows; row += 2) add_rows<Isa, Element, 2>(rows_at(), block.dim);
    if (row < queries.rows) add_rows<Isa, Element, 1>(rows_at(), block.dim);
  }
}

template <class Isa, class Element>
void score_block(const QueryVector<Isa>& queries, const KeyBlock<Element>& block, uint32_t first, uint32_t last,
                 float* scores) {
  switch (queries.lane_rows) {
    case 1: return score_keys<Isa, Element, 1>(queries, block, first, last, scores);
    case 2: return score_keys<Isa, Element, 2>(queries, block, first, last, scores);
    case 4: return score_keys<Isa, Element, 4>(queries, block, first, last, scores);
    case 8:
      if constexpr (Isa::kLanes >= 8) return score_keys<Isa, Element, 8>(queries, block, first, last, scores);
      break;
    default:
      if constexpr (Isa::kLanes >= 16) return score_keys<Isa, Element, 16>(queries, block, first, last, scores);
  }
}

// The keys of a block that any of the queries sees. `scores` has room for kBlockKeys vectors.
template <class Isa, class Element>
void attend_block(QueryVector<Isa>& queries, const KeyBlock<Element>& block, const ScoreRule& rule, float* scores) {
  const uint32_t begin = std::max(queries.earliest, block.start);
  const uint32_t end = std::min(queries.latest, block.start + block.count);
  if (begin >= end) return;
  const uint32_t first = begin - block.start, last = end - block.start;
  score_block(queries, block, first, last, scores);
  bool all_seen = rule.softcap == 0;
  for (uint32_t i = 0; i < Isa::kLanes; i++)
    all_seen = all_seen && queries.first[i] <= static_cast<float>(begin) && queries.last[i] >= static_cast<float>(end);
  if (!all_seen) rule_scores(queries, rule.softcap, begin, end - begin, scores);
  float shrink[Isa::kLanes];
  softmax_block(queries, end - begin, scores, shrink);
  add_values(queries, block, first, last, scores, shrink);
}

}  // namespace lowbit
