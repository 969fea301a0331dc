// Chunks of linear recurrences on AMX: scratch, gates, keys and queries as tiles. The algorithm is in
// recurrence_amx.cc. Flags: see scripts/native/build.js.
#pragma once

#include "../families/recurrent/linear_recurrence.h"
#include "../kernel.h"
#include "floats_avx512.h"
#include "split_bf16.h"
#include "tiles_amx.h"

namespace lowbit {
namespace {

// Rows of a chunk: as many as one product of tiles sums over.
constexpr uint32_t kChunk = 32;
constexpr uint32_t kTileFloats = kTileBytes / 4;
// Bytes of a tile in two parts.
constexpr uint32_t kSplitBytes = 2 * kTileBytes;
// Most heads that are processed together, chunk by chunk: keys that they share are converted once, and their rows are
// on the same memory pages, whose TLB entries serve all of them.
constexpr uint32_t kHeadsMost = 8;

// Sizes of a head: steps of 32 keys, tiles of 16 keys (an even number), and pairs of tiles of 16 columns of values.
struct Sizes {
  uint32_t steps, key_tiles, pairs;

  explicit Sizes(const LinearRecurrenceArgs& args)
      : steps(ceil_div(args.key_dim, 32)),
        key_tiles(2 * steps),
        pairs(ceil_div(args.value_dim, 32)) {}
  size_t state_tiles() const { return size_t{2} * key_tiles * pairs; }
};

// Scratch of one thread.
struct Workspace {
  // Per chunk, for all heads with the same keys.
  uint8_t* rows;     // Two tiles of keys and two of queries as left factors: [4][steps].
  uint8_t* columns;  // Keys as right factors: [2][steps], pairs of numbers of a key.
  uint8_t* turned;   // Keys as left factors: [key tiles], of all rows.
  float* products;   // Dot products of keys and of queries with keys: [4][2].
  // Per chunk and head.
  float* system;     // [rows r][rows j < r]: -beta_r e(r, j) (k_r . k_j).
  float* inverse;    // [rows][rows]: factors of earlier rows in u; the row's own is 1.
  uint8_t* taken;    // The inverse as left factors: [2].
  uint8_t* weights;  // Weights of u in y, as left factors: [2].
  // Per pair of value tiles.
  uint8_t* factors;  // The state as right factors: [2][steps], pairs of keys.
  float* reads;      // S0^T of keys and of queries: [4][2].
  float* added;      // u: [2][2].
  uint8_t* given;    // Right side of the system, as right factors: [2].
  uint8_t* addends;  // u as right factors: [2].
  uint8_t* lasting;  // u decayed to the chunk's end, as right factors: [2].
  float* states;     // [heads][pairs][key tiles][2].
  size_t bytes;

  Workspace(const Sizes& sizes, uint8_t* start) : bytes(0) {
    auto take = [&](size_t count) {
      uint8_t* at = start + bytes;
      bytes += count;
      return at;
    };
    auto floats = [&](size_t tiles) { return reinterpret_cast<float*>(take(tiles * kTileBytes)); };
    auto splits = [&](size_t tiles) { return take(tiles * kSplitBytes); };
    rows = splits(size_t{4} * sizes.steps);
    columns = splits(size_t{2} * sizes.steps);
    turned = splits(sizes.key_tiles);
    products = floats(8);
    system = floats(4);
    inverse = floats(4);
    taken = splits(2);
    weights = splits(2);
    factors = splits(size_t{2} * sizes.steps);
    reads = floats(8);
    added = floats(4);
    given = splits(2);
    addends = splits(2);
    lasting = splits(2);
    states = floats(kHeadsMost * sizes.state_tiles());
  }
};

inline void store_split(uint8_t* row, const SplitVector& split) {
  _mm512_store_si512(row, split.high);
  _mm512_store_si512(row + kTileBytes, split.low);
}

// 16 values from `column` on, 0 from `count` on.
inline __m512 load_columns(const float* row, uint32_t column, uint32_t count) {
  if (column + 16 <= count) return _mm512_loadu_ps(row + column);
  return column < count ? FloatsAvx512::load_some(row + column, count - column) : _mm512_setzero_ps();
}

// Stores those of 16 values from `column` on that are before `count`.
inline void store_columns(float* row, uint32_t column, uint32_t count, __m512 v) {
  if (column + 16 <= count) _mm512_storeu_ps(row + column, v);
  else if (column < count) FloatsAvx512::store_some(row + column, v, count - column);
}

inline uint32_t key_head_of(const LinearRecurrenceArgs& args, uint32_t head) {
  return static_cast<uint32_t>(static_cast<uint64_t>(head) * args.key_heads / args.heads);
}

// Prefetches rows needed next, line by line among other work: many lines at once would wait for each other.
class RowsAhead {
 public:
  // `shares`: keys and queries are fetched already. `fetches`: number of calls that fetch lines.
  RowsAhead(const LinearRecurrenceArgs& args, uint32_t first, uint32_t rows, uint32_t head, bool shares,
            uint32_t fetches)
      : keys_(static_cast<size_t>(args.key_heads) * args.key_dim),
        values_(size_t{args.heads} * args.value_dim) {
    const size_t key = first * keys_ + size_t{key_head_of(args, head)} * args.key_dim;
    const size_t value = first * values_ + size_t{head} * args.value_dim;
    add(args.v + value, values_, args.value_dim);
    add(args.y + value, values_, args.value_dim);
    if (!shares) {
      add(args.k + key, keys_, args.key_dim);
      add(args.q + key, keys_, args.key_dim);
    }
    uint32_t lines = 0;
    for (uint32_t i = 0; i < count_; i++) lines += rows * ceil_div(arrays_[i].numbers, 16);
    each_ = ceil_div(lines, fetches);
    rows_ = rows;
  }

  LOWBIT_INLINE void fetch() {
    for (uint32_t i = 0; i < each_ && row_ < rows_; i++) {
      const Array& array = arrays_[array_];
      __builtin_prefetch(array.at + row_ * array.stride + number_, 0, 2);
      number_ += 16;
      if (number_ < array.numbers) continue;
      number_ = 0;
      if (++array_ < count_) continue;
      array_ = 0;
      row_++;
    }
  }

 private:
  struct Array {
    const float* at;
    size_t stride;
    uint32_t numbers;
  };
  void add(const float* at, size_t stride, uint32_t numbers) { arrays_[count_++] = {at, stride, numbers}; }

  const size_t keys_, values_;
  Array arrays_[4];
  uint32_t count_ = 0, rows_, each_, row_ = 0, array_ = 0, number_ = 0;
};

// Rows of a chunk.
struct Chunk {
  // Its first row, its number of rows, and the number of rows after it.
  uint32_t first, rows, ahead;

  Chunk(uint32_t from, uint32_t end) : first(from), rows(std::min(kChunk, end - from)), ahead(end - from - rows) {}
};

// The gates of a chunk of a head.
struct ChunkGates {
  alignas(64) double logs[kChunk];
  // exp of sums of log decays: from the chunk's start to a row, and from there to the chunk's end.
  alignas(64) float since_first[kChunk], until_last[kChunk], beta[kChunk];

  // Sums logarithms in double precision: where the decay is strong, differences of sums are small beside the sums.
  ChunkGates(const LinearRecurrenceArgs& args, const Chunk& chunk, uint32_t head) {
    double sum = 0;
    for (uint32_t row = 0; row < kChunk; row++) {
      const size_t place = static_cast<size_t>(chunk.first + row) * args.heads + head;
      if (row < chunk.rows) {
        const float log_decay = args.log_decay[place];
        // Clamped: a smaller logarithm gives the same factor, and differences of infinities would be NaN.
        sum += log_decay < -1000 ? -1000 : log_decay;
      }
      logs[row] = sum;
      beta[row] = row < chunk.rows && args.beta ? args.beta[place] : 1;
    }
    for (uint32_t half = 0; half < kChunk; half += 16) {
      _mm512_store_ps(since_first + half, decayed_by(half, [](__m512d log) { return log; }));
      _mm512_store_ps(until_last + half, decayed_by(half, [&](__m512d log) { return _mm512_set1_pd(sum) - log; }));
    }
  }

  // exp of values that `make` computes from 16 rows' sums of logarithms.
  template <class Make>
  __m512 decayed_by(uint32_t first, Make&& make) const {
    const __m256 low = _mm512_cvtpd_ps(make(_mm512_load_pd(logs + first)));
    const __m256 high = _mm512_cvtpd_ps(make(_mm512_load_pd(logs + first + 8)));
    return exp_of<FloatsAvx512>(_mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1));
  }
};

// Loads two by two tiles of sums, each two side by side; store_sums stores them.
inline LOWBIT_INLINE void load_sums(const float* above, const float* below) {
  load_accumulators(above, above + kTileFloats, below, below + kTileFloats);
}
inline LOWBIT_INLINE void store_sums(float* above, float* below) {
  store_accumulators(above, above + kTileFloats, below, below + kTileFloats);
}

// Adds the products of one step to the sums at `above` and in the row of tiles below.
inline LOWBIT_INLINE void add_product(const uint8_t* a, const uint8_t* b, float* above) {
  float* below = above + 2 * kTileFloats;
  load_sums(above, below);
  multiply_tiles(a, a + kSplitBytes, b, b + kSplitBytes);
  store_sums(above, below);
}

// Keys and queries of a chunk, for all heads that share them.
class ChunkKeys {
 public:
  ChunkKeys(const LinearRecurrenceArgs& args, const Sizes& sizes, const Workspace& w, uint32_t key_head)
      : args_(args),
        sizes_(sizes),
        w_(w),
        key_head_(key_head) {}

  void take(const Chunk& chunk) const {
    if (chunk.rows == kChunk && args_.key_dim % 32 == 0) convert<true>(chunk);
    else convert<false>(chunk);
    turn();
    tile_fence();
    for (uint32_t row = args_.beta ? 0 : 2; row < 4; row += 2) {
      multiply_steps(row, w_.columns);
      store_sums(w_.products + 2 * row * kTileFloats, w_.products + (2 * row + 2) * kTileFloats);
    }
    tile_fence();
  }

  // Accumulators = products of two tiles of rows with right factors, over all steps.
  void multiply_steps(uint32_t tile, const uint8_t* b) const {
    const size_t bytes = sizes_.steps * kSplitBytes;
    const uint8_t* a = w_.rows + tile * bytes;
    clear_accumulators();
    for (size_t at = 0; at < bytes; at += kSplitBytes) multiply_tiles(a + at, a + bytes + at, b + at, b + bytes + at);
  }

 private:
  size_t place(uint32_t row) const { return (static_cast<size_t>(row) * args_.key_heads + key_head_) * args_.key_dim; }

  // `Whole`: no row or column is padding.
  template <bool Whole>
  void convert(const Chunk& chunk) const {
    for (uint32_t tile = 0; tile < 4; tile++) {
      const float* from = tile < 2 ? args_.k : args_.q;
      auto load = [&](uint32_t row, uint32_t column) LOWBIT_INLINE {
        const float* numbers = from + place(chunk.first + row);
        if (Whole) return _mm512_loadu_ps(numbers + column);
        return row < chunk.rows ? load_columns(numbers, column, args_.key_dim) : _mm512_setzero_ps();
      };
      for (uint32_t step = 0; step < sizes_.steps; step++) {
        const size_t at = (size_t{tile} * sizes_.steps + step) * kSplitBytes;
        __m512i high[16], low[16];
        each_index<16>([&](auto i) LOWBIT_INLINE {
          const uint32_t row = 16 * (tile & 1) + i;
          const SplitVector split = split_row(load(row, 32 * step), load(row, 32 * step + 16));
          store_split(w_.rows + at + 64 * i, split);
          high[i] = split.high;
          low[i] = split.low;
        });
        if (tile >= 2) continue;
        transpose16(high);
        transpose16(low);
        for (int i = 0; i < 16; i++) store_split(w_.columns + at + 64 * i, {high[i], low[i]});
      }
    }
  }

  // Interleaves the words of the two tiles of keys.
  void turn() const {
    const __m512i lower = _mm512_set1_epi32(0xffff);
    // Ternary logic: bits of the first operand where the last has ones, else of the second.
    constexpr int kChooseByLast = 0xe4;
    const size_t second = sizes_.steps * kSplitBytes;
    for (uint32_t tile = 0; tile < sizes_.key_tiles; tile++)
      for (uint32_t part = 0; part < 2; part++) {
        const size_t half = part * kTileBytes;
        const uint8_t* from = w_.columns + tile / 2 * kSplitBytes + half + tile % 2 * (kTileBytes / 2);
        uint8_t* to = w_.turned + tile * kSplitBytes + half;
        for (uint32_t i = 0; i < 8; i++, from += 64, to += 128) {
          const __m512i a = _mm512_load_si512(from), b = _mm512_load_si512(from + second);
          _mm512_store_si512(to, _mm512_ternarylogic_epi32(a, _mm512_slli_epi32(b, 16), lower, kChooseByLast));
          _mm512_store_si512(to + 64, _mm512_ternarylogic_epi32(_mm512_srli_epi32(a, 16), b, lower, kChooseByLast));
        }
      }
  }

  const LinearRecurrenceArgs& args_;
  const Sizes& sizes_;
  const Workspace& w_;
  const uint32_t key_head_;
};

}  // namespace
}  // namespace lowbit
