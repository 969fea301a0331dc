// Attention of vectors of queries over one block of keys: scores, online softmax, weighted sum of values (Milakov &
// Gimelshein 2018; Dao et al. 2022). Softmax sums across lanes once a block.
#pragma once

#include <cmath>

#include "attention_scores.h"

namespace lowbit {

// Caps scores of keys of the block, and hides those that a query does not see: their weights are 0.
template <class Isa, class Block, int Rows>
LOWBIT_APART void rule_scores(const QueryVector<Isa>& queries, const Block& block, float softcap, KeyRange keys,
                              float* scores) {
  float from[Isa::kLanes], to[Isa::kLanes];
  for (uint32_t lane = 0; lane < Isa::kLanes; lane++) {
    from[lane] = static_cast<float>(std::max(queries.first[lane], block.start) - block.start);
    to[lane] = static_cast<float>(std::max(queries.last[lane], block.start) - block.start);
  }
  const auto seen_from = Isa::load(from), seen_to = Isa::load(to);
  const auto none = Isa::set(-INFINITY), cap = Isa::set(softcap);
  const auto lane_key = lane_keys<Isa, Rows>();
  constexpr uint32_t kKeys = Isa::kLanes / Rows;
  for (uint32_t key = keys.first / kKeys * kKeys; key < keys.last; key += kKeys) {
    auto score = Isa::load(scores + key * Rows);
    if (softcap > 0) score = cap * tanh_of<Isa>(score / cap);
    const auto index = lane_key + Isa::set(static_cast<float>(key));
    score = Isa::choose_less(index, seen_from, none, score);
    Isa::store(scores + key * Rows, Isa::choose_less(index, seen_to, score, none));
  }
}

// Each lane with those of other keys and the same query: combine(lane, another) over all, in one order of keys for any
// number of them in a vector.
template <class Isa, class Combine>
inline LOWBIT_INLINE typename Isa::V fold_keys(typename Isa::V v, uint32_t lane_rows,
                                                               Combine&& combine) {
  float twice[2 * Isa::kLanes];
  for (uint32_t apart = Isa::kLanes / 2; apart >= lane_rows; apart /= 2) {
    Isa::store(twice, v);
    Isa::store(twice + Isa::kLanes, v);
    v = combine(v, Isa::load(twice + apart));
  }
  return v;
}

// Scores of keys of the block to weights exp(score - largest) in place, times the scales of integers. Totals
// are sums by key modulo lanes, added as a tree: the same for any number of keys in a vector.
template <class Isa, class Block, int Rows>
LOWBIT_APART void softmax_block(QueryVector<Isa>& queries, const Block& block, KeyRange keys, float* scores) {
  using V = typename Isa::V;
  constexpr uint32_t kLanes = Isa::kLanes, kKeys = kLanes / Rows, kChains = 4;
  const uint32_t begin = keys.first / kKeys, end = ceil_div(keys.last, kKeys);
  [[maybe_unused]] const uint32_t kv = queries.kv;
  const V before = Isa::load(queries.largest);
  V chains[kChains] = {before, before, before, before};
  uint32_t i = begin;
  for (; i + kChains <= end; i += kChains)
    for (uint32_t c = 0; c < kChains; c++) chains[c] = Isa::max(Isa::load(scores + (i + c) * kLanes), chains[c]);
  for (; i < end; i++) chains[0] = Isa::max(Isa::load(scores + i * kLanes), chains[0]);
  V largest = Isa::max(Isa::max(chains[0], chains[1]), Isa::max(chains[2], chains[3]));
  largest = fold_keys<Isa>(largest, Rows, [](V a, V b) { return Isa::max(a, b); });
  V totals[Rows];
  for (auto& total : totals) total = Isa::set(0);
  for (i = begin; i < end; i++) {
    const V weight = exp_of_negative<Isa>(Isa::load(scores + i * kLanes) - largest);
    totals[i % Rows] = totals[i % Rows] + weight;
    V scaled = weight;
    if constexpr (Block::kIsScaled)
      scaled = weight * spread<Isa, Rows>([&](uint32_t k) { return block.value_scales[i * kKeys + k][kv - block.kv]; });
    Isa::store(scores + i * kLanes, scaled);
  }
  for (uint32_t apart = Rows / 2; apart > 0; apart /= 2)
    for (uint32_t r = 0; r < apart; r++) totals[r] = totals[r] + totals[r + apart];
  const V total = fold_keys<Isa>(totals[0], Rows, [](V a, V b) { return a + b; });
  const V factor = exp_of_negative<Isa>(before - largest);
  Isa::store(queries.shrink, factor);
  Isa::store(queries.largest, largest);
  Isa::store(queries.totals, Isa::multiply_add(Isa::load(queries.totals), factor, total));
}

// Weights [key][lane_rows] from one row on, for keys first .. last of the block, and where their sums are.
struct WeightRows {
  uint32_t first, last, lane_rows;
  const float* weights;
  const float* shrink;
  float* const* sums;
};

// sums[r] = sums[r] * shrink[r] + weights[r] . values, for `Columns` vectors from column d of a head, and from column
// at + d of the values.
template <class Isa, class Value, int Rows, int Columns, class Vector>
LOWBIT_APART void add_columns(const Value* const* values, const WeightRows& rows, size_t d, size_t at, Vector vector) {
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
  for (; key + 4 <= rows.last; key += 4)
    each_index<4>([&](auto i) LOWBIT_INLINE { add_key(values[key + i] + (at + d)); });
  for (; key < rows.last; key++) add_key(values[key] + (at + d));
  each_index<Rows>([&](auto r) LOWBIT_INLINE {
    float* sum = rows.sums[r] + d;
    each_index<Columns>([&](auto c) LOWBIT_INLINE { vector.store(sum + c * Isa::kLanes, sums[r][c]); });
  });
}

// `at` is the first column of the head in the block's rows.
template <class Isa, class Block, int Rows>
void add_rows(const Block& block, size_t at, const WeightRows& rows) {
  using Value = typename Block::ValueType;
  constexpr int kColumns = Rows == 4 ? Isa::kColumns : 4;
  uint32_t d = 0;
  for (; d + kColumns * Isa::kLanes <= block.dim; d += kColumns * Isa::kLanes)
    add_columns<Isa, Value, Rows, kColumns>(block.values, rows, d, at, WholeVector<Isa>{});
  for (; d + Isa::kLanes <= block.dim; d += Isa::kLanes)
    add_columns<Isa, Value, Rows, 1>(block.values, rows, d, at, WholeVector<Isa>{});
  if (d < block.dim) add_columns<Isa, Value, Rows, 1>(block.values, rows, d, at, PartialVector<Isa>{block.dim - d});
}

// A vector of queries, its weights and the block that they are of.
template <class Isa, class Block>
struct WeighedValues {
  const QueryVector<Isa>& queries;
  const Block& block;
  const float* weights;

  // Keys first .. last of the block for `Rows` queries, whose sums shrink first.
  template <int Rows>
  void add_keys(uint32_t row, uint32_t first, uint32_t last, const float* shrink) const {
    static const float kOnes[4] = {1, 1, 1, 1};
    const size_t at = static_cast<size_t>(queries.kv - block.kv) * block.dim;
    // Rows of all heads that stay in the first cache until all columns are added.
    const uint32_t at_once = block.is_strided ? kBlockKeys / 2 : kBlockKeys;
    for (uint32_t from = first; from < last; from += at_once, shrink = kOnes) {
      const uint32_t to = std::min(last, from + at_once);
      add_rows<Isa, Block, Rows>(block, at, {from, to, queries.lane_rows, weights + row, shrink, queries.sums + row});
    }
  }

  // Keys of first .. last that a query sees.
  KeyRange seen(uint32_t row, KeyRange keys) const {
    const uint32_t begin = std::max(queries.first[row], block.start + keys.first) - block.start;
    const uint32_t end = std::min(std::max(queries.last[row], block.start), block.start + keys.last) - block.start;
    return {std::min(begin, end), end};
  }

  // Sums of `Rows` queries over the keys that each sees; a weight of 0 would not hide a value that is not finite. Keys
  // that all see are added at once.
  template <int Rows>
  void add(uint32_t row, KeyRange keys) const {
    KeyRange own[Rows];
    KeyRange all = own[0] = seen(row, keys);
    bool are_same = true;
    for (int r = 1; r < Rows; r++) {
      own[r] = seen(row + r, keys);
      are_same = are_same && own[r].first == own[0].first && own[r].last == own[0].last;
      all = {std::max(all.first, own[r].first), std::min(all.last, own[r].last)};
    }
    if (are_same) return add_keys<Rows>(row, all.first, all.last, queries.shrink + row);
    all.last = std::max(all.first, all.last);
    static const float kOnes[4] = {1, 1, 1, 1};
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

// All sums of a vector's queries over keys of the block, some queries at once.
template <class Isa, class Block>
void add_values(const QueryVector<Isa>& queries, const Block& block, KeyRange keys, const float* weights) {
  const WeighedValues<Isa, Block> values{queries, block, weights};
  uint32_t row = 0;
  for (; row + 4 <= queries.rows; row += 4) values.template add<4>(row, keys);
  for (; row + 2 <= queries.rows; row += 2) values.template add<2>(row, keys);
  if (row < queries.rows) values.template add<1>(row, keys);
}

// Scores of keys of the block to weights.
template <class Isa, class Block>
void weigh_block(QueryVector<Isa>& queries, const Block& block, KeyRange keys, float softcap, float* scores) {
  const uint32_t lane_keys = Isa::kLanes / queries.lane_rows;
  bool all_seen = softcap == 0 && keys.first % lane_keys == 0 && keys.last % lane_keys == 0;
  for (uint32_t i = 0; i < queries.lane_rows; i++)
    all_seen = all_seen && queries.first[i] <= block.start + keys.first && queries.last[i] >= block.start + keys.last;
  with_lane_rows<Isa>(queries.lane_rows, [&](auto rows) {
    if (!all_seen) rule_scores<Isa, Block, rows>(queries, block, softcap, keys, scores);
    softmax_block<Isa, Block, rows>(queries, block, keys, scores);
  });
}

// Keys of a block that any of the vector's queries sees.
template <class Isa, class Block>
KeyRange seen_keys(const QueryVector<Isa>& queries, const Block& block) {
  const uint32_t begin = std::max(queries.earliest, block.start + block.first);
  const uint32_t end = std::max(begin, std::min(queries.latest, block.start + block.last));
  return {begin - block.start, end - block.start};
}

// Keys of a block for vectors of queries. A vector's scores have room for kBlockKeys keys and are `apart` floats after
// the last's.
template <class Isa, class Block>
void attend_block(QueryVector<Isa>* vectors, uint32_t count, const Block& block, KeyRange keys, float softcap,
                  float* scores, size_t apart) {
  score_block(vectors, count, block, keys, scores, apart);
  for (uint32_t i = 0; i < count; i++) weigh_block(vectors[i], block, keys, softcap, scores + i * apart);
  for (uint32_t i = 0; i < count; i++) add_values(vectors[i], block, keys, scores + i * apart);
}

}  // namespace lowbit
