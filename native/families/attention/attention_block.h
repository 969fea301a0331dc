// Attention of vectors of queries over one block of the KV cache: scores, softmax weights, weighted sum of values.
#pragma once

#include "attention_softmax.h"

namespace lowbit {

// Softmax weights [key][lane_rows] of keys first .. last - 1 of a block, from some query on, and the sums of weighted
// values of these queries.
struct WeightRows {
  uint32_t first, last, lane_rows;
  const float* weights;
  const float* shrink;
  float* const* sums;
};

// sums[r] = sums[r] * shrink[r] + weights[r] . values for `Columns` vectors of columns, from column d on. A head's
// columns begin at column `at` of the values' rows.
template <class Isa, class Value, int Rows, int Columns, class Vector>
LOWBIT_APART void add_columns(const Value* const* values, const WeightRows& rows, size_t d, size_t at,
                              KeyFetch<Value>& fetch, Vector vector) {
  using V = typename Isa::V;
  V sums[Rows][Columns];
  each_index<Rows>([&](auto r) LOWBIT_INLINE {
    const V shrink = Isa::set(rows.shrink[r]);
    const float* sum = rows.sums[r] + d;
    each_index<Columns>(
        [&](auto c) LOWBIT_INLINE { sums[r][c] = vector.load(sum + c * Isa::kLanes) * shrink; });
  });
  const float* weights = rows.weights + rows.first * rows.lane_rows;
  const size_t lane_rows = rows.lane_rows;
  auto add_key = [&](const Value* value) LOWBIT_INLINE {
    V all[Columns];
    each_index<Columns>([&](auto c) LOWBIT_INLINE { all[c] = vector.load(value + c * Isa::kLanes); });
    each_index<Rows>([&](auto r) LOWBIT_INLINE {
      const V weight = Isa::set(weights[r]);
      each_index<Columns>(
          [&](auto c) LOWBIT_INLINE { sums[r][c] = Isa::multiply_add(weight, all[c], sums[r][c]); });
    });
    weights += lane_rows;
  };
  uint32_t key = rows.first;
  for (; key + 4 <= rows.last; key += 4) {
    fetch.step();
    each_index<4>([&](auto i) LOWBIT_INLINE { add_key(values[key + i] + (at + d)); });
  }
  for (; key < rows.last; key++) add_key(values[key] + (at + d));
  each_index<Rows>([&](auto r) LOWBIT_INLINE {
    float* sum = rows.sums[r] + d;
    each_index<Columns>([&](auto c) LOWBIT_INLINE { vector.store(sum + c * Isa::kLanes, sums[r][c]); });
  });
}

// Most queries whose sums are added to in one pass over the values, which converts these once: as many as registers
// hold, with few columns.
template <class Isa>
constexpr uint32_t kValueRows = Isa::kLanes >= 16 ? 8 : 4;

// Vectors of columns whose sums stay in registers for so many queries.
template <class Isa>
constexpr uint32_t columns_of_rows(uint32_t rows) {
  return rows > 4 ? 2 : rows == 4 ? Isa::kColumns : 4;
}

// add_columns for all columns of a head.
template <class Isa, class Value, int Rows>
void add_rows(const CacheBlock<Value>& block, size_t at, const WeightRows& rows, KeyFetch<Value>& fetch) {
  constexpr int kColumns = columns_of_rows<Isa>(Rows);
  uint32_t d = 0;
  for (; d + kColumns * Isa::kLanes <= block.dim; d += kColumns * Isa::kLanes)
    add_columns<Isa, Value, Rows, kColumns>(block.values, rows, d, at, fetch, WholeVector<Isa>{});
  for (; d + Isa::kLanes <= block.dim; d += Isa::kLanes)
    add_columns<Isa, Value, Rows, 1>(block.values, rows, d, at, fetch, WholeVector<Isa>{});
  if (d < block.dim)
    add_columns<Isa, Value, Rows, 1>(block.values, rows, d, at, fetch, PartialVector<Isa>{block.dim - d});
}

// Factors of sums that do not shrink.
constexpr float kOnes[8] = {1, 1, 1, 1, 1, 1, 1, 1};

// Adds the weighted values of a block to the sums of one vector of queries.
template <class Isa, class Element>
struct WeighedValues {
  const QueryVector<Isa>& queries;
  const CacheBlock<Element>& block;
  const float* weights;
  // Prefetches the next block.
  KeyFetch<Element>& fetch;

  // Multiplies the sums of `Rows` queries by `shrink`, then adds keys first .. last - 1 of the block.
  template <int Rows>
  void add_keys(uint32_t row, uint32_t first, uint32_t last, const float* shrink) const {
    const size_t at = static_cast<size_t>(queries.kv - block.kv) * block.dim;
    // Keys whose values, of all heads, stay in the first-level cache until all columns are added.
    const uint32_t at_once = block.dim * sizeof(Element) > 256 ? kBlockKeys / 2 : kBlockKeys;
    for (uint32_t from = first; from < last; from += at_once, shrink = kOnes) {
      const uint32_t to = std::min(last, from + at_once);
      add_rows<Isa, Element, Rows>(block, at, {from, to, queries.lane_rows, weights + row, shrink, queries.sums + row},
                                   fetch);
    }
  }

  // Adds to each of `Rows` queries the keys that it sees: those that all see in one pass, between those that only some
  // see. Hidden keys are left out: a weight of 0 would make NaN of a value that is not finite.
  template <int Rows>
  void add(uint32_t row, KeyRange keys) const {
    KeyRange own[Rows];
    KeyRange all = own[0] = keys_of_query(queries, row, block.start, keys);
    bool are_same = true;
    for (int r = 1; r < Rows; r++) {
      own[r] = keys_of_query(queries, row + r, block.start, keys);
      are_same = are_same && own[r].first == own[0].first && own[r].last == own[0].last;
      all = {std::max(all.first, own[r].first), std::min(all.last, own[r].last)};
    }
    if (are_same) return add_keys<Rows>(row, all.first, all.last, queries.shrink + row);
    all.last = std::max(all.first, all.last);
    for (uint32_t r = 0; r < Rows; r++) {
      const auto shrink = Isa::set(queries.shrink[row + r]);
      float* sums = queries.sums[row + r];
      each_vector<Isa>(block.dim,
                       [&](size_t d, auto vector) { vector.store(sums + d, vector.load(sums + d) * shrink); });
      add_keys<1>(row + r, own[r].first, std::min(all.first, own[r].last), kOnes);
    }
    add_keys<Rows>(row, all.first, all.last, kOnes);
    for (uint32_t r = 0; r < Rows; r++) add_keys<1>(row + r, all.last, own[r].last, kOnes);
  }
};

// Calls body(count) with the constant that `count` is, up to `Most`.
template <int Most, class Body>
inline LOWBIT_INLINE void with_count(uint32_t count, Body&& body) {
  if constexpr (Most > 1)
    if (count < Most) return with_count<Most - 1>(count, body);
  body(std::integral_constant<int, Most>{});
}

// Adds the block's weighted values to the sums of a vector's queries, as many queries at a time as registers allow.
template <class Isa, class Element>
void add_values(const QueryVector<Isa>& queries, const CacheBlock<Element>& block, KeyRange keys, const float* weights,
                KeyFetch<Element>& fetch) {
  constexpr uint32_t kRows = kValueRows<Isa>;
  const WeighedValues<Isa, Element> values{queries, block, weights, fetch};
  for (uint32_t row = 0; row < queries.rows; row += kRows)
    with_count<kRows>(queries.rows - row, [&](auto rows) { values.template add<rows>(row, keys); });
}

// The number of passes over a block's values that add_values makes.
template <class Isa>
uint32_t passes_of_values(uint32_t queries, uint32_t dim) {
  uint32_t passes = 0;
  for (; queries > 0; queries -= std::min(queries, +kValueRows<Isa>))
    passes += ceil_div(dim, columns_of_rows<Isa>(std::min(queries, +kValueRows<Isa>)) * Isa::kLanes);
  return passes;
}

// Turns the scores of a block's keys into softmax weights; int8 values have their scales multiplied in.
template <class Isa, class Element>
void weigh_block(QueryVector<Isa>& queries, const CacheBlock<Element>& block, KeyRange keys, float softcap,
                 float* scores) {
  with_lane_rows<Isa>(queries.lane_rows, [&](auto rows) {
    constexpr int kRows = decltype(rows)::value;
    if constexpr (CacheBlock<Element>::kIsScaled) {
      const uint32_t column = queries.kv - block.kv;
      auto scales = [&block, column](uint32_t i) LOWBIT_INLINE {
        return spread<Isa, kRows>(
            [&](uint32_t key) { return block.value_scales[i * (Isa::kLanes / kRows) + key][column]; });
      };
      weigh_scores<Isa, kRows>(queries, block.start, keys, softcap, scores, scales);
    } else {
      weigh_scores<Isa, kRows>(queries, block.start, keys, softcap, scores, NoScales{});
    }
  });
}

// Attends with `count` vectors of queries to one block, whose rows have `columns` columns in use. scores: kBlockKeys
// keys a vector, `apart` floats from one vector to the next. The loop over keys prefetches the block's values, the loop
// over values the next block's keys.
template <class Isa, class Element>
void attend_block(QueryVector<Isa>* vectors, uint32_t count, const CacheBlock<Element>& block, KeyRange keys,
                  float softcap, float* scores, size_t apart, uint32_t columns) {
  if (block.next) fetch_scales(*block.next);
  score_block(vectors, count, block, keys, scores, apart);
  for (uint32_t i = 0; i < count; i++) weigh_block(vectors[i], block, keys, softcap, scores + i * apart);
  const uint32_t passes = passes_of_values<Isa>(vectors[0].rows, block.dim);
  KeyFetch<Element> fetch(block.next, columns, kBlockKeys / 4 * count * passes);
  for (uint32_t i = 0; i < count; i++) add_values(vectors[i], block, keys, scores + i * apart, fetch);
}

}  // namespace lowbit
