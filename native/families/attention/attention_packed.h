// Attention of many queries over one block of a KV head that is copied for them: keys as contiguous rows, values as
// panels of few columns. What an inner loop reads then stays in the first-level cache. Sums have the order of
// attention_block.h, so that prefill and decode give the same bits.
#pragma once

#include "attention_softmax.h"

namespace lowbit {

// Queries per vector.
constexpr uint32_t kPackedRows = 4;

// Products of queries and keys in f32; WordProducts has those in 16-bit words.
template <class Isa>
struct FloatProducts {
  using Sum = typename Isa::V;
  // Elements of a key per vector.
  static constexpr uint32_t kElements = Isa::kLanes;
  static Sum none() { return Isa::set(0); }
  static Sum load(const float* p) { return Isa::load(p); }
  static Sum add(Sum sum, Sum q, Sum k) { return Isa::multiply_add(q, k, sum); }
  static typename Isa::V totals(const Sum* sums) { return Isa::sums(sums); }
};

template <class Isa>
struct WordProducts {
  using Sum = typename Isa::Words;
  static constexpr uint32_t kElements = 2 * Isa::kLanes;
  static Sum none() { return Isa::no_words(); }
  static Sum load(const float* p) { return Isa::load_words(p); }
  static Sum add(Sum sum, Sum q, Sum k) { return Isa::add_products(sum, q, k); }
  static typename Isa::V totals(const Sum* sums) { return Isa::sums_of_words(sums); }
};

// A block's keys, values and scales, copied.
template <class Isa, class Element>
struct PackedBlock {
  static constexpr bool kIsScaled = CacheBlock<Element>::kIsScaled, kIsWords = kScoresWords<Isa, Element>;
  using Products = std::conditional_t<kIsWords, WordProducts<Isa>, FloatProducts<Isa>>;
  static constexpr uint32_t kLanes = Isa::kLanes, kColumns = Isa::kColumns;

  uint32_t dim;
  // Vectors of a key, vectors of a value, and how many of a value's vectors are in groups of kColumns.
  uint32_t key_vectors, value_vectors, grouped;
  // [keys][key_vectors][lanes]
  float* keys;
  // [groups][keys][kColumns][lanes], followed by [keys][lanes] for each vector outside groups.
  float* values;
  // [keys][kPackedRows]: each scale, repeated for all queries.
  float *key_scales, *value_scales;

  PackedBlock(uint32_t dim, float* at)
      : dim(dim),
        key_vectors(ceil_div(dim, Products::kElements)),
        value_vectors(ceil_div(dim, kLanes)),
        grouped(value_vectors / kColumns * kColumns),
        keys(at),
        values(keys + kBlockKeys * kLanes * key_vectors),
        key_scales(values + kBlockKeys * kLanes * value_vectors),
        value_scales(key_scales + kBlockKeys * kPackedRows) {}

  static size_t floats(uint32_t dim) {
    return kBlockKeys * (2 * round_up(dim, kLanes) + kLanes + (kIsScaled ? 2 * kPackedRows : 0));
  }

  float* key(uint32_t index) const { return keys + static_cast<size_t>(index) * key_vectors * kLanes; }
  // Address of vector `vector` of value 0; value_apart has the floats from there to the next value.
  float* value(uint32_t vector) const {
    const size_t group = vector < grouped
                             ? vector % kColumns * kLanes + vector / kColumns * kColumns * kBlockKeys * kLanes
                             : static_cast<size_t>(vector) * kBlockKeys * kLanes;
    return values + group;
  }
  uint32_t value_apart(uint32_t vector) const { return vector < grouped ? kColumns * kLanes : kLanes; }

  // Copies the keys and values of a block.
  void pack(const CacheBlock<Element>& block) {
    for (uint32_t index = block.first; index < block.last; index++) {
      pack_key(block.keys[index], key(index));
      if constexpr (kIsScaled) {
        std::fill_n(key_scales + index * kPackedRows, kPackedRows, block.key_scales[index][0]);
        std::fill_n(value_scales + index * kPackedRows, kPackedRows, block.value_scales[index][0]);
      }
    }
    uint32_t v = 0;
    for (; v < grouped && (v + kColumns) * kLanes <= dim; v += kColumns) pack_group(block, v);
    for (; (v + 1) * kLanes <= dim; v++) pack_vector(block, v, WholeVector<Isa>{});
    if (v < value_vectors) pack_vector(block, v, PartialVector<Isa>{dim - v * kLanes});
  }

 private:
  void pack_key(const Element* from, float* to) {
    if constexpr (kIsWords) {
      constexpr uint32_t kElements = Products::kElements;
      auto pack = [&](uint32_t d, auto words) {
        const auto loaded = words.load(from + d);
        memcpy(to + d / 2, &loaded, sizeof loaded);
      };
      uint32_t d = 0;
      for (; d + kElements <= dim; d += kElements) pack(d, WholeWords<Isa>{});
      if (d < dim) pack(d, SomeWords<Isa>{dim - d});
    } else {
      each_vector<Isa>(dim, [&](size_t d, auto vector) { Isa::store(to + d, vector.load(from + d)); });
    }
  }

  // Copies kColumns whole vectors of the values.
  void pack_group(const CacheBlock<Element>& block, uint32_t v) {
    constexpr WholeVector<Isa> kWhole;
    float* to = value(v) + block.first * kColumns * kLanes;
    for (uint32_t index = block.first; index < block.last; index++, to += kColumns * kLanes)
      each_index<kColumns>([&](auto c) LOWBIT_INLINE {
        Isa::store(to + c * kLanes, kWhole.load(block.values[index] + (v + c) * kLanes));
      });
  }

  template <class Vector>
  void pack_vector(const CacheBlock<Element>& block, uint32_t v, Vector vector) {
    const uint32_t apart = value_apart(v);
    float* to = value(v) + block.first * apart;
    for (uint32_t index = block.first; index < block.last; index++, to += apart)
      Isa::store(to, vector.load(block.values[index] + v * kLanes));
  }
};

// scores[key][kPackedRows] of a vector of queries, for whole steps of keys.
template <class Isa, class Element>
LOWBIT_APART void score_packed(const QueryVector<Isa>& queries, const PackedBlock<Isa, Element>& block, KeyRange range,
                               float* scores) {
  using Products = typename PackedBlock<Isa, Element>::Products;
  using Sum = typename Products::Sum;
  constexpr uint32_t kLanes = Isa::kLanes, kVectors = Isa::kScoreVectors, kVectorKeys = kLanes / kPackedRows;
  constexpr uint32_t kKeys = kVectors * kVectorKeys;
  static_assert(kBlockKeys % kKeys == 0);
  const size_t apart = static_cast<size_t>(block.key_vectors) * kLanes;
  for (uint32_t key = range.first / kKeys * kKeys; key < range.last; key += kKeys) {
    Sum sums[kVectors * kLanes];
    each_index<kVectors * kLanes>([&](auto i) LOWBIT_INLINE { sums[i] = Products::none(); });
    const float *q = queries.q, *k = block.key(key);
    auto add_column = [&]() LOWBIT_INLINE {
      Sum own[kKeys];
      each_index<kKeys>([&](auto i) LOWBIT_INLINE { own[i] = Products::load(k + i * apart); });
      each_index<kPackedRows>([&](auto r) LOWBIT_INLINE {
        Sum query = Products::load(q + r * kLanes);
        load_once(query);
        each_index<kKeys>([&](auto i) LOWBIT_INLINE {
          constexpr uint32_t at = i * kPackedRows + r;
          sums[at] = Products::add(sums[at], query, own[i]);
        });
      });
      q += kPackedRows * kLanes;
      k += kLanes;
    };
    uint32_t vector = 0;
    for (; vector + 4 <= block.key_vectors; vector += 4)
      each_index<4>([&](auto) LOWBIT_INLINE { add_column(); });
    for (; vector < block.key_vectors; vector++) add_column();
    each_index<kVectors>([&](auto i) LOWBIT_INLINE {
      auto score = Products::totals(sums + i * kLanes);
      float* at = scores + key * kPackedRows + i * kLanes;
      if constexpr (CacheBlock<Element>::kIsScaled) {
        auto scales = Isa::load(block.key_scales + key * kPackedRows + i * kLanes);
        if constexpr (PackedBlock<Isa, Element>::kIsWords) scales = scales * Isa::load(queries.factors);
        score = score * scales;
      }
      Isa::store(at, score);
    });
  }
}

template <class Isa, class Element>
void weigh_packed(QueryVector<Isa>& queries, const PackedBlock<Isa, Element>& block, uint32_t start, KeyRange keys,
                  float softcap, float* scores) {
  if constexpr (CacheBlock<Element>::kIsScaled) {
    const float* scales = block.value_scales;
    weigh_scores<Isa, kPackedRows>(queries, start, keys, softcap, scores,
                                   [scales](uint32_t i) LOWBIT_INLINE { return Isa::load(scales + i * Isa::kLanes); });
  } else {
    weigh_scores<Isa, kPackedRows>(queries, start, keys, softcap, scores, NoScales{});
  }
}

// What add_packed adds: the weighted values of `keys`, to a chunk's sums, which are `apart` floats from one query to
// the next.
struct PackedSums {
  KeyRange keys;
  // [key][kPackedRows], from some query on.
  const float* weights;
  float *sums, *results;
  size_t apart;
  // Factors of the sums so far; null where sums begin at 0.
  const float* shrink;
  // At a chunk's end: results = results * factor + sums * chunk_factor. Null before.
  const float *factor, *chunk_factor;
};

// Adds `Columns` vectors of columns for `Rows` queries. `values` points at the vectors of value 0.
template <class Isa, int Rows, int Columns>
LOWBIT_APART void add_packed(const float* values, const PackedSums& to, size_t column) {
  using V = typename Isa::V;
  constexpr uint32_t kLanes = Isa::kLanes;
  V sums[Rows][Columns];
  each_index<Rows>([&](auto r) LOWBIT_INLINE {
    each_index<Columns>([&](auto c) LOWBIT_INLINE { sums[r][c] = Isa::set(0); });
  });
  if (to.shrink)
    each_index<Rows>([&](auto r) LOWBIT_INLINE {
      const V shrink = Isa::set(to.shrink[r]);
      const float* from = to.sums + r * to.apart + column;
      each_index<Columns>([&](auto c) LOWBIT_INLINE { sums[r][c] = Isa::load(from + c * kLanes) * shrink; });
    });
  const float* weights = to.weights + to.keys.first * kPackedRows;
  values += to.keys.first * Columns * kLanes;
  auto add_key = [&](auto i) LOWBIT_INLINE {
    V all[Columns];
    each_index<Columns>(
        [&](auto c) LOWBIT_INLINE { all[c] = Isa::load(values + (i * Columns + c) * kLanes); });
    each_index<Rows>([&](auto r) LOWBIT_INLINE {
      const V weight = Isa::set(weights[i * kPackedRows + r]);
      each_index<Columns>(
          [&](auto c) LOWBIT_INLINE { sums[r][c] = Isa::multiply_add(weight, all[c], sums[r][c]); });
    });
  };
  uint32_t key = to.keys.first;
  for (; key + 4 <= to.keys.last; key += 4, values += 4 * Columns * kLanes, weights += 4 * kPackedRows)
    each_index<4>([&](auto i) LOWBIT_INLINE { add_key(i); });
  for (; key < to.keys.last; key++, values += Columns * kLanes, weights += kPackedRows)
    add_key(std::integral_constant<int, 0>{});
  if (!to.factor) {
    each_index<Rows>([&](auto r) LOWBIT_INLINE {
      float* target = to.sums + r * to.apart + column;
      each_index<Columns>([&](auto c) LOWBIT_INLINE { Isa::store(target + c * kLanes, sums[r][c]); });
    });
    return;
  }
  each_index<Rows>([&](auto r) LOWBIT_INLINE {
    const V factor = Isa::set(to.factor[r]), chunk_factor = Isa::set(to.chunk_factor[r]);
    float* target = to.results + r * to.apart + column;
    each_index<Columns>([&](auto c) LOWBIT_INLINE {
      const V chunk = sums[r][c] * chunk_factor;
      Isa::store(target + c * kLanes, Isa::multiply_add(Isa::load(target + c * kLanes), factor, chunk));
    });
  });
}

// Adds the group of vectors from `vector` on, or one vector outside groups. Returns the number of vectors.
template <class Isa, int Rows, class Element>
uint32_t add_vectors(const PackedBlock<Isa, Element>& block, uint32_t vector, const PackedSums& to) {
  if (vector < block.grouped) {
    add_packed<Isa, Rows, Isa::kColumns>(block.value(vector), to, vector * Isa::kLanes);
    return Isa::kColumns;
  }
  add_packed<Isa, Rows, 1>(block.value(vector), to, vector * Isa::kLanes);
  return 1;
}

}  // namespace lowbit
