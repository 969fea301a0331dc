// Scores q . key of vectors of queries with a block of keys. A lane is a pair of a query and a key, so that a loaded
// key serves all queries of its KV head.
#pragma once

#include <cstddef>

#include "../../kernel.h"
#include "../../vectors.h"

namespace lowbit {

// Keys of a block. Blocks begin at multiples of it.
constexpr uint32_t kBlockKeys = 64;
// Places at which a block is read side by side: a core reads some 40 % faster from memory in four streams than in one.
constexpr uint32_t kPlaces = 4;
// Largest score before there is any. It is finite, so that differences from it are.
constexpr float kNoneYet = -1e30f;

// Keys first .. last - 1 of a block.
struct KeyRange {
  uint32_t first, last;
};

struct ScoreRule {
  float scale, softcap;
};

// Where a block's keys and values lie in the cache. A row has heads of `dim` columns, one after the other, from KV head
// `kv` on. Elements are float, uint16_t (f16), or int8_t with a scale per head. Key i is at position start + i. Keys
// first .. last - 1 are present; the entries before and after repeat the first and the last of these.
template <class Element>
struct CacheBlock {
  static constexpr bool kIsScaled = std::is_same_v<Element, int8_t>;

  uint32_t start, first, last, dim, kv;
  // The block after this one, or null.
  const CacheBlock* next;
  const Element* keys[kBlockKeys];
  const Element* values[kBlockKeys];
  // Scales of the heads from `kv` on.
  const float* key_scales[kIsScaled ? kBlockKeys : 1];
  const float* value_scales[kIsScaled ? kBlockKeys : 1];

  // Sets the entry of key `to` to that of key `from`.
  void repeat(uint32_t from, uint32_t to) {
    keys[to] = keys[from];
    values[to] = values[from];
    if constexpr (kIsScaled) {
      key_scales[to] = key_scales[from];
      value_scales[to] = value_scales[from];
    }
  }
  void repeat_ends() {
    for (uint32_t key = 0; key < first; key++) repeat(first, key);
    for (uint32_t key = last; key < kBlockKeys; key++) repeat(last - 1, key);
  }
};

// A vector of queries of one KV head, by several keys at once: lane key * lane_rows + r is query r. Queries from `rows`
// on repeat the last one, and their results are unused. Sums and totals are those of the current chunk.
template <class Isa>
struct QueryVector {
  static constexpr uint32_t kLanes = Isa::kLanes;
  // Queries times the scale of scores, [columns / lanes][lane_rows][lanes], padded with zeros. For int8 keys, where the
  // Isa has 16-bit words, these are words [columns / (2 lanes)][lane_rows][2 lanes], to be multiplied by `factors`.
  float* q;
  float factors[kLanes];
  // Sums of weighted values of each query.
  float* sums[kLanes];
  // The query of a lane sees positions first .. last - 1.
  uint32_t first[kLanes], last[kLanes];
  // Largest score, and total of exp(score - largest): equal in all lanes of a query.
  float largest[kLanes], totals[kLanes];
  // What sums of earlier blocks are multiplied by, as a larger score has come.
  float shrink[kLanes];
  uint32_t kv, rows, lane_rows;
  // The first and the end of the positions that at least one of the queries sees.
  uint32_t earliest, latest;
};

// The key index of each lane.
template <class Isa, int Rows>
inline LOWBIT_INLINE typename Isa::V lane_keys() {
  static const float kKeys[16] = {0 / Rows, 1 / Rows, 2 / Rows,  3 / Rows,  4 / Rows,  5 / Rows,  6 / Rows,  7 / Rows,
                                  8 / Rows, 9 / Rows, 10 / Rows, 11 / Rows, 12 / Rows, 13 / Rows, 14 / Rows, 15 / Rows};
  return Isa::load(kKeys);
}

// value(key), in the lanes of each key.
template <class Isa, int Rows, class Value>
inline LOWBIT_INLINE typename Isa::V spread(Value&& value) {
  constexpr int kKeys = Isa::kLanes / Rows;
  const auto keys = lane_keys<Isa, Rows>();
  auto all = Isa::set(value(kKeys - 1));
  each_index<kKeys - 1>([&](auto index) {
    constexpr int key = kKeys - 2 - index;
    all = Isa::choose_less(keys, Isa::set(key + 1), Isa::set(value(key)), all);
  });
  return all;
}

// Prefetches a row into the second-level cache.
template <class Element>
inline LOWBIT_INLINE void fetch_row(const Element* row, uint32_t dim) {
  for (uint32_t d = 0; d < dim; d += 64 / sizeof(Element)) __builtin_prefetch(row + d, 0, 2);
}

// Prefetches the scales of a block.
template <class Element>
inline LOWBIT_INLINE void fetch_scales([[maybe_unused]] const CacheBlock<Element>& block) {
  if constexpr (CacheBlock<Element>::kIsScaled)
    for (uint32_t key = 0; key < kBlockKeys; key++) {
      __builtin_prefetch(block.key_scales[key], 0, 2);
      __builtin_prefetch(block.value_scales[key], 0, 2);
    }
}

// Spreads the rows of a block evenly over `steps` steps of other work: a core has few outstanding cache misses.
class EvenRows {
 public:
  // Without a block (`is_there` false) there are no rows.
  EvenRows(bool is_there, uint32_t steps) : steps_(steps), row_(is_there ? 0 : kBlockKeys) {}

  // Calls body with the number of each row that is due.
  template <class Body>
  inline LOWBIT_INLINE void step(Body&& body) {
    due_ += kBlockKeys;
    for (; row_ < kBlockKeys && row_ * steps_ < due_; row_++) body(row_);
  }

 private:
  uint32_t steps_, row_, due_ = 0;
};

// Prefetches the keys of a block during other work.
template <class Element>
class KeyFetch {
 public:
  // Prefetches `columns` columns of each row of the block within `steps` steps. `block` may be null.
  KeyFetch(const CacheBlock<Element>* block, uint32_t columns, uint32_t steps)
      : block_(block),
        columns_(columns),
        rows_(block != nullptr, steps) {}

  // Prefetches the rows that are due, in the order in which keys_in_places reads them with four keys a vector.
  inline LOWBIT_INLINE void step() {
    rows_.step([&](uint32_t row) LOWBIT_INLINE {
      fetch_row(block_->keys[row % kPlaces * (kBlockKeys / kPlaces) + row / kPlaces], columns_);
    });
  }

 private:
  const CacheBlock<Element>* block_;
  uint32_t columns_;
  EvenRows rows_;
};

// each_vector for the columns of a head, four vectors a turn: branch predictors fail at the ends of short loops.
template <class Isa, class Body>
inline LOWBIT_INLINE void each_column(size_t dim, Body&& body) {
  size_t d = 0;
  for (; d + 4 * Isa::kLanes <= dim; d += 4 * Isa::kLanes)
    each_index<4>([&](auto c) { body(d + c * Isa::kLanes, WholeVector<Isa>{}); });
  for (; d + Isa::kLanes <= dim; d += Isa::kLanes) body(d, WholeVector<Isa>{});
  if (d < dim) body(d, PartialVector<Isa>{static_cast<uint32_t>(dim - d)});
}

// q . key for the lanes of a vector, without the scales of int8 keys. `Rows` is lane_rows; the first `Used` queries are
// distinct, and the sums of the others stay 0.
template <class Isa, class Element, int Rows, int Used>
inline LOWBIT_INLINE typename Isa::V products_of_floats(const float* queries,
                                                                        const Element* const* keys, uint32_t dim) {
  using V = typename Isa::V;
  constexpr uint32_t kLanes = Isa::kLanes, kKeys = kLanes / Rows;
  V sums[kLanes];
  for (uint32_t i = 0; i < kLanes; i++) sums[i] = Isa::set(0);
  each_column<Isa>(dim, [&](size_t d, auto vector) LOWBIT_INLINE {
    V k[kKeys];
    for (uint32_t i = 0; i < kKeys; i++) k[i] = vector.load(keys[i] + d);
    each_index<Used>([&](auto r) LOWBIT_INLINE {
      V q = Isa::load(queries + d * Rows + r * kLanes);
      if constexpr (kKeys > 1) load_once(q);
      for (uint32_t i = 0; i < kKeys; i++) sums[i * Rows + r] = Isa::multiply_add(q, k[i], sums[i * Rows + r]);
    });
  });
  return Isa::sums(sums);
}

// Whether queries are multiplied as 16-bit words, which takes half the operations of floats.
template <class Isa, class Element>
constexpr bool kScoresWords = std::is_same_v<Element, int8_t> && Isa::kHasWords;

// The largest magnitude of values. A NaN, which max() may pass over, is found by `finite`: 0 * infinity and NaN are
// NaN.
template <class Isa>
struct Magnitude {
  typename Isa::V most = Isa::set(0), finite = Isa::set(0);

  void add(typename Isa::V value) {
    most = Isa::max(Isa::max(value, Isa::set(0) - value), most);
    finite = Isa::multiply_add(value, Isa::set(0), finite);
  }
  float largest() const { return Isa::largest(most); }
  // 0 where all values are finite, else NaN.
  float unless_finite() const { return Isa::sum(finite); }
};

// Converts queries from floats to words, in place, since the words of a column end before its floats do. The error is
// at most half a 16-bit step of a query's largest column. A query with a value that is not finite gets NaN as factor.
template <class Isa>
void words_of_query(QueryVector<Isa>& queries, uint32_t dim) {
  constexpr uint32_t kLanes = Isa::kLanes;
  const uint32_t rows = queries.lane_rows;
  // The largest word with which sums of `dim` products with int8 fit 32 bits.
  const float word_most = std::min(32767.0f, 16777215.0f / static_cast<float>(dim) - 1);
  typename Isa::V inverse[kLanes];
  for (uint32_t row = 0; row < rows; row++) {
    Magnitude<Isa> magnitude;
    for (uint32_t d = 0; d < dim; d += kLanes) magnitude.add(Isa::load(queries.q + d * rows + row * kLanes));
    const float largest = std::max(magnitude.largest(), 1e-30f);
    inverse[row] = Isa::set(word_most / largest);
    for (uint32_t lane = row; lane < kLanes; lane += rows)
      queries.factors[lane] = largest / word_most + magnitude.unless_finite();
  }
  for (uint32_t d = 0; d < dim; d += 2 * kLanes)
    for (uint32_t row = 0; row < rows; row++) {
      const float* q = queries.q + d * rows + row * kLanes;
      const auto second = d + kLanes < dim ? Isa::load(q + rows * kLanes) : Isa::set(0);
      Isa::store_words(queries.q + d / 2 * rows + row * kLanes, Isa::load(q) * inverse[row], second * inverse[row]);
    }
}

// Loads int8 elements of a key as words: a whole vector of words, or (SomeWords) the last `count` elements.
template <class Isa>
struct WholeWords {
  typename Isa::Words load(const int8_t* p) const { return Isa::words_of(p); }
};

template <class Isa>
struct SomeWords {
  uint32_t count;
  typename Isa::Words load(const int8_t* p) const {
    int8_t all[2 * Isa::kLanes] = {};
    memcpy(all, p, count);
    return Isa::words_of(all);
  }
};

// products_of_floats for queries in words, without the factors of the queries.
template <class Isa, int Rows>
inline LOWBIT_INLINE typename Isa::V products_of_words(const float* queries, const int8_t* const* keys,
                                                                       uint32_t dim) {
  using Words = typename Isa::Words;
  constexpr uint32_t kLanes = Isa::kLanes, kKeys = kLanes / Rows, kColumns = 2 * kLanes;
  Words sums[kLanes];
  for (uint32_t i = 0; i < kLanes; i++) sums[i] = Isa::no_words();
  auto add = [&](size_t d, auto words) LOWBIT_INLINE {
    Words k[kKeys];
    for (uint32_t i = 0; i < kKeys; i++) k[i] = words.load(keys[i] + d);
    each_index<Rows>([&](auto r) LOWBIT_INLINE {
      const Words q = Isa::load_words(queries + d / 2 * Rows + r * kLanes);
      for (uint32_t i = 0; i < kKeys; i++) sums[i * Rows + r] = Isa::add_products(sums[i * Rows + r], q, k[i]);
    });
  };
  size_t d = 0;
  for (; d + 4 * kColumns <= dim; d += 4 * kColumns)
    each_index<4>([&](auto c) LOWBIT_INLINE { add(d + c * kColumns, WholeWords<Isa>{}); });
  for (; d + kColumns <= dim; d += kColumns) add(d, WholeWords<Isa>{});
  if (d < dim) add(d, SomeWords<Isa>{static_cast<uint32_t>(dim - d)});
  return Isa::sums_of_words(sums);
}

// The keys of a vector: first, first + apart, ...
struct VectorKeys {
  uint32_t first, apart;
};

// The keys of vector `index` of a whole block. The block is read at kPlaces places in different memory pages: hardware
// prefetchers follow one stream a memory page.
template <uint32_t Keys>
inline LOWBIT_INLINE VectorKeys keys_in_places(uint32_t index) {
  constexpr uint32_t kAll = Keys > kPlaces ? Keys : kPlaces, kEach = kBlockKeys / kAll, kVectors = kAll / Keys;
  return {index % kVectors * Keys * kEach + index / kVectors, kEach};
}

// scores[vector][key][lane_rows] with the keys of `range`, `apart` floats from one vector to the next. `Rows` is the
// lane_rows of all vectors, which have up to `Used` distinct queries.
template <class Isa, class Element, int Rows, int Used>
LOWBIT_APART void score_keys(const QueryVector<Isa>* vectors, uint32_t count, const CacheBlock<Element>& block,
                             KeyRange range, float* scores, size_t apart) {
  constexpr uint32_t kLanes = Isa::kLanes, kKeys = kLanes / Rows;
  const uint32_t dim = block.dim;
  const bool in_places = range.last - range.first == kBlockKeys;
  for (uint32_t index = range.first / kKeys; index < ceil_div(range.last, kKeys); index++) {
    const VectorKeys at = in_places ? keys_in_places<kKeys>(index) : VectorKeys{index * kKeys, 1};
    for (uint32_t n = 0; n < count; n++) {
      const uint32_t kv = vectors[n].kv;
      const size_t column = static_cast<size_t>(kv - block.kv) * dim;
      const Element* keys[kKeys];
      each_index<kKeys>([&](auto i) LOWBIT_INLINE {
        const uint32_t key = at.first + i * at.apart;
        keys[i] = block.keys[key] + column;
        fetch_row(block.values[key] + column, dim);
      });
      typename Isa::V score;
      if constexpr (kScoresWords<Isa, Element>) score = products_of_words<Isa, Rows>(vectors[n].q, keys, dim);
      else score = products_of_floats<Isa, Element, Rows, Used>(vectors[n].q, keys, dim);
      if constexpr (CacheBlock<Element>::kIsScaled) {
        auto scales =
            spread<Isa, Rows>([&](uint32_t i) { return block.key_scales[at.first + i * at.apart][kv - block.kv]; });
        if constexpr (kScoresWords<Isa, Element>) scales = scales * Isa::load(vectors[n].factors);
        score = score * scales;
      }
      float* target = scores + n * apart + at.first * Rows;
      if (at.apart == 1) {
        Isa::store(target, score);
      } else {
        float all[kLanes];
        Isa::store(all, score);
        each_index<kKeys>([&](auto i) LOWBIT_INLINE {
          memcpy(target + i * at.apart * Rows, all + i * Rows, 4 * Rows);
        });
      }
    }
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

// Calls body with a constant that is at least `used`, out of `Rows` and what is left to it from `From` on: loops over
// queries without branches.
template <int Rows, int From, class Body>
void with_used_rows(uint32_t used, Body&& body) {
  // Of 16 queries only each fourth number, so that there are few copies of the loops.
  if constexpr (From < Rows) {
    if (used > From || (Rows > 8 && From % 4 > 0)) return with_used_rows<Rows, From + 1>(used, body);
  }
  body(std::integral_constant<int, From>{});
}

template <class Isa, class Element>
void score_block(const QueryVector<Isa>* vectors, uint32_t count, const CacheBlock<Element>& block, KeyRange range,
                 float* scores, size_t apart) {
  uint32_t used = 0;
  for (uint32_t n = 0; n < count; n++) used = std::max(used, vectors[n].rows);
  with_lane_rows<Isa>(vectors[0].lane_rows, [&](auto rows) {
    with_used_rows<rows, kScoresWords<Isa, Element> ? rows : rows / 2 + 1>(
        used, [&](auto most) { score_keys<Isa, Element, rows, most>(vectors, count, block, range, scores, apart); });
  });
}

}  // namespace lowbit
