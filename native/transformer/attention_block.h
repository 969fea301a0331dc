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
// Where all heads of a block are worked on before the next block, so many of its values stay in the first cache.
constexpr uint32_t kSplitBlockKeys = 32;
// Largest score before any was seen: finite, so that differences are.
constexpr float kNoneYet = -1e30f;

struct ScoreRule {
  float scale, softcap;
};

// `count` keys and values from one head on: rows `stride` elements apart, heads of `dim` columns one after the other.
// Element is float, uint16_t for halves, or int8_t for integers times a scale for each row of a head. Rows may come from
// several places side by side, which memory serves faster than one: key i is row i / places of place i % places.
template <class Element>
struct KeyBlock {
  const Element* keys;
  const Element* values;
  size_t stride;
  uint32_t dim, start, count;
  // Of integers: [row][scale_stride].
  const float* key_scales;
  const float* value_scales;
  uint32_t scale_stride;
  // Elements from a row to the one that is fetched meanwhile; 0 for none.
  size_t ahead;
  // Binary logarithm of the places, and rows from one place to the next.
  uint32_t places_log2;
  size_t apart;

  size_t row(uint32_t key) const { return (key & ((1u << places_log2) - 1)) * apart + (key >> places_log2); }
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

// Fetches what is needed after row `row` of the keys, for `heads` heads: the values of that row where rows come from
// several places, else keys and values of a later block.
template <class Element>
inline __attribute__((always_inline)) void prefetch_row(const KeyBlock<Element>& block, size_t row, uint32_t heads) {
  const size_t start = row * block.stride + block.ahead;
  constexpr uint32_t kStep = 64 / sizeof(Element);
  if (block.places_log2 > 0) {
    for (uint32_t d = 0; d < heads * block.dim; d += kStep) __builtin_prefetch(block.values + start + d);
  } else if (block.ahead > 0) {
    for (uint32_t d = 0; d < heads * block.dim; d += kStep) {
      __builtin_prefetch(block.keys + start + d, 0, 2);
      __builtin_prefetch(block.values + start + d, 0, 2);
    }
  }
}

// Scales of `heads` heads, each in the lanes of its head.
template <class Isa, int Rows>
inline __attribute__((always_inline)) typename Isa::V spread(const float* scales, uint32_t heads) {
  constexpr int kHeads = Isa::kLanes / Rows;
  if constexpr (Rows == 1) return Isa::load_some(scales, heads);
  static const float kLanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const auto lane = Isa::load(kLanes);
  auto all = Isa::set(scales[heads - 1]);
  each_index<kHeads - 1>([&](auto index) {
    constexpr int p = kHeads - 2 - index;
    if (p + 1u < heads) all = Isa::choose_less(lane, Isa::set((p + 1) * Rows), Isa::set(scales[p]), all);
  });
  return all;
}

// each_vector for the columns of a head: four at once, since the ends of short loops are hard to foresee.
template <class Isa, class Body>
inline __attribute__((always_inline)) void each_column(uint32_t dim, Body&& body) {
  uint32_t d = 0;
  for (; d + 4 * Isa::kLanes <= dim; d += 4 * Isa::kLanes)
    each_index<4>([&](auto c) { body(d + c * Isa::kLanes, WholeVector<Isa>{}); });
  for (; d + Isa::kLanes <= dim; d += Isa::kLanes) body(d, WholeVector<Isa>{});
  if (d < dim) body(d, PartialVector<Isa>{dim - d});
}

// scores[key - first][lane] for keys first .. last of the block. Rows is lane_rows.
template <class Isa, class Element, int Rows>
LOWBIT_APART void score_keys(const QueryVector<Isa>& queries, const KeyBlock<Element>& block, uint32_t first,
                             uint32_t last, float* scores) {
  using V = typename Isa::V;
  constexpr uint32_t kLanes = Isa::kLanes;
  constexpr int kHeads = kLanes / Rows;
  for (uint32_t key = first; key < last; key++, scores += kLanes) {
    const size_t row = block.row(key);
    prefetch_row(block, row, queries.heads);
    V sums[kLanes];
    for (uint32_t i = 0; i < kLanes; i++) sums[i] = Isa::set(0);
    each_index<kHeads>([&](auto index) {
      constexpr uint32_t p = index;
      const uint32_t head = p < queries.heads ? p : queries.heads - 1;
      const Element* keys = block.keys + row * block.stride + head * block.dim;
      const float* q = queries.q + p * Rows * kLanes;
      each_column<Isa>(block.dim, [&](size_t d, auto vector) {
        const V k = vector.load(keys + d);
        for (int r = 0; r < Rows; r++)
          sums[p * Rows + r] = Isa::multiply_add(Isa::load(q + (d + r) * kLanes), k, sums[p * Rows + r]);
      });
    });
    V score = Isa::sums(sums);
    if constexpr (std::is_same_v<Element, int8_t>)
      score = score * spread<Isa, Rows>(block.key_scales + row * block.scale_stride, queries.heads);
    Isa::store(scores, score);
  }
}

// Weights [key][lane] of integers times the scales of their values.
template <class Isa, int Rows>
LOWBIT_APART void scale_weights(const QueryVector<Isa>& queries, const KeyBlock<int8_t>& block, uint32_t first,
                                uint32_t last, float* weights) {
  for (uint32_t key = first; key < last; key++, weights += Isa::kLanes) {
    const float* scales = block.value_scales + block.row(key) * block.scale_stride;
    Isa::store(weights, Isa::load(weights) * spread<Isa, Rows>(scales, queries.heads));
  }
}

// Caps scores of keys first .. last of the block and hides those that a query does not see.
template <class Isa, class Element>
LOWBIT_APART void rule_scores(const QueryVector<Isa>& queries, const KeyBlock<Element>& block, float softcap,
                              uint32_t begin, uint32_t end, float* scores) {
  const auto first = Isa::load(queries.first), last = Isa::load(queries.last);
  const auto none = Isa::set(-INFINITY), cap = Isa::set(softcap);
  for (uint32_t key = begin; key < end; key++, scores += Isa::kLanes) {
    auto score = Isa::load(scores);
    if (softcap > 0) score = cap * tanh_of<Isa>(score / cap);
    const auto index = Isa::set(static_cast<float>(block.start + block.row(key)));
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

// Weights [key - first][lanes] from one lane on, for keys first .. last of the block, and where their sums are.
struct WeightRows {
  uint32_t first, last;
  const float* weights;
  const float* shrink;
  float* const* sums;
};

// sums[r] = sums[r] * shrink[r] + weights[r] . values, for `Columns` vectors from column d.
template <class Isa, class Element, int Rows, int Columns, class Vector>
LOWBIT_APART void add_columns(const KeyBlock<Element>& block, const WeightRows& rows, size_t d, Vector vector) {
  using V = typename Isa::V;
  V sums[Rows][Columns];
  for (int r = 0; r < Rows; r++)
    for (int c = 0; c < Columns; c++)
      sums[r][c] = vector.load(rows.sums[r] + d + c * Isa::kLanes) * Isa::set(rows.shrink[r]);
  const float* weights = rows.weights;
  for (uint32_t key = rows.first; key < rows.last; key++, weights += Isa::kLanes) {
    const Element* value = block.values + block.row(key) * block.stride + d;
    V values[Columns];
    for (int c = 0; c < Columns; c++) values[c] = vector.load(value + c * Isa::kLanes);
    for (int r = 0; r < Rows; r++) {
      const V weight = Isa::set(weights[r]);
      for (int c = 0; c < Columns; c++) sums[r][c] = Isa::multiply_add(weight, values[c], sums[r][c]);
    }
  }
  for (int r = 0; r < Rows; r++)
    for (int c = 0; c < Columns; c++) vector.store(rows.sums[r] + d + c * Isa::kLanes, sums[r][c]);
}

// `d` is the first column of the head in the block's rows.
template <class Isa, class Element, int Rows>
void add_rows(const KeyBlock<Element>& block, const WeightRows& rows) {
  constexpr int kColumns = Rows == 4 ? Isa::kColumns : 4;
  uint32_t d = 0;
  for (; d + kColumns * Isa::kLanes <= block.dim; d += kColumns * Isa::kLanes)
    add_columns<Isa, Element, Rows, kColumns>(block, rows, d, WholeVector<Isa>{});
  for (; d + Isa::kLanes <= block.dim; d += Isa::kLanes)
    add_columns<Isa, Element, Rows, 1>(block, rows, d, WholeVector<Isa>{});
  if (d < block.dim) add_columns<Isa, Element, Rows, 1>(block, rows, d, PartialVector<Isa>{block.dim - d});
}

// All sums of the queries, head by head, some rows at once.
template <class Isa, class Element>
void add_values(const QueryVector<Isa>& queries, KeyBlock<Element> block, uint32_t first, uint32_t last,
                const float* weights, const float* shrink) {
  for (uint32_t p = 0; p < queries.heads; p++, block.values += block.dim) {
    uint32_t row = 0;
    auto rows_at = [&] {
      const uint32_t lane = p * queries.lane_rows + row;
      return WeightRows{first, last, weights + lane, shrink + lane, queries.sums + lane};
    };
    for (; row + 4 <= queries.rows; row += 4) add_rows<Isa, Element, 4>(block, rows_at());
    for (; row + 2 <= queries.rows; row += 2) add_rows<Isa, Element, 2>(block, rows_at());
    if (row < queries.rows) add_rows<Isa, Element, 1>(block, rows_at());
  }
}

// Calls body with lane_rows as a constant.
template <class Isa, class Body>
void with_lane_rows(uint32_t lane_rows, Body&& body) {
  switch (lane_rows) {
    case 1: return body(std::integral_constant<int, 1>{});
    case 2: return body(std::integral_constant<int, 2>{});
    case 4: return body(std::integral_constant<int, 4>{});
    case 8:
      if constexpr (Isa::kLanes >= 8) return body(std::integral_constant<int, 8>{});
      break;
    default:
      if constexpr (Isa::kLanes >= 16) return body(std::integral_constant<int, 16>{});
  }
}

template <class Isa, class Element>
void score_block(const QueryVector<Isa>& queries, const KeyBlock<Element>& block, uint32_t first, uint32_t last,
                 float* scores) {
  with_lane_rows<Isa>(queries.lane_rows, [&](auto rows) {
    score_keys<Isa, Element, rows>(queries, block, first, last, scores);
  });
}

// Scores of keys first .. last of the block to weights, and their values times these to the sums.
template <class Isa, class Element>
void add_block(QueryVector<Isa>& queries, const KeyBlock<Element>& block, uint32_t first, uint32_t last, float softcap,
               float* scores) {
  const float begin = static_cast<float>(block.start + block.row(first));
  const float end = static_cast<float>(block.start + block.row(last - 1) + 1);
  bool all_seen = softcap == 0;
  for (uint32_t i = 0; i < Isa::kLanes; i++)
    all_seen = all_seen && queries.first[i] <= begin && queries.last[i] >= end;
  if (!all_seen) rule_scores(queries, block, softcap, first, last, scores);
  float shrink[Isa::kLanes];
  softmax_block(queries, last - first, scores, shrink);
  if constexpr (std::is_same_v<Element, int8_t>)
    with_lane_rows<Isa>(queries.lane_rows,
                        [&](auto rows) { scale_weights<Isa, rows>(queries, block, first, last, scores); });
  add_values(queries, block, first, last, scores, shrink);
}

// The keys of a block of one place that any of the queries sees. `scores` has room for kBlockKeys vectors.
template <class Isa, class Element>
void attend_block(QueryVector<Isa>& queries, const KeyBlock<Element>& block, const ScoreRule& rule, float* scores) {
  const uint32_t begin = std::max(queries.earliest, block.start);
  const uint32_t end = std::min(queries.latest, block.start + block.count);
  if (begin >= end) return;
  score_block(queries, block, begin - block.start, end - block.start, scores);
  add_block(queries, block, begin - block.start, end - block.start, rule.softcap, scores);
}

}  // namespace lowbit
