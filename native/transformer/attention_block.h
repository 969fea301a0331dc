// Attention of vectors of queries over one block of keys: scores, online softmax, weighted sum of values (Milakov &
// Gimelshein 2018; Dao et al. 2022). Each lane is a query and a key, so that what is loaded of keys and values serves all
// queries that share them, and softmax sums across lanes once a block.
#pragma once

#include <cmath>

#include "../kernel.h"
#include "vectors.h"

// Loops that are to have all registers for themselves.
#define LOWBIT_APART __attribute__((noinline))

namespace lowbit {

constexpr uint32_t kBlockKeys = 64;
// Where all heads of a block are worked on before the next block, so many of its values stay in the second cache.
constexpr uint32_t kSplitBlockKeys = 64;
// A core gets some 40 % more from memory where it reads at so many places side by side.
constexpr uint32_t kPlaces = 4;
// Largest score before any was seen: finite, so that differences are.
constexpr float kNoneYet = -1e30f;

struct ScoreRule {
  float scale, softcap;
};

// `count` keys and values from head `kv` on: rows `stride` elements apart, heads of `dim` columns one after the other.
// Element is float, uint16_t for halves, or int8_t for integers times a scale for each row of a head. Rows may come from
// kPlaces places side by side, which memory serves faster than one: key i is row i / kPlaces of place i % kPlaces.
template <class Element>
struct KeyBlock {
  const Element* keys;
  const Element* values;
  size_t stride;
  uint32_t dim, kv, start, count;
  // Of integers: [row][scale_stride].
  const float* key_scales;
  const float* value_scales;
  uint32_t scale_stride;
  // What is fetched from memory meanwhile, for row 0; null for nothing.
  const Element* fetched[2];
  // Rows from one place to the next, and from one row of a place to the next; 1 and kPlaces where keys are in order.
  size_t apart, step;

  size_t row(uint32_t key) const { return key % kPlaces * apart + key / kPlaces * step; }
};

// Queries of one head of keys and values, with several keys at once: lane key * lane_rows + r is query r. Queries from
// `rows` on repeat the last one, and their results are not used.
template <class Isa>
struct QueryVector {
  static constexpr uint32_t kLanes = Isa::kLanes;
  // [columns / lanes][lane_rows][lanes]: scaled, with zeros after the last column.
  float* q;
  // Of each query.
  float* sums[kLanes];
  // Keys that each lane's query sees, from `first` to before `last`; as floats to be compared in vectors.
  float first[kLanes], last[kLanes];
  float largest[kLanes];
  // Of the keys that a lane has met.
  float totals[kLanes];
  // Factors by which sums of earlier blocks shrink.
  float shrink[kLanes];
  uint32_t kv, rows, lane_rows;
  // Keys that any sees.
  uint32_t earliest, latest;

  uint32_t keys() const { return kLanes / lane_rows; }
  float total(uint32_t row) const {
    float sum = 0;
    for (uint32_t lane = row; lane < kLanes; lane += lane_rows) sum += totals[lane];
    return sum;
  }
};

// Fetches what is needed after a row of the keys, for the head whose columns begin at `at`.
template <class Element>
inline __attribute__((always_inline)) void fetch_row(const KeyBlock<Element>& block, size_t row, size_t at = 0) {
  for (const Element* fetched : block.fetched) {
    if (!fetched) continue;
    for (uint32_t d = 0; d < block.dim; d += 64 / sizeof(Element))
      __builtin_prefetch(fetched + row * block.stride + at + d, 0, 2);
  }
}

// Key of each lane among those of a vector.
template <class Isa, int Rows>
inline __attribute__((always_inline)) typename Isa::V lane_keys() {
  static const float kKeys[16] = {0 / Rows, 1 / Rows, 2 / Rows,  3 / Rows,  4 / Rows,  5 / Rows,  6 / Rows,  7 / Rows,
                                  8 / Rows, 9 / Rows, 10 / Rows, 11 / Rows, 12 / Rows, 13 / Rows, 14 / Rows, 15 / Rows};
  return Isa::load(kKeys);
}

// Value of each key of a vector, in the lanes of that key.
template <class Isa, int Rows, class Value>
inline __attribute__((always_inline)) typename Isa::V spread(Value&& value) {
  constexpr int kKeys = Isa::kLanes / Rows;
  const auto keys = lane_keys<Isa, Rows>();
  auto all = Isa::set(value(kKeys - 1));
  each_index<kKeys - 1>([&](auto index) {
    constexpr int key = kKeys - 2 - index;
    all = Isa::choose_less(keys, Isa::set(key + 1), Isa::set(value(key)), all);
  });
  return all;
}

// each_vector for the columns of a head: four at once, since the ends of short loops are hard to foresee.
template <class Isa, class Body>
inline __attribute__((always_inline)) void each_column(size_t dim, Body&& body) {
  size_t d = 0;
  for (; d + 4 * Isa::kLanes <= dim; d += 4 * Isa::kLanes)
    each_index<4>([&](auto c) { body(d + c * Isa::kLanes, WholeVector<Isa>{}); });
  for (; d + Isa::kLanes <= dim; d += Isa::kLanes) body(d, WholeVector<Isa>{});
  if (d < dim) body(d, PartialVector<Isa>{static_cast<uint32_t>(dim - d)});
}

// Rows of a vector's keys of a block from `key` on; those from `last` on repeat the one before.
template <uint32_t Keys, class Element>
inline __attribute__((always_inline)) void key_rows(const KeyBlock<Element>& block, uint32_t key, uint32_t last,
                                                    size_t* rows) {
  for (uint32_t i = 0; i < Keys; i++) rows[i] = block.row(std::min(key + i, last - 1));
}

// Scales of a vector's keys or values, in those rows of the block, for head `kv`.
template <class Isa, int Rows>
inline __attribute__((always_inline)) typename Isa::V scales_of(const KeyBlock<int8_t>& block, const float* scales,
                                                                uint32_t kv, const size_t* rows) {
  return spread<Isa, Rows>([&](uint32_t key) { return scales[rows[key] * block.scale_stride + (kv - block.kv)]; });
}

// scores[vector][key - first][row] for keys first .. last of the block; a vector's are `apart` floats after the last's.
// Rows is lane_rows of all vectors. The block is a copy: compilers must expect others to change with each float stored.
template <class Isa, class Element, int Rows>
LOWBIT_APART void score_keys(const QueryVector<Isa>* vectors, uint32_t count, const KeyBlock<Element> block,
                             uint32_t first, uint32_t last, float* scores, size_t apart) {
  using V = typename Isa::V;
  constexpr uint32_t kLanes = Isa::kLanes, kKeys = kLanes / Rows;
  for (uint32_t key = first; key < last; key += kKeys, scores += kLanes) {
    size_t rows[kKeys];
    key_rows<kKeys>(block, key, last, rows);
    const Element* keys[kKeys];
    for (uint32_t i = 0; i < kKeys; i++) keys[i] = block.keys + rows[i] * block.stride;
    for (uint32_t n = 0; n < count; n++) {
      const size_t at = static_cast<size_t>(vectors[n].kv - block.kv) * block.dim;
      each_index<kKeys>([&](auto i) LOWBIT_INLINE { fetch_row(block, rows[i], at); });
      const float* queries = vectors[n].q;
      V sums[kLanes];
      for (uint32_t i = 0; i < kLanes; i++) sums[i] = Isa::set(0);
      each_column<Isa>(block.dim, [&](size_t d, auto vector) LOWBIT_INLINE {
        V k[kKeys];
        for (uint32_t i = 0; i < kKeys; i++) k[i] = vector.load(keys[i] + at + d);
        each_index<Rows>([&](auto r) LOWBIT_INLINE {
          V q = Isa::load(queries + d * Rows + r * kLanes);
          // Making floats of integers takes so many instructions that loads within products are faster for two keys.
          if constexpr (kKeys > (std::is_same_v<Element, int8_t> ? 2 : 1)) load_once(q);
          for (uint32_t i = 0; i < kKeys; i++) sums[i * Rows + r] = Isa::multiply_add(q, k[i], sums[i * Rows + r]);
        });
      });
      V score = Isa::sums(sums);
      if constexpr (std::is_same_v<Element, int8_t>)
        score = score * scales_of<Isa, Rows>(block, block.key_scales, vectors[n].kv, rows);
      Isa::store(scores + n * apart, score);
    }
  }
}

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
inline __attribute__((always_inline)) typename Isa::V fold_keys(typename Isa::V v, uint32_t lane_rows,
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
    each_index<Columns>([&](auto c) LOWBIT_INLINE { sums[r][c] = vector.load(sum + c * Isa::kLanes) * shrink; });
  });
  const float* weights = rows.weights;
  auto add_key = [&](const Element* value) LOWBIT_INLINE {
    V values[Columns];
    each_index<Columns>([&](auto c) LOWBIT_INLINE { values[c] = vector.load(value + c * Isa::kLanes); });
    each_index<Rows>([&](auto r) LOWBIT_INLINE {
      const V weight = Isa::set(weights[r]);
      each_index<Columns>([&](auto c) LOWBIT_INLINE { sums[r][c] = Isa::multiply_add(weight, values[c], sums[r][c]); });
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
void score_block(const QueryVector<Isa>* vectors, uint32_t count, const KeyBlock<Element>& block, uint32_t first,
                 uint32_t last, float* scores, size_t apart) {
  with_lane_rows<Isa>(vectors[0].lane_rows, [&](auto rows) {
    score_keys<Isa, Element, rows>(vectors, count, block, first, last, scores, apart);
  });
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
  with_lane_rows<Isa>(queries.lane_rows, [&](auto rows) {
    softmax_block<Isa, Element, rows>(queries, block, first, last, scores);
  });
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
