// Attention of some query rows over one block of keys: scores, online softmax, weighted sum of values
// (Milakov & Gimelshein 2018; Dao et al. 2022). Rows share the keys and values that are loaded.
#pragma once

#include <cmath>
#include <cstring>

#include "vectors.h"

// Loops that are to have all registers for themselves.
#define LOWBIT_APART __attribute__((noinline))

namespace lowbit {

// Keys of a block, and the distance between the scores of two rows: a vector may be written past the end.
constexpr uint32_t kBlockKeys = 64;
constexpr uint32_t kScoreStride = kBlockKeys + 16;
// Rows that go through a block together.
constexpr int kRowsMax = 4;

struct ScoreRule {
  float scale, softcap;
};

// Keys and values of one head: rows `stride` elements apart. Element is float, or uint16_t for halves.
template <class Element>
struct KeyBlock {
  const Element* keys;
  const Element* values;
  size_t stride;
  uint32_t dim;
  // Elements from a key to the one that is fetched meanwhile; 0 for none.
  size_t ahead;
};

// One query row: where it is, what it sees of the block, and its running softmax.
struct QueryRow {
  const float* q;
  float* sum;
  float* largest;
  float* total;
  uint32_t first, last;
};

// Fetches key and value `row` of a later block, a few lines at a time so that they do not queue up.
template <class Element>
inline __attribute__((always_inline)) void prefetch_row(const KeyBlock<Element>& block, size_t row) {
  if (block.ahead == 0) return;
  const size_t start = row * block.stride + block.ahead;
  for (uint32_t d = 0; d < block.dim; d += 64 / sizeof(Element)) {
    __builtin_prefetch(block.keys + start + d, 0, 2);
    __builtin_prefetch(block.values + start + d, 0, 2);
  }
}

// sums[r][j] += q[r] . keys[j] at columns d of a vector.
template <class Isa, class Element, int Rows, class Vector>
inline __attribute__((always_inline)) void add_products(const QueryRow* rows, const Element* const* keys, size_t d,
                                                        Vector vector, typename Isa::V* sums) {
  constexpr uint32_t kKeys = Isa::kLanes / Rows;
  typename Isa::V key[kKeys];
  for (uint32_t j = 0; j < kKeys; j++) key[j] = vector.load(keys[j] + d);
  for (int r = 0; r < Rows; r++) {
    const auto q = vector.load(rows[r].q + d);
    for (uint32_t j = 0; j < kKeys; j++) sums[r * kKeys + j] = Isa::multiply_add(q, key[j], sums[r * kKeys + j]);
  }
}

// scores[r][key] = q[r] . key for keys first .. last - 1. Some keys times some rows fill the lanes of one vector.
// Columns is the dimension of heads when it is known: loops without counters.
template <class Isa, class Element, int Rows, uint32_t Columns>
LOWBIT_APART void score_keys(const QueryRow* rows, const KeyBlock<Element>& block, uint32_t first, uint32_t last,
                             float* scores) {
  using V = typename Isa::V;
  constexpr uint32_t kKeys = Isa::kLanes / Rows;
  for (uint32_t key = first; key < last; key += kKeys) {
    const Element* keys[kKeys];
    for (uint32_t j = 0; j < kKeys; j++) {
      const uint32_t row = key + j < last ? key + j : last - 1;
      keys[j] = block.keys + row * block.stride;
      prefetch_row(block, row);
    }
    V sums[Isa::kLanes];
    for (uint32_t i = 0; i < Isa::kLanes; i++) sums[i] = Isa::set(0);
    if constexpr (Columns > 0) {
      for (uint32_t d = 0; d < Columns; d += Isa::kLanes)
        add_products<Isa, Element, Rows>(rows, keys, d, WholeVector<Isa>{}, sums);
    } else {
      each_vector<Isa>(block.dim, [&](size_t d, auto vector) {
        add_products<Isa, Element, Rows>(rows, keys, d, vector, sums);
      });
    }
    float lanes[Isa::kLanes];
    Isa::store(lanes, Isa::sums(sums));
    for (int r = 0; r < Rows; r++) memcpy(scores + r * kScoreStride + key, lanes + r * kKeys, 4 * kKeys);
  }
}

// Scores of one row as the rule wants them, -infinity for keys that the row does not see; returns the largest.
template <class Isa>
inline typename Isa::V rule_scores(const QueryRow& row, const ScoreRule& rule, uint32_t first, uint32_t end,
                                   float* scores) {
  using V = typename Isa::V;
  const V scale = Isa::set(rule.scale);
  const V none = Isa::set(-INFINITY);
  V largest = none;
  const bool sees_all = row.first <= first && row.last >= end;
  for (uint32_t i = first; i < end; i += Isa::kLanes) {
    V score = Isa::load(scores + i) * scale;
    if (rule.softcap > 0) score = Isa::set(rule.softcap) * tanh_of<Isa>(score / Isa::set(rule.softcap));
    Isa::store(scores + i, score);
    if (sees_all) largest = Isa::max(score, largest);
  }
  if (sees_all) return largest;
  for (uint32_t i = first; i < row.first; i++) scores[i] = -INFINITY;
  for (uint32_t i = row.last; i < end; i++) scores[i] = -INFINITY;
  for (uint32_t i = first; i < end; i += Isa::kLanes) largest = Isa::max(Isa::load(scores + i), largest);
  return largest;
}

// Scores to weights exp(score - largest), in place; 0 for keys that a row does not see. `shrink` gets the factors by
// which earlier sums of the rows shrink.
template <class Isa, int Rows>
LOWBIT_APART void softmax_block(const QueryRow* rows, const ScoreRule& rule, uint32_t first, uint32_t last,
                                float* all_scores, float* shrink) {
  using V = typename Isa::V;
  const uint32_t end = last + (Isa::kLanes - (last - first) % Isa::kLanes) % Isa::kLanes;
  for (int r = 0; r < Rows; r++) {
    const QueryRow& row = rows[r];
    float* scores = all_scores + r * kScoreStride;
    shrink[r] = 1;
    if (row.first >= row.last) {
      for (uint32_t i = first; i < end; i++) scores[i] = 0;
      continue;
    }
    const float before = *row.largest;
    const float found = Isa::largest(rule_scores<Isa>(row, rule, first, end, scores));
    const float now = found > before ? found : before;
    const V largest = Isa::set(now);
    V total = Isa::set(0);
    for (uint32_t i = first; i < end; i += Isa::kLanes) {
      const V weight = exp_of<Isa>(Isa::load(scores + i) - largest);
      Isa::store(scores + i, weight);
      total = total + weight;
    }
    if (now > before) shrink[r] = Isa::first_lane(exp_of<Isa>(Isa::set(before - now)));
    *row.largest = now;
    *row.total = *row.total * shrink[r] + Isa::sum(total);
  }
}

// sum[r] = sum[r] * shrink[r] + weights[r] . values, for `Columns` vectors from column d.
template <class Isa, class Element, int Rows, int Columns, class Vector>
LOWBIT_APART void add_columns(const QueryRow* rows, const KeyBlock<Element>& block, uint32_t first, uint32_t last,
                              const float* weights, const float* shrink, size_t d, Vector vector) {
  using V = typename Isa::V;
  V sums[Rows][Columns];
  for (int r = 0; r < Rows; r++)
    for (int c = 0; c < Columns; c++)
      sums[r][c] = vector.load(rows[r].sum + d + c * Isa::kLanes) * Isa::set(shrink[r]);
  for (uint32_t key = first; key < last; key++) {
    const Element* value = block.values + key * block.stride + d;
    V values[Columns];
    for (int c = 0; c < Columns; c++) values[c] = vector.load(value + c * Isa::kLanes);
    for (int r = 0; r < Rows; r++) {
      const V weight = Isa::set(weights[r * kScoreStride + key]);
      for (int c = 0; c < Columns; c++) sums[r][c] = Isa::multiply_add(weight, values[c], sums[r][c]);
    }
  }
  for (int r = 0; r < Rows; r++)
    for (int c = 0; c < Columns; c++) vector.store(rows[r].sum + d + c * Isa::kLanes, sums[r][c]);
}

template <class Isa, class Element, int Rows>
inline void add_values(const QueryRow* rows, const KeyBlock<Element>& block, uint32_t first, uint32_t last,
                       const float* weights, const float* shrink) {
  constexpr int kColumns = Rows == kRowsMax ? Isa::kColumns : 4;
  uint32_t d = 0;
  for (; d + kColumns * Isa::kLanes <= block.dim; d += kColumns * Isa::kLanes)
    add_columns<Isa, Element, Rows, kColumns>(rows, block, first, last, weights, shrink, d, WholeVector<Isa>{});
  for (; d + Isa::kLanes <= block.dim; d += Isa::kLanes)
    add_columns<Isa, Element, Rows, 1>(rows, block, first, last, weights, shrink, d, WholeVector<Isa>{});
  if (d < block.dim)
    add_columns<Isa, Element, Rows, 1>(rows, block, first, last, weights, shrink, d,
                                       PartialVector<Isa>{block.dim - d});
}

// `Rows` rows over the keys that any of them sees. `scores` has room for kRowsMax * kScoreStride.
template <class Isa, class Element, int Rows>
void attend_rows(const QueryRow* rows, const KeyBlock<Element>& block, const ScoreRule& rule, float* scores) {
  uint32_t first = kBlockKeys, last = 0;
  for (int r = 0; r < Rows; r++) {
    if (rows[r].first >= rows[r].last) continue;
    first = std::min(first, rows[r].first);
    last = std::max(last, rows[r].last);
  }
  if (first >= last) return;
  if (block.dim == 64) score_keys<Isa, Element, Rows, 64>(rows, block, first, last, scores);
  else score_keys<Isa, Element, Rows, 0>(rows, block, first, last, scores);
  float shrink[Rows];
  softmax_block<Isa, Rows>(rows, rule, first, last, scores, shrink);
  add_values<Isa, Element, Rows>(rows, block, first, last, scores, shrink);
}

}  // namespace lowbit
