// Queries, keys and values as 16-bit words, and their products with exact 32-bit sums: rows of pairs of words times
// panels of columns. `Isa` supplies vectors of floats and of words (x86/words_avx2.h, x86/words_avx512.h).
#pragma once

#include <cmath>

#include "attention_softmax.h"

namespace lowbit {

// Length (L2 norm) of queries and keys in words: no word is larger, and no product q . key exceeds 31 bits.
constexpr float kWordLength = 32767;
// The largest weight of a query in a block, and the largest value, in words.
constexpr int32_t kWordWeight = 8191, kWordValue = 4095;
static_assert(static_cast<int64_t>(kBlockKeys) * kWordWeight * kWordValue <= INT32_MAX);
// Exponent of the least unit of values. Smaller values become 0.
constexpr int kLeastExponent = -60;

// Calls keep(r, c, sum) with the products of rows and columns over `pairs` pairs of words. Rows are `Apart` words from
// each other, and pairs of a row `Next` words. A panel has kWordColumns vectors a pair.
template <class Isa, uint32_t Apart, uint32_t Next, class Keep>
LOWBIT_APART void multiply_panel(const int16_t* rows, const int16_t* panel, uint32_t pairs, Keep keep) {
  using Words = typename Isa::Words;
  constexpr uint32_t kRows = Isa::kWordRows, kColumns = Isa::kWordColumns;
  Words sums[kRows][kColumns];
  each_index<kRows>([&](auto r) LOWBIT_INLINE {
    each_index<kColumns>([&](auto c) LOWBIT_INLINE { sums[r][c] = Isa::no_words(); });
  });
  for (uint32_t pair = 0; pair < pairs; pair++, rows += Next, panel += 2 * kColumns * Isa::kLanes) {
    Words own[kColumns];
    each_index<kColumns>([&](auto c) LOWBIT_INLINE { own[c] = Isa::load_pairs(panel + 2 * c * Isa::kLanes); });
    each_index<kRows>([&](auto r) LOWBIT_INLINE {
      const Words row = Isa::broadcast_pair(rows + r * Apart);
      each_index<kColumns>(
          [&](auto c) LOWBIT_INLINE { sums[r][c] = Isa::add_products(sums[r][c], row, own[c]); });
    });
  }
  each_index<kRows>([&](auto r) LOWBIT_INLINE {
    each_index<kColumns>([&](auto c) LOWBIT_INLINE { keep(r, c, sums[r][c]); });
  });
}

// Two words as one of 32 bits.
static inline uint32_t pair_of_words(int16_t first, int16_t second) {
  return static_cast<uint16_t>(first) | static_cast<uint32_t>(static_cast<uint16_t>(second)) << 16;
}

// Exponent of the power of two above a non-negative number; -126 for 0 and subnormal numbers.
static inline int exponent_above(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return static_cast<int>(bits >> 23) - 126;
}
// 2^n for n in -126 .. 127.
static inline float power_of_two(int n) {
  const uint32_t bits = static_cast<uint32_t>(n + 127) << 23;
  float power;
  memcpy(&power, &bits, 4);
  return power;
}

// Converts a head's row to words. Scratch: its floats, padded with zeros to whole vectors of words, and the words.
template <class Isa>
struct WordRow {
  static size_t padded(uint32_t dim) { return round_up(dim, 2 * Isa::kLanes); }

  uint32_t dim;
  float* floats;
  int16_t* words;

  // Loads a row times a scale and calls each(value). Returns 0 where all of it is finite, else NaN.
  template <class Element, class Each>
  float load(const Element* row, float scale, Each&& each) const {
    const auto factor = Isa::set(scale);
    auto odd = Isa::set(0);
    each_vector<Isa>(dim, [&](size_t d, auto vector) {
      const auto value = vector.load(row + d) * factor;
      odd = Isa::multiply_add(value, Isa::set(0), odd);
      each(value);
      Isa::store(floats + d, value);
    });
    return Isa::sum(odd);
  }
  // Rounds floats times a factor to words.
  void round(float factor) const {
    const auto times = Isa::set(factor);
    for (uint32_t d = 0; d < dim; d += 2 * Isa::kLanes) {
      const auto second = d + Isa::kLanes < dim ? Isa::load(floats + d + Isa::kLanes) : Isa::set(0);
      Isa::store_words(words + d, Isa::load(floats + d) * times, second * times);
    }
  }
  // Rounds a row times a scale to words of length kWordLength. Returns what 1 in words stands for, or NaN where a
  // number is not finite.
  template <class Element>
  float round_to_length(const Element* row, float scale) const {
    auto squares = Isa::set(0);
    const float odd = load(row, scale, [&](auto value) { squares = Isa::multiply_add(value, value, squares); });
    const float length = std::sqrt(Isa::sum(squares));
    if (!(length >= 1e-30f)) {
      round(0);
      return odd;
    }
    round(kWordLength / length);
    return length / kWordLength + odd;
  }
  // Rounds a row times a scale to words of at most kWordValue, in units of 2^exponent. Returns 0, or NaN where a number
  // is not finite.
  template <class Element>
  float round_to_power(const Element* row, float scale, int& exponent) const {
    auto most = Isa::set(0);
    const float odd =
        load(row, scale, [&](auto value) { most = Isa::max(Isa::max(value, Isa::set(0) - value), most); });
    exponent = std::min(std::max(exponent_above(Isa::largest(most) / kWordValue), kLeastExponent), 126);
    round(power_of_two(-exponent));
    return odd;
  }
};

// A block's keys and values as words.
template <class Isa>
struct WordBlock {
  static constexpr uint32_t kLanes = Isa::kLanes;
  // Columns of a panel: keys, or columns of values.
  static constexpr uint32_t kColumns = Isa::kWordColumns * kLanes;
  static constexpr uint32_t kKeyPanels = kBlockKeys / kColumns, kKeyPairs = kBlockKeys / 2;
  static_assert(kColumns == 2 * kLanes && kBlockKeys % kColumns == 0);

  uint32_t dim, pairs, panels;
  // keys [kKeyPanels][pairs][kColumns][2]; values [panels][kKeyPairs][kColumns][2], pairs of keys in the order of the
  // weights.
  int16_t *keys, *values;
  // For each key: the unit of its words; and the unit of its value, a power of two, as base-2 logarithm and inverse.
  float *key_units, *value_logs, *value_inverses;
  // Scratch for two rows.
  WordRow<Isa> rows[2];

  static uint32_t pairs_of(uint32_t dim) { return ceil_div(dim, 2); }
  static uint32_t panels_of(uint32_t dim) { return ceil_div(dim, kColumns); }
  static size_t padded(uint32_t dim) { return std::max(WordRow<Isa>::padded(dim), size_t{panels_of(dim)} * kColumns); }
  static size_t floats(uint32_t dim) {
    return kBlockKeys * (pairs_of(dim) + panels_of(dim) * kColumns / 2 + 3) + 3 * padded(dim);
  }

  WordBlock(uint32_t dim, float* at) : dim(dim), pairs(pairs_of(dim)), panels(panels_of(dim)) {
    const auto take = [&](size_t count) {
      float* start = at;
      at += count;
      return start;
    };
    keys = reinterpret_cast<int16_t*>(take(size_t{kBlockKeys} * pairs));
    values = reinterpret_cast<int16_t*>(take(size_t{kKeyPairs} * panels * kColumns));
    key_units = take(kBlockKeys);
    value_logs = take(kBlockKeys);
    value_inverses = take(kBlockKeys);
    for (WordRow<Isa>& row : rows) {
      row = {dim, take(padded(dim)), reinterpret_cast<int16_t*>(take(padded(dim) / 2))};
      std::fill_n(row.words, padded(dim), int16_t{0});
    }
  }

  const int16_t* key_panel(uint32_t panel) const { return keys + size_t{2} * panel * pairs * kColumns; }
  // The words of pair `pair` of keys in a panel of values.
  const int16_t* value_panel(uint32_t panel, uint32_t pair) const {
    return values + size_t{2} * (panel * kKeyPairs + pair) * kColumns;
  }

  // Converts a block to words and prefetches the next one's rows, if there is one. Returns false where a key or value
  // is not finite.
  template <class Element>
  bool pack(const CacheBlock<Element>& block) {
    float odd = 0;
    if (block.next) fetch_scales(*block.next);
    for (uint32_t key = 0; key < kBlockKeys; key += 2) {
      for (uint32_t i = 0; i < 2 && block.next; i++) {
        fetch_row(block.next->keys[key + i], dim);
        fetch_row(block.next->values[key + i], dim);
      }
      odd += pack_key(block, key) + pack_key(block, key + 1);
      odd += round_value(block, key, rows[0]) + round_value(block, key + 1, rows[1]);
      store_values(key / 2);
    }
    return odd == 0;
  }

 private:
  template <class Element>
  float pack_key(const CacheBlock<Element>& block, uint32_t key) {
    const WordRow<Isa>& row = rows[0];
    if constexpr (CacheBlock<Element>::kIsScaled) {
      row.load(block.keys[key], 1, [](auto) {});
      row.round(1);
      key_units[key] = block.key_scales[key][0];
    } else {
      key_units[key] = row.round_to_length(block.keys[key], 1);
    }
    char* to = reinterpret_cast<char*>(keys + size_t{2} * (key / kColumns * pairs * kColumns + key % kColumns));
    for (uint32_t pair = 0; pair < pairs; pair++) memcpy(to + 4 * pair * kColumns, row.words + 2 * pair, 4);
    return 0 * key_units[key];
  }

  template <class Element>
  float round_value(const CacheBlock<Element>& block, uint32_t key, const WordRow<Isa>& row) {
    float scale = 1;
    if constexpr (CacheBlock<Element>::kIsScaled) scale = block.value_scales[key][0];
    int exponent;
    const float odd = row.round_to_power(block.values[key], scale, exponent);
    value_logs[key] = static_cast<float>(exponent);
    value_inverses[key] = power_of_two(-exponent);
    return odd;
  }

  void store_values(uint32_t pair) {
    const int16_t *first = rows[0].words, *second = rows[1].words;
    for (uint32_t panel = 0; panel < panels; panel++, first += kColumns, second += kColumns) {
      uint32_t all[kColumns];
      for (uint32_t i = 0; i < kColumns; i++) all[i] = pair_of_words(first[i], second[i]);
      memcpy(values + size_t{2} * (panel * kKeyPairs + place_of_pair(pair)) * kColumns, all, sizeof all);
    }
  }

  // Where store_weights puts a pair of keys: 128-bit parts of its two vectors take turns.
  static constexpr uint32_t place_of_pair(uint32_t pair) {
    const uint32_t own = pair % kLanes, vector = own / (kLanes / 2), i = own % (kLanes / 2);
    return pair - own + i / 2 * 4 + vector * 2 + i % 2;
  }
};

}  // namespace lowbit
