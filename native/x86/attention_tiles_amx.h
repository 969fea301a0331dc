// Queries, keys and values as bf16 tiles, and the scratch that holds them. A factor has `Parts` bf16 parts: one, the
// rounded value, or two as in split_bf16.h. attention_amx.cc has the algorithm. Flags: see scripts/native/build.js.
#pragma once

#include "../families/attention/rope_attention.h"
#include "../kernel.h"
#include "floats_avx512.h"
#include "split_bf16.h"
#include "tiles_amx.h"

namespace lowbit {
namespace {

// Queries of a product: two tiles.
constexpr uint32_t kPair = 32;
constexpr uint32_t kTileFloats = kTileBytes / 4;
// Bytes of keys and values that are converted to tiles at a time: a quarter of the second-level cache.
constexpr size_t kBlocksBytes = 524288;
// The most blocks that this holds: with heads of up to 32 columns.
constexpr uint32_t kBlocksMost = kBlocksBytes / (8 * kTileBytes);

// Bytes of a tile with its parts, which follow each other.
template <int Parts>
constexpr size_t kPartBytes = Parts * static_cast<size_t>(kTileBytes);

// Scratch of a thread. A tile is 16 rows of 64 bytes; a row of a head takes `steps` tiles of 32 columns.
struct Workspace {
  // Of several blocks.
  uint8_t* keys;     // [keys / 16][steps][parts]
  uint8_t* values;   // transposed: [columns / 16][keys / 32][parts]
  float* scores;     // of a pair of query tiles: [2][64 keys][16 queries]
  uint8_t* weights;  // of a pair: [2][keys / 32][parts], pairs of keys
  float* products;   // of a pair's weights and values, as its sums
  // Per 16 queries.
  uint8_t* queries;  // [steps][parts], pairs of columns
  float* sums;       // of pairs: [steps][2][32 columns][16 queries]
  float* largest;
  float* totals;
  int32_t* first;
  int32_t* last;
};

struct Sizes {
  // Most blocks of keys and values that are tiles at a time.
  uint32_t blocks;
  uint32_t steps, columns, query_tiles;
  size_t keys, values, scores, weights, products, queries, sums;

  Sizes(uint32_t dim, uint32_t rows, uint32_t parts) {
    steps = ceil_div(dim, 32);
    columns = 32 * steps;
    query_tiles = 2 * ceil_div(rows, kPair);
    queries = static_cast<size_t>(parts) * steps * kTileBytes;
    keys = values = 4 * queries;
    blocks = static_cast<uint32_t>(std::max<size_t>(1, kBlocksBytes / (keys + values)));
    scores = 2 * 4 * kTileBytes;
    weights = 2 * 2 * parts * kTileBytes;
    sums = 2 * static_cast<size_t>(steps) * kTileBytes;
    products = 2 * sums;
  }
  size_t bytes() const {
    return 64 + blocks * (keys + values) + scores + weights + products + query_tiles * (queries + sums + 4 * 64);
  }
};

Workspace workspace_at(uint8_t* at, const Sizes& sizes) {
  at += -reinterpret_cast<uintptr_t>(at) & 63;
  auto take = [&](size_t bytes) {
    uint8_t* start = at;
    at += bytes;
    return start;
  };
  Workspace w;
  w.keys = take(sizes.blocks * sizes.keys);
  w.values = take(sizes.blocks * sizes.values);
  w.scores = reinterpret_cast<float*>(take(sizes.scores));
  w.weights = take(sizes.weights);
  w.products = reinterpret_cast<float*>(take(sizes.products));
  w.queries = take(sizes.query_tiles * sizes.queries);
  w.sums = reinterpret_cast<float*>(take(sizes.query_tiles * sizes.sums));
  w.largest = reinterpret_cast<float*>(take(sizes.query_tiles * 64));
  w.totals = reinterpret_cast<float*>(take(sizes.query_tiles * 64));
  w.first = reinterpret_cast<int32_t*>(take(sizes.query_tiles * 64));
  w.last = reinterpret_cast<int32_t*>(take(sizes.query_tiles * 64));
  return w;
}

inline __m512 load_lanes(const float* p, uint32_t lanes) { return FloatsAvx512::load_some(p, lanes); }
inline __m512 load_lanes(const uint16_t* p, uint32_t lanes) { return FloatsAvx512::load_some_halves(p, lanes); }

inline __m512 load_lanes(const int8_t* p, uint32_t lanes) {
  const __mmask16 mask = FloatsAvx512::first(lanes);
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(mask, p)));
}

// 16 values of a row from column d on, 0 past its end.
template <class Element>
inline __m512 load_columns(const Element* row, uint32_t d, uint32_t dim) {
  return d < dim ? load_lanes(row + d, std::min(16u, dim - d)) : _mm512_setzero_ps();
}

// 32 values in parts of 32 bf16 each.
template <int Parts>
struct PartVector {
  __m512i parts[Parts];

  inline LOWBIT_INLINE void store(uint8_t* tile) const {
    for (int part = 0; part < Parts; part++) _mm512_store_si512(tile + part * kTileBytes, parts[part]);
  }
};

// The values of a, then those of b.
template <int Parts>
inline LOWBIT_INLINE PartVector<Parts> row_parts(__m512 a, __m512 b) {
  if constexpr (Parts == 1) {
    return {{reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(b, a))}};
  } else {
    const SplitVector split = split_row(a, b);
    return {{split.high, split.low}};
  }
}

// Pairs in each lane: the value of a in the low half, that of b in the high half.
template <int Parts>
inline LOWBIT_INLINE PartVector<Parts> pair_parts(__m512 a, __m512 b) {
  if constexpr (Parts == 1) {
    return {{rounded_pairs(a, b)}};
  } else {
    const SplitVector split = split_pairs(a, b);
    return {{split.high, split.low}};
  }
}

// Transposes 16 rows of 16 pairs into a tile.
template <int Parts>
void store_transposed(const PartVector<Parts>* rows, uint8_t* tile) {
  for (int part = 0; part < Parts; part++, tile += kTileBytes) {
    __m512i columns[16];
    for (int r = 0; r < 16; r++) columns[r] = rows[r].parts[part];
    transpose16(columns);
    for (int r = 0; r < 16; r++) _mm512_store_si512(tile + 64 * r, columns[r]);
  }
}

// Finds values that are not finite: 0 times such a value is NaN.
struct Finiteness {
  __m512 zeros[2] = {};

  inline LOWBIT_INLINE void add(__m512 a, __m512 b) {
    zeros[0] = _mm512_fmadd_ps(a, _mm512_setzero_ps(), zeros[0]);
    zeros[1] = _mm512_fmadd_ps(b, _mm512_setzero_ps(), zeros[1]);
  }
  bool all() const { return _mm512_cmp_ps_mask(zeros[0], zeros[1], _CMP_UNORD_Q) == 0; }
};

// Converts 16 scaled queries to tiles of pairs of columns. Returns false where one is infinite or NaN.
template <int Parts>
bool convert_queries(const float* const* rows, uint32_t dim, uint32_t steps, float scale, uint8_t* target) {
  const __m512 factor = _mm512_set1_ps(scale);
  Finiteness finite;
  for (uint32_t step = 0; step < steps; step++, target += kPartBytes<Parts>) {
    PartVector<Parts> vectors[16];
    for (int r = 0; r < 16; r++) {
      __m512 a = _mm512_setzero_ps(), b = a;
      if (rows[r]) {
        a = _mm512_mul_ps(load_columns(rows[r], 32 * step, dim), factor);
        b = _mm512_mul_ps(load_columns(rows[r], 32 * step + 16, dim), factor);
      }
      finite.add(a, b);
      vectors[r] = row_parts<Parts>(a, b);
    }
    store_transposed<Parts>(vectors, target);
  }
  return finite.all();
}

// load_columns of a row of keys or values, times its scale where elements are int8.
template <class Element>
inline __m512 load_scaled(const Element* row, const float* scales, uint32_t d, uint32_t dim) {
  const __m512 values = load_columns(row, d, dim);
  if constexpr (!std::is_same_v<Element, int8_t>) return values;
  return _mm512_mul_ps(values, _mm512_set1_ps(scales[0]));
}

template <class Element>
inline __m512 load_key(const CacheBlock<Element>& block, uint32_t key, uint32_t d) {
  return load_scaled(block.keys[key], CacheBlock<Element>::kIsScaled ? block.key_scales[key] : nullptr, d, block.dim);
}

template <class Element>
inline __m512 load_value(const CacheBlock<Element>& block, uint32_t key, uint32_t d) {
  return load_scaled(block.values[key], CacheBlock<Element>::kIsScaled ? block.value_scales[key] : nullptr, d,
                     block.dim);
}

// Converts keys to tiles of 16 keys by 32 columns, zeros past the block's last key. Prefetches the next block's rows,
// if any. Returns false where a key is infinite or NaN.
template <int Parts, class Element>
bool convert_keys(const CacheBlock<Element>& block, uint32_t steps, uint8_t* target) {
  Finiteness finite;
  for (uint32_t key = 0; key < round_up(block.last, 32); key++) {
    uint8_t* tile = target + (key / 16) * steps * kPartBytes<Parts> + 64 * (key % 16);
    if (block.next) {
      fetch_row(block.next->keys[key], block.dim);
      fetch_row(block.next->values[key], block.dim);
    }
    for (uint32_t step = 0; step < steps; step++, tile += kPartBytes<Parts>) {
      PartVector<Parts> parts{};
      if (key < block.last) {
        const __m512 a = load_key(block, key, 32 * step), b = load_key(block, key, 32 * step + 16);
        finite.add(a, b);
        parts = row_parts<Parts>(a, b);
      }
      parts.store(tile);
    }
  }
  return finite.all();
}

// Converts values to tiles of 16 columns by 32 keys. Returns false where one is infinite or NaN: a weight of 0 would
// not hide it.
template <int Parts, class Element>
bool convert_values(const CacheBlock<Element>& block, uint32_t steps, uint8_t* target) {
  Finiteness finite;
  for (uint32_t d = 0; d < 32 * steps; d += 16, target += 2 * kPartBytes<Parts>) {
    for (uint32_t half = 0; half < ceil_div(block.last, 32); half++) {
      auto value = [&](uint32_t key) { return key < block.last ? load_value(block, key, d) : _mm512_setzero_ps(); };
      PartVector<Parts> rows[16];
      for (uint32_t r = 0; r < 16; r++) {
        const __m512 a = value(32 * half + 2 * r), b = value(32 * half + 2 * r + 1);
        finite.add(a, b);
        rows[r] = pair_parts<Parts>(a, b);
      }
      store_transposed<Parts>(rows, target + half * kPartBytes<Parts>);
    }
  }
  return finite.all();
}

}  // namespace
}  // namespace lowbit
