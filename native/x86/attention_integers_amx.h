// Attention over caches of integers on AMX: products of int8 tiles, exact in 32 bits. Keys are multiplied where they
// are in the cache, and values with four keys side by side. Queries become integers of three bytes and weights of two:
// results are as exact as 16 bits of the largest weighted scale of a block of keys.
#pragma once

#include "../families/attention/attention_few_rows.h"
#include "floats_avx512.h"
#include "split_bf16.h"
#include "tiles_amx.h"

namespace lowbit {
namespace {

// Queries of a vector: of a tile, half of the columns or rows are one byte of each.
constexpr uint32_t kByteQueries = 8;
// Keys of a tile of scores, and such tiles of a block.
constexpr uint32_t kTileKeys = 16, kKeyTiles = kBlockKeys / kTileKeys;
static_assert(kKeyTiles == 4);
constexpr uint32_t kTileInts = kTileBytes / 4;
// From products with the high bytes of queries to those with the low ones.
constexpr uint32_t kLowProducts = kKeyTiles * kTileInts;
// The largest query: its highest byte is at most 127 however the others round.
constexpr float kQueryMost = 127 * 65536 - 32896;
// The largest weight: its high byte is at most 127 when the low one is within -128 .. 127.
constexpr float kWeightMost = 127 * 256 + 127;
// Weights are zeros where they are smaller: their inverse would not be finite.
constexpr float kWeightLeast = 1e-34f;

// Parts of one thread's scratch behind those of FewRowsPart, in bytes. `steps` of 64 columns make a row of a head.
struct IntegersScratch {
  uint32_t steps;
  FewRowsScratch<FloatsAvx512> few;
  // Of each vector: two tiles [steps][16 rows of 4 columns], of the two high bytes of queries and of the low one, and
  // [8 queries][64 * steps columns] of sums.
  size_t queries, sums;
  // [2][high, low][64 keys][16 queries' bytes], [16 queries' bytes][64 keys], [steps][4][16 rows of 4 keys][16
  // columns], and copies of the keys of a block: [64][64 * steps].
  size_t scores, weights, values, keys, bytes;

  IntegersScratch(uint32_t head_dim, uint32_t heads, uint32_t queries_of_head)
      : steps(ceil_div(head_dim, 64)),
        few(head_dim, heads, {kByteQueries, ceil_div(queries_of_head, kByteQueries)}) {
    const size_t vectors = static_cast<size_t>(heads) * few.shape.vectors;
    queries = round_up(4 * few.floats, 64);
    sums = queries + vectors * query_bytes();
    scores = sums + vectors * sum_floats() * 4;
    weights = scores + 4 * kKeyTiles * kTileBytes;
    values = weights + kTileBytes;
    keys = values + 4 * steps * kTileBytes;
    bytes = keys + kBlockKeys * row_bytes() + 64;
  }

  size_t query_bytes() const { return 2 * static_cast<size_t>(steps) * kTileBytes; }
  size_t row_bytes() const { return 64 * static_cast<size_t>(steps); }
  size_t sum_floats() const { return kByteQueries * row_bytes(); }
};

// A vector's lanes: those of key `a`, then those of key `b`.
inline LOWBIT_INLINE __m512 lanes_of_two(const float* a, const float* b) {
  return _mm512_mask_broadcastss_ps(_mm512_set1_ps(*a), 0xff00, _mm_load_ss(b));
}

// Sums of two keys and a vector's queries: their two high bytes are from `high` on, their low ones from `low` on.
inline LOWBIT_INLINE __m512 join_bytes(const int32_t* high, const int32_t* low) {
  const __m512i a = _mm512_load_si512(high), b = _mm512_load_si512(high + 16);
  const __m512i first = _mm512_shuffle_i64x2(a, b, 0x44), second = _mm512_shuffle_i64x2(a, b, 0xee);
  const __m512i third =
      _mm512_inserti64x4(_mm512_load_si512(low), _mm256_load_si256(reinterpret_cast<const __m256i*>(low + 16)), 1);
  const __m512i words = _mm512_add_epi32(_mm512_slli_epi32(first, 8), second);
  return _mm512_fmadd_ps(_mm512_cvtepi32_ps(words), _mm512_set1_ps(256), _mm512_cvtepi32_ps(third));
}

// Queries to tiles of bytes. `factors` are what one counts: NaN for a query with an infinite value or NaN.
inline void bytes_of_queries(QueryVector<FloatsAvx512>& v, uint32_t dim, uint32_t steps, uint8_t* tiles) {
  memset(tiles, 0, 2 * static_cast<size_t>(steps) * kTileBytes);
  // Sums of `dim` products of two bytes with int8 fit 32 bits.
  const float most = std::min(kQueryMost, 256 * (16777215.0f / static_cast<float>(dim) - 2));
  for (uint32_t row = 0; row < kByteQueries; row++) {
    auto columns = [&](uint32_t d) { return _mm512_loadu_ps(v.q + d * kByteQueries + row * 16); };
    Magnitude<FloatsAvx512> magnitude;
    for (uint32_t d = 0; d < dim; d += 16) magnitude.add(columns(d));
    const float largest = std::max(magnitude.largest(), 1e-30f);
    v.factors[row] = v.factors[row + kByteQueries] = largest / most + magnitude.unless_finite();
    const __m512 inverse = _mm512_set1_ps(most / largest);
    const __m512i half = _mm512_set1_epi32(128);
    for (uint32_t d = 0; d < dim; d += 16) {
      const __m512i low = _mm512_cvtps_epi32(_mm512_mul_ps(columns(d), inverse));
      const __m512i middle = _mm512_srai_epi32(_mm512_add_epi32(low, half), 8);
      const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(middle, half), 8);
      uint8_t* tile = tiles + d / 64 * 2 * kTileBytes + d % 64 / 4 * 64 + 4 * row;
      auto put = [](uint8_t* target, __m512i words) {
        int8_t bytes[16];
        _mm_storeu_si128(reinterpret_cast<__m128i*>(bytes), _mm512_cvtepi32_epi8(words));
        for (uint32_t i = 0; i < 4; i++) memcpy(target + 64 * i, bytes + 4 * i, 4);
      };
      put(tile, high);
      put(tile + 4 * kByteQueries, middle);
      put(tile + kTileBytes, low);
    }
  }
}

// Has the next block, if there is one, be fetched from memory while other work is done.
class BlockFetch {
 public:
  // `columns` of all rows during so many steps.
  BlockFetch(const CacheBlock<int8_t>* block, uint32_t columns, uint32_t steps)
      : block_(block),
        columns_(columns),
        rows_(block != nullptr, steps) {}

  inline LOWBIT_INLINE void step() {
    rows_.step([&](uint32_t row) LOWBIT_INLINE {
      fetch_row(block_->keys[row], columns_);
      fetch_row(block_->values[row], columns_);
    });
  }

 private:
  const CacheBlock<int8_t>* block_;
  uint32_t columns_;
  EvenRows rows_;
};

// Weights [key][8 queries], times scales of values, to rows of bytes [query][key], high ones and then low ones. What
// one counts goes to `units`: NaN where a weight is.
inline void bytes_of_weights(const float* weights, uint8_t* target, float* units) {
  constexpr uint32_t kVectors = kBlockKeys * kByteQueries / 16;
  __m512 most[4], odd = _mm512_setzero_ps();
  for (auto& m : most) m = _mm512_setzero_ps();
  for (uint32_t i = 0; i < kVectors; i += 4)
    each_index<4>([&](auto c) LOWBIT_INLINE {
      const __m512 weight = _mm512_loadu_ps(weights + 16 * (i + c));
      most[c] = _mm512_max_ps(_mm512_abs_ps(weight), most[c]);
      odd = _mm512_fmadd_ps(weight, _mm512_setzero_ps(), odd);
    });
  __m512 largest = _mm512_max_ps(_mm512_max_ps(most[0], most[1]), _mm512_max_ps(most[2], most[3]));
  largest = _mm512_max_ps(largest, FloatsAvx512::rotate<kByteQueries>(largest));
  odd = _mm512_add_ps(odd, FloatsAvx512::rotate<kByteQueries>(odd));
  const __m512 least = _mm512_set1_ps(kWeightLeast);
  const __mmask16 counts = _mm512_cmp_ps_mask(largest, least, _CMP_GE_OQ);
  const __m512 inverse = _mm512_maskz_div_ps(counts, _mm512_set1_ps(kWeightMost), largest);
  _mm512_storeu_ps(units, _mm512_add_ps(_mm512_div_ps(largest, _mm512_set1_ps(kWeightMost)), odd));
  const __m512i low_words = _mm512_set1_epi32(0xffff), half = _mm512_set1_epi16(128),
                low_bytes = _mm512_set1_epi16(0xff);

  __m512i fours[16];
  each_index<16>([&](auto i) LOWBIT_INLINE {
    auto whole = [&](uint32_t at) LOWBIT_INLINE {
      return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(weights + 16 * at), inverse));
    };
    // Words of keys 0 and 2, then of keys 1 and 3.
    const __m512i a = whole(2 * i), b = _mm512_slli_epi32(whole(2 * i + 1), 16);
    const __m512i words = _mm512_or_si512(_mm512_and_si512(a, low_words), b);
    const __m512i low = _mm512_and_si512(words, low_bytes);
    const __m512i high = _mm512_srli_epi16(_mm512_add_epi16(words, half), 8);
    const __m512i even = _mm512_inserti64x4(high, _mm512_castsi512_si256(low), 1);
    const __m512i uneven = _mm512_shuffle_i64x2(high, low, 0xee);
    fours[i] = _mm512_or_si512(even, _mm512_slli_epi32(uneven, 8));
  });
  transpose16(fours);
  for (uint32_t i = 0; i < 16; i++) _mm512_store_si512(target + 64 * i, fours[i]);
}

// 64 columns of a block's values from column `at` of a row on, `count` of which are there: tile i has columns
// 16 L + 4 i .. + 3, L in 0 .. 3, in rows of four keys.
inline void interleave_values(const CacheBlock<int8_t>& block, size_t at, uint32_t count, uint8_t* target) {
  const __mmask64 mask = count >= 64 ? ~0ull : (1ull << count) - 1;
  for (uint32_t key = 0; key < kBlockKeys; key += 4, target += 64) {
    auto row = [&](uint32_t i) { return _mm512_maskz_loadu_epi8(mask, block.values[key + i] + at); };
    const __m512i a = row(0), b = row(1), c = row(2), d = row(3);
    const __m512i ab = _mm512_unpacklo_epi8(a, b), cd = _mm512_unpacklo_epi8(c, d);
    const __m512i ab_high = _mm512_unpackhi_epi8(a, b), cd_high = _mm512_unpackhi_epi8(c, d);
    _mm512_store_si512(target, _mm512_unpacklo_epi16(ab, cd));
    _mm512_store_si512(target + kTileBytes, _mm512_unpackhi_epi16(ab, cd));
    _mm512_store_si512(target + 2 * kTileBytes, _mm512_unpacklo_epi16(ab_high, cd_high));
    _mm512_store_si512(target + 3 * kTileBytes, _mm512_unpackhi_epi16(ab_high, cd_high));
  }
}

// Columns in the order of interleave_values to their own.
inline void order_columns(const float* sums, uint32_t dim, float* target) {
  for (uint32_t d = 0; d < dim; d += 4) {
    const float* from = sums + d / 64 * 64 + d % 16 / 4 * 16 + d % 64 / 16 * 4;
    memcpy(target + d, from, 4 * std::min(4u, dim - d));
  }
}

class IntegersPart : FewRowsPart<FloatsAvx512, int8_t> {
  using Rows = FewRowsPart<FloatsAvx512, int8_t>;
  using Vector = QueryVector<FloatsAvx512>;
  using Block = CacheBlock<int8_t>;

 public:
  IntegersPart(const AttentionPart<FloatsAvx512, int8_t>& part, float* scratch)
      : IntegersPart(part, reinterpret_cast<uint8_t*>(round_up(reinterpret_cast<uintptr_t>(scratch), 64)),
                     IntegersScratch(part.head_dim(), part.heads(), part.queries())) {}

  void attend() {
    if (this->is_empty()) return;
    const TileScope tiles;
    this->attend_chunks([this](const Block& block, bool begins, bool ends) {
      if (begins) memset(sums_of(0), 0, 4 * this->count_ * at_.sum_floats());
      attend_block(block);
      if (ends) order_sums();
    });
  }

 private:
  IntegersPart(const AttentionPart<FloatsAvx512, int8_t>& part, uint8_t* scratch, const IntegersScratch& at)
      : Rows(part, reinterpret_cast<float*>(scratch), at.few),
        at_(at),
        scratch_(scratch),
        in_tiles_(this->args_.head_dim % 64 == 0 &&
                  (!this->args_.pages || (1u << this->args_.page_shift) >= kTileKeys)) {
    for (uint32_t i = 0; i < this->count_; i++)
      bytes_of_queries(this->vectors_[i], this->args_.head_dim, at_.steps, queries_of(i));
  }

  uint8_t* queries_of(uint32_t i) const { return scratch_ + at_.queries + i * at_.query_bytes(); }
  float* sums_of(uint32_t i) const { return reinterpret_cast<float*>(scratch_ + at_.sums) + i * at_.sum_floats(); }
  int32_t* products(uint32_t i) const {
    return reinterpret_cast<int32_t*>(scratch_ + at_.scores + i % 2 * 2 * kKeyTiles * kTileBytes);
  }
  // First column of a vector's head in the rows of a block.
  size_t column_of(const Block& block, uint32_t i) const {
    return static_cast<size_t>(this->vectors_[i].kv - block.kv) * this->args_.head_dim;
  }

  // A vector's scores with the next vector's products of keys in between: what is stored has then reached the cache
  // when tiles load it, and the other way around.
  void attend_block(const Block& block) const {
    if (block.next) fetch_scales(*block.next);
    BlockFetch fetch(block.next, this->heads() * this->args_.head_dim, this->count_ * kBlockKeys / 2);
    multiply_keys(block, 0);
    for (uint32_t i = 0; i < this->count_; i++) {
      float units[16];
      soften(block, i, fetch, units);
      if (i + 1 < this->count_) multiply_keys(block, i + 1);
      if (i % this->vectors_per_head_ == 0)
        for (uint32_t step = 0; step < at_.steps; step++)
          interleave_values(block, column_of(block, i) + 64 * step, this->args_.head_dim - 64 * step,
                            scratch_ + at_.values + 4 * step * kTileBytes);
      for (uint32_t step = 0; step < at_.steps; step++) add_values(i, step, units);
    }
  }

  // products(i) = queries' bytes . keys of the block.
  void multiply_keys(const Block& block, uint32_t i) const {
    const int8_t* keys[kKeyTiles];
    size_t stride = this->args_.stride();
    if (in_tiles_ && block.first == 0 && block.last == kBlockKeys) {
      for (uint32_t j = 0; j < kKeyTiles; j++) keys[j] = block.keys[kTileKeys * j] + column_of(block, i);
    } else {
      stride = at_.row_bytes();
      int8_t* copies = reinterpret_cast<int8_t*>(scratch_ + at_.keys);
      if (i % this->vectors_per_head_ == 0) copy_keys(block, column_of(block, i), copies);
      for (uint32_t j = 0; j < kKeyTiles; j++) keys[j] = copies + kTileKeys * j * stride;
    }
    tile_fence();
    for (uint32_t j = 0; j < kKeyTiles; j += 2) {
      clear_accumulators();
      for (uint32_t step = 0; step < at_.steps; step++) {
        const uint8_t* queries = queries_of(i) + step * 2 * kTileBytes;
        _tile_loadd(6, queries, 64);
        _tile_loadd(4, keys[j] + 64 * step, stride);
        _tile_dpbssd(0, 4, 6);
        _tile_loadd(7, queries + kTileBytes, 64);
        _tile_dpbssd(1, 4, 7);
        _tile_loadd(5, keys[j + 1] + 64 * step, stride);
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
      }
      int32_t* to = products(i) + kTileInts * j;
      store_accumulators(to, to + kLowProducts, to + kTileInts, to + kLowProducts + kTileInts);
    }
    tile_fence();
  }

  void copy_keys(const Block& block, size_t at, int8_t* target) const {
    const uint32_t dim = this->args_.head_dim;
    for (uint32_t key = 0; key < kBlockKeys; key++)
      for (uint32_t d = 0; d < dim; d += 64, target += 64) {
        const __mmask64 mask = dim - d >= 64 ? ~0ull : (1ull << (dim - d)) - 1;
        _mm512_store_si512(target, _mm512_maskz_loadu_epi8(mask, block.keys[key] + at + d));
      }
  }

  // Products with keys to scores to weights to bytes.
  void soften(const Block& block, uint32_t i, BlockFetch& fetch, float* units) const {
    Vector& v = this->vectors_[i];
    const uint32_t column = v.kv - block.kv;
    float* scores = this->scores_ + i * this->score_floats_;
    const int32_t* from = products(i);
    const __m512 factors = _mm512_loadu_ps(v.factors);
    for (uint32_t key = 0; key < kBlockKeys; key += 2) {
      fetch.step();
      const __m512 scales = lanes_of_two(block.key_scales[key] + column, block.key_scales[key + 1] + column);
      const __m512 score =
          _mm512_mul_ps(join_bytes(from + 16 * key, from + kLowProducts + 16 * key), _mm512_mul_ps(scales, factors));
      _mm512_storeu_ps(scores + kByteQueries * key, score);
    }
    weigh_scores<FloatsAvx512, kByteQueries>(v, block.start, {block.first, block.last}, this->args_.rule.softcap,
                                             scores, [&](uint32_t at) LOWBIT_INLINE {
                                               return lanes_of_two(block.value_scales[2 * at] + column,
                                                                   block.value_scales[2 * at + 1] + column);
                                             });
    hide_weights(block, v, scores);
    bytes_of_weights(scores, scratch_ + at_.weights, units);
  }

  // Weights of keys that a query does not see are 0, whatever the scales of their values are.
  static void hide_weights(const Block& block, const Vector& v, float* weights) {
    bool all_seen = true;
    for (uint32_t r = 0; r < kByteQueries; r++)
      all_seen = all_seen && v.first[r] <= block.start && v.last[r] >= block.start + kBlockKeys;
    if (all_seen) return;
    const __m512i first = _mm512_loadu_si512(v.first), last = _mm512_loadu_si512(v.last);
    for (uint32_t key = 0; key < kBlockKeys; key += 2) {
      const __m512i index = _mm512_mask_set1_epi32(_mm512_set1_epi32(static_cast<int>(block.start + key)), 0xff00,
                                                   static_cast<int>(block.start + key + 1));
      const __mmask16 seen = _mm512_cmplt_epu32_mask(index, last) & _mm512_cmpge_epu32_mask(index, first);
      _mm512_storeu_ps(weights + kByteQueries * key, _mm512_maskz_loadu_ps(seen, weights + kByteQueries * key));
    }
  }

  // sums = sums * shrink + weights . values, for 64 columns.
  void add_values(uint32_t i, uint32_t step, const float* units) const {
    const Vector& v = this->vectors_[i];
    const uint8_t* values = scratch_ + at_.values + 4 * step * kTileBytes;
    int32_t* to = products(i);
    tile_fence();
    clear_accumulators();
    _tile_loadd(4, scratch_ + at_.weights, 64);
    _tile_loadd(6, values, 64);
    _tile_dpbssd(0, 4, 6);
    _tile_loadd(7, values + kTileBytes, 64);
    _tile_dpbssd(1, 4, 7);
    _tile_loadd(6, values + 2 * kTileBytes, 64);
    _tile_dpbssd(2, 4, 6);
    _tile_loadd(7, values + 3 * kTileBytes, 64);
    _tile_dpbssd(3, 4, 7);
    store_accumulators(to, to + kTileInts, to + 2 * kTileInts, to + 3 * kTileInts);
    tile_fence();
    for (uint32_t row = 0; row < v.rows; row++) {
      const __m512 shrink = _mm512_set1_ps(v.shrink[row]), unit = _mm512_set1_ps(units[row]);
      float* sums = sums_of(i) + row * at_.row_bytes() + 64 * step;
      each_index<4>([&](auto c) LOWBIT_INLINE {
        const __m512i high = _mm512_load_si512(to + kTileInts * c + 16 * row);
        const __m512i low = _mm512_load_si512(to + kTileInts * c + 16 * (kByteQueries + row));
        const __m512 found = _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(high, 8), low));
        const __m512 before = _mm512_mul_ps(_mm512_load_ps(sums + 16 * c), shrink);
        _mm512_store_ps(sums + 16 * c, _mm512_fmadd_ps(found, unit, before));
      });
    }
  }

  void order_sums() const {
    for (uint32_t i = 0; i < this->count_; i++)
      for (uint32_t row = 0; row < this->vectors_[i].rows; row++)
        order_columns(sums_of(i) + row * at_.row_bytes(), this->args_.head_dim, this->vectors_[i].sums[row]);
  }

  const IntegersScratch at_;
  uint8_t* scratch_;
  // Whether rows of tiles can be those of the cache.
  const bool in_tiles_;
};

}  // namespace
}  // namespace lowbit
