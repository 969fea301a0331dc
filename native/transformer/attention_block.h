// Attention of vectors of queries over one block of keys: scores, online softmax, weighted sum of values (Milakov &
// Gimelshein 2018; Dao et al. 2022). Softmax sums across lanes once a block.
#pragma once

#include <cmath>

#include "attention_scores.h"

namespace lowbit {

// Caps scores of keys first .. last of the block and hides those that a query does not see, and those from `last` on.
template <class Isa, class Element, int Rows>
LOWBIT_APART void rule_scores(const QueryVector<Isa>& queries, const KeyBlock<Element>& block, float softcap,
                              uint32_t first, uint32_t last, float* scores) {
  const auto seen_from = Isa::load(queries.first), seen_to = Isa::load(queries.last);
  const auto none = Isa::set(-INFINITY), cap = Isa::set(softcap);
  const auto lane_key = lane_keys<Isa, Rows>();
  const auto offsets = spread<Isa, Rows>([&](uint32_t i) { return static_cast<float>(block.row(i)); });
  for (uint32_t key = first; key < last; key += Isa::kLanes / Rows, scores += Isa::kLanes) {
    auto score = Isa::load(scores);
    if (softcap > 0) score = cap * tanh_of<Isa>(score / cap);
    const auto index = offsets + Isa::set(static_cast<float>(block.start + block.row(key)));
    score = Isa::choose_less(index, seen_from, none, score);
    score = Isa::choose_less(index, seen_to, score, none);
    Isa::store(scores, Isa::choose_less(lane_key, Isa::set(static_cast<float>(last - key)), score, none));
  }
}

// Each lane with those of other keys and the same query: combine(lane, another) over all.
template <class Isa, class Combine>
inline LOWBIT_INLINE typename Isa::V fold_keys(typename Isa::V v, uint32_t lane_rows,
                                                               Combine&& combine) {
  float twice[2 * Isa::kLanes];
  for (uint32_t apart = lane_rows; apart < Isa::kLanes; apart *= 2) {
    Isa::store(twice, v);
    Isa::store(twice + Isa::kLanes, v);
    v = combine(v, Isa::load(twice + apart));
  }
  return v;
}

// Scores of keys first .. last of the block to weights exp(score - largest) in place, times the scales of integers.
template <class Isa, class Element, int Rows>
LOWBIT_APART void softmax_block(QueryVector<Isa>& queries, const KeyBlock<Element> block, uint32_t first, uint32_t last,
                                float* scores) {
  using V = typename Isa::V;
  constexpr uint32_t kLanes = Isa::kLanes, kKeys = kLanes / Rows, kChains = 4;
  const uint32_t count = ceil_div(last - first, kKeys);
  [[maybe_unused]] const uint32_t kv = queries.kv;
  const V before = Isa::load(queries.largest);
  V chains[kChains] = {before, before, before, before};
  uint32_t i = 0;
  for (; i + kChains <= count; i += kChains)
    for (uint32_t c = 0; c < kChains; c++) chains[c] = Isa::max(Isa::load(scores + (i + c) * kLanes), chains[c]);
  for (; i < count; i++) chains[0] = Isa::max(Isa::load(scores + i * kLanes), chains[0]);
  V largest = Isa::max(Isa::max(chains[0], chains[1]), Isa::max(chains[2], chains[3]));
  largest = fold_keys<Isa>(largest, Rows, [](V a, V b) { return Isa::max(a, b); });
  V total = Isa::set(0);
  for (i = 0; i < count; i++) {
    const V weight = exp_of_negative<Isa>(Isa::load(scores + i * kLanes) - largest);
    total = total + weight;
    V scaled = weight;
    if constexpr (std::is_same_v<Element, int8_t>) {
      size_t rows[kKeys];
      key_rows<kKeys>(block, first + i * kKeys, last, rows);
      scaled = weight * scales_of<Isa, Rows>(block, block.value_scales, kv, rows);
    }
    Isa::store(scores + i * kLanes, scaled);
  }
  const V factor = exp_of_negative<Isa>(before - largest);
  Isa::store(queries.shrink, factor);
  Isa::store(queries.largest, largest);
  Isa::store(queries.totals, Isa::multiply_add(Isa::load(queries.totals), factor, total));
}

// Weights [key - first][lane_rows] from one row on, for keys first .. last of the block, and where their sums are.
struct WeightRows {
  uint32_t first, last, lane_rows;
  const float* weights;
  const float* shrink;
  float* const* sums;
};

// sums[r] = sums[r] * shrink[r] + weights[r] . values, for `Columns` vectors from column d.
template <class Isa, class Element, int Rows, int Columns, class Vector>
LOWBIT_APART void add_columns(const KeyBlock<Element>& block, const WeightRows& rows, size_t d, Vector vector) {
  using V = typename Isa::V;
  V sums[Rows][Columns];
  each_index<Rows>([&](auto r) LOWBIT_INLINE {
    const V shrink = Isa::set(rows.shrink[r]);
    const float* sum = rows.sums[r] + d;
    each_index<Columns>(
        [&](auto c) LOWBIT_INLINE { sums[r][c] = vector.load(sum + c * Isa::kLanes) * shrink; });
  });
  const float* weights = rows.weights;
  auto add_key = [&](const Element* value) LOWBIT_INLINE {
    V values[Columns];
    each_index<Columns>([&](auto c) LOWBIT_INLINE { values[c] = vector.load(value + c * Isa::kLanes); });
    each_index<Rows>([&](auto r) LOWBIT_INLINE {
      const V weight = Isa::set(weights[r]);
      each_index<Columns>(
          [&](auto c) LOWBIT_INLINE { sums[r][c] = Isa::multiply_add(weight, values[c], sums[r][c]); });
    });
    weights += rows.lane_rows;
  };
  const Element* value = block.values + block.row(rows.first) * block.stride + d;
  const size_t apart = block.apart * block.stride, step = block.step * block.stride;
  uint32_t key = rows.first;
  for (; key + kPlaces <= rows.last; key += kPlaces, value += step)
    each_index<kPlaces>([&](auto i) LOWBIT_INLINE { add_key(value + i * apart); });
  for (; key < rows.last; key++, value += apart) add_key(value);
  each_index<Rows>([&](auto r) LOWBIT_INLINE {
    float* sum = rows.sums[r] + d;
    each_index<Columns>([&](auto c) LOWBIT_INLINE { vector.store(sum + c * Isa::kLanes, sums[r][c]); });
  });
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

// Keys whose values, rows of all heads apart, stay in the first cache until all their columns are added.
constexpr uint32_t kKeysAtOnce = 32;

// All sums of the queries, some rows at once.
template <class Isa, class Element>
void add_values(const QueryVector<Isa>& queries, KeyBlock<Element> block, uint32_t first, uint32_t last,
                const float* weights) {
  static const float kOnes[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  block.values += static_cast<size_t>(queries.kv - block.kv) * block.dim;
  const bool at_once = block.stride == block.dim || block.dim <= Isa::kColumns * Isa::kLanes;
  const uint32_t step = at_once ? last - first : kKeysAtOnce;
  const float* shrink = queries.shrink;
  for (uint32_t from = first; from < last; from += step, weights += step * queries.lane_rows, shrink = kOnes) {
    const uint32_t to = std::min(last, from + step);
    uint32_t row = 0;
    auto rows_at = [&] {
      return WeightRows{from, to, queries.lane_rows, weights + row, shrink + row, queries.sums + row};
    };
    for (; row + 4 <= queries.rows; row += 4) add_rows<Isa, Element, 4>(block, rows_at());
    for (; row + 2 <= queries.rows; row += 2) add_rows<Isa, Element, 2>(block, rows_at());
    if (row < queries.rows) add_rows<Isa, Element, 1>(block, rows_at());
  }
}

// Scores of keys first .. last of the block to weights.
template <class Isa, class Element>
void weigh_block(QueryVector<Isa>& queries, const KeyBlock<Element>& block, uint32_t first, uint32_t last,
                 float softcap, float* scores) {
  const float begin = static_cast<float>(block.start + block.row(first));
  const float end = static_cast<float>(block.start + block.row(last - 1) + 1);
  bool all_seen = softcap == 0 && (last - first) % queries.keys() == 0;
  for (uint32_t i = 0; i < queries.lane_rows; i++)
    all_seen = all_seen && queries.first[i] <= begin && queries.last[i] >= end;
  if (!all_seen)
    with_lane_rows<Isa>(queries.lane_rows, [&](auto rows) {
      rule_scores<Isa, Element, rows>(queries, block, softcap, first, last, scores);
    });
  with_lane_rows<Isa>(queries.lane_rows,
                      [&](auto rows) { softmax_block<Isa, Element, rows>(queries, block, first, last, scores); });
}

// The keys of a block of one place that any of the queries sees. `scores` has room for kBlockKeys vectors.
template <class Isa, class Element>
void attend_block(QueryVector<Isa>& queries, const KeyBlock<Element>& block, const ScoreRule& rule, float* scores) {
  const uint32_t begin = std::max(queries.earliest, block.start);
  const uint32_t end = std::min(queries.latest, block.start + block.count);
  if (begin >= end) return;
  score_block(&queries, 1, block, begin - block.start, end - block.start, scores, 0);
  weigh_block(queries, block, begin - block.start, end - block.start, rule.softcap, scores);
  add_values(queries, block, begin - block.start, end - block.start, scores);
}

}  // namespace lowbit
