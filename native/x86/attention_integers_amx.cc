// Attention of few queries over caches of integers, on AMX: products of int8 tiles, whose rows are the cache's own.
// Queries become integers of three bytes and weights of two, a byte a tile column or row: results are as exact as 16
// bits of a block's largest weight. Other caches, many queries and heads of odd sizes are left to AVX-512.
#include "../kernel.h"
#include "../transformer/attention.h"
#include "../transformer/fused.h"
#include "floats_avx512.h"
#include "tiles_amx.h"

namespace lowbit {
namespace {

using Isa = FloatsAvx512;

// Keys that are multiplied at once: rows of four tiles, tile j from place j, so that vector r of scores is the keys
// that KeyBlock counts as 4 r .. 4 r + 3.
constexpr uint32_t kPlaceRows = 16, kKeys = kPlaces * kPlaceRows;
static_assert(kPlaces == 4 && kKeys == kSplitBlockKeys);
// Queries of a vector, and bytes of a query.
constexpr uint32_t kQueries = 4, kDigits = 3;
// The largest query as an integer: its highest byte stays within 127 however the others round.
constexpr float kQueryMost = 127.0f * 65536 - 32896;
// The same of weights.
constexpr float kWeightMost = 127.0f * 256 + 127;

// Parts of one thread's scratch; `steps` of 64 columns make a row of a head.
struct Workspace {
  QueryVector<Isa>* vectors;
  float* q;          // [vectors][as QueryVector]
  float* scores;     // [vectors][64 keys][4 queries]
  uint8_t* tiles;    // [vectors][steps]: rows of four columns, tile columns [digit][query]
  float* factors;    // [vectors][16]: what a tile column counts
  int32_t* sums;     // [4][16][16]
  uint8_t* weights;  // [byte][query][64 keys], rows 8 .. 15 zeros
  uint8_t* values;   // [4 parts of the columns][16][16 columns, 4 keys]
  int8_t* keys_end;  // [64][dim]: a block that is not full
  int8_t* values_end;
  size_t bytes;

  Workspace(const AttentionArgs& args, uint8_t* scratch) {
    const size_t steps = args.head_dim / 64;
    bytes = 0;
    auto take = [&](size_t size) {
      uint8_t* start = scratch ? scratch + bytes : nullptr;
      bytes += round_up(size, 64);
      return start;
    };
    vectors = reinterpret_cast<QueryVector<Isa>*>(take(args.vectors * sizeof(QueryVector<Isa>)));
    q = reinterpret_cast<float*>(take(args.vectors * 4 * kQueries * args.head_dim));
    scores = reinterpret_cast<float*>(take(args.vectors * 4 * kQueries * kKeys));
    tiles = take(args.vectors * steps * kTileBytes);
    factors = reinterpret_cast<float*>(take(args.vectors * 64));
    sums = reinterpret_cast<int32_t*>(take(4 * kTileBytes));
    weights = take(kTileBytes);
    values = take(4 * kTileBytes);
    keys_end = reinterpret_cast<int8_t*>(take(kKeys * args.head_dim));
    values_end = reinterpret_cast<int8_t*>(take(kKeys * args.head_dim));
  }
};

// A block of keys of all heads: those of place j begin at keys[j].
struct Places {
  KeyBlock<int8_t> block;
  const int8_t* keys[kPlaces];
  const int8_t* values[kPlaces];
  size_t stride;
};

// Queries of a vector to tiles: integers of three signed bytes.
void convert_queries(const QueryVector<Isa>& v, uint32_t dim, uint8_t* tiles, float* factors) {
  memset(tiles, 0, dim / 64 * kTileBytes);
  memset(factors, 0, 64);
  for (uint32_t row = 0; row < kQueries; row++) {
    auto columns = [&](uint32_t d) { return Isa::load(v.q + d * kQueries + row * Isa::kLanes); };
    __m512 most = Isa::set(0);
    for (uint32_t d = 0; d < dim; d += 16) most = Isa::max(_mm512_abs_ps(columns(d)), most);
    const float largest = std::max(Isa::largest(most), 1e-30f);
    const __m512 scale = Isa::set(kQueryMost / largest);
    for (uint32_t digit = 0; digit < kDigits; digit++)
      factors[kQueries * digit + row] = largest / kQueryMost * static_cast<float>(1u << (8 * digit));
    for (uint32_t d = 0; d < dim; d += 16) {
      __m512i rest = _mm512_cvtps_epi32(_mm512_mul_ps(columns(d), scale));
      for (uint32_t digit = 0; digit < kDigits; digit++) {
        const __m512i byte = _mm512_srai_epi32(_mm512_slli_epi32(rest, 24), 24);
        rest = _mm512_srai_epi32(_mm512_sub_epi32(rest, byte), 8);
        alignas(16) int32_t fours[4];
        _mm_store_si128(reinterpret_cast<__m128i*>(fours), _mm512_cvtepi32_epi8(byte));
        uint8_t* tile = tiles + d / 64 * kTileBytes + d % 64 / 4 * 64 + 4 * (kQueries * digit + row);
        for (uint32_t i = 0; i < 4; i++) memcpy(tile + 64 * i, fours + i, 4);
      }
    }
  }
}

// Fetches the rows of a block meanwhile, a few lines at each of many steps: of all heads, in the order of memory, since
// what fetches by itself beyond the second cache follows such streams.
class Fetch {
 public:
  // `rows` of each place, `steps` for the whole block.
  Fetch(const int8_t* const* rows, size_t stride, uint32_t steps)
      : rows_(rows),
        end_(kPlaceRows * stride),
        each_(ceil_div(static_cast<uint32_t>(end_ / 64), steps) * 64) {}
  Fetch() : rows_(nullptr), end_(0), each_(0) {}

  inline LOWBIT_INLINE void step() {
    for (const size_t until = std::min(end_, at_ + each_); at_ < until; at_ += 64)
      for (uint32_t j = 0; j < kPlaces; j++) _mm_prefetch(reinterpret_cast<const char*>(rows_[j] + at_), _MM_HINT_T1);
  }

 private:
  const int8_t* const* rows_;
  size_t at_ = 0, end_, each_;
};

// Scores of a vector's queries with all keys of a block.
void score_tiles(const AttentionArgs& args, const Workspace& w, const Places& places, uint32_t n, Fetch& fetch) {
  const uint32_t dim = args.head_dim;
  const QueryVector<Isa>& v = w.vectors[n];
  const size_t at = static_cast<size_t>(v.kv) * dim;
  const uint8_t* queries = w.tiles + n * (dim / 64) * kTileBytes;
  tile_fence();
  clear_accumulators();
  for (uint32_t d = 0; d < dim; d += 64) {
    _tile_loadd(6, queries + d / 64 * kTileBytes, 64);
    _tile_loadd(4, places.keys[0] + at + d, places.stride);
    _tile_dpbssd(0, 4, 6);
    _tile_loadd(5, places.keys[1] + at + d, places.stride);
    _tile_dpbssd(1, 5, 6);
    _tile_loadd(4, places.keys[2] + at + d, places.stride);
    _tile_dpbssd(2, 4, 6);
    _tile_loadd(5, places.keys[3] + at + d, places.stride);
    _tile_dpbssd(3, 5, 6);
  }
  store_accumulators(w.sums, w.sums + 256, w.sums + 512, w.sums + 768);
  tile_fence();
  const __m512 factors = Isa::load(w.factors + 16 * n);
  float* scores = w.scores + n * kQueries * kKeys;
  for (uint32_t r = 0; r < kPlaceRows; r++) {
    fetch.step();
    __m512 key[kPlaces];
    for (uint32_t j = 0; j < kPlaces; j++)
      key[j] = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_loadu_si512(w.sums + 256 * j + 16 * r)), factors);
    const __m512 score = Isa::fold_quarters(Isa::fold_quarters(key[0], key[1]), Isa::fold_quarters(key[2], key[3]));
    size_t rows[kPlaces];
    key_rows<kPlaces>(places.block, kPlaces * r, places.block.count, rows);
    const __m512 scales = scales_of<Isa, kQueries>(places.block, places.block.key_scales, v.kv, rows);
    Isa::store(scores + 16 * r, _mm512_mul_ps(score, scales));
  }
}

// Weights of 64 keys to rows of signed bytes, the low ones of the four queries and then the high ones. Returns what one
// counts, a number for each query.
__m128 convert_weights(const float* weights, uint8_t* target) {
  __m512 most = Isa::set(0);
  for (uint32_t r = 0; r < kPlaceRows; r++) most = Isa::max(_mm512_abs_ps(Isa::load(weights + 16 * r)), most);
  most = fold_keys<Isa>(most, kQueries, [](__m512 a, __m512 b) { return Isa::max(a, b); });
  most = Isa::max(most, Isa::set(1e-30f));
  const __m512 scale = _mm512_div_ps(Isa::set(kWeightMost), most);
  // Bytes [key][four rows][query] to [query][four rows][key].
  alignas(64) uint8_t order[64];
  for (uint32_t i = 0; i < 64; i++) order[i] = static_cast<uint8_t>(16 * (i % 4) + i / 4 % 4 * 4 + i / 16);
  const __m512i by_query = _mm512_load_si512(order);
  auto put = [&](uint8_t* rows, __m512i bytes) {
    bytes = _mm512_permutexvar_epi8(by_query, bytes);
    _mm_store_si128(reinterpret_cast<__m128i*>(rows), _mm512_castsi512_si128(bytes));
    _mm_store_si128(reinterpret_cast<__m128i*>(rows + 64), _mm512_extracti32x4_epi32(bytes, 1));
    _mm_store_si128(reinterpret_cast<__m128i*>(rows + 128), _mm512_extracti32x4_epi32(bytes, 2));
    _mm_store_si128(reinterpret_cast<__m128i*>(rows + 192), _mm512_extracti32x4_epi32(bytes, 3));
  };
  auto low = [](__m512i words) { return _mm512_srai_epi16(_mm512_slli_epi16(words, 8), 8); };
  auto high = [&](__m512i words) { return _mm512_srai_epi16(_mm512_sub_epi16(words, low(words)), 8); };
  for (uint32_t r = 0; r < kPlaceRows; r += 4, weights += 64) {
    auto whole = [&](uint32_t i) { return _mm512_cvtps_epi32(_mm512_mul_ps(Isa::load(weights + 16 * i), scale)); };
    const __m512i a = _mm512_packs_epi32(whole(0), whole(1)), b = _mm512_packs_epi32(whole(2), whole(3));
    put(target + 4 * r, _mm512_packs_epi16(low(a), low(b)));
    put(target + 256 + 4 * r, _mm512_packs_epi16(high(a), high(b)));
  }
  return _mm_div_ps(_mm512_castps512_ps128(most), _mm_set1_ps(kWeightMost));
}

// 64 columns of a block's values to tiles of four keys side by side: tile i has columns 16 L + 4 i .. + 3, L in 0 .. 3.
void interleave_values(const Places& places, size_t at, uint8_t* target, Fetch& fetch) {
  for (uint32_t r = 0; r < kPlaceRows; r++, target += 64) {
    fetch.step();
    auto row = [&](uint32_t j) { return _mm512_loadu_si512(places.values[j] + r * places.stride + at); };
    const __m512i a = row(0), b = row(1), c = row(2), d = row(3);
    const __m512i ab = _mm512_unpacklo_epi8(a, b), cd = _mm512_unpacklo_epi8(c, d);
    const __m512i ab_high = _mm512_unpackhi_epi8(a, b), cd_high = _mm512_unpackhi_epi8(c, d);
    _mm512_store_si512(target, _mm512_unpacklo_epi16(ab, cd));
    _mm512_store_si512(target + kTileBytes, _mm512_unpackhi_epi16(ab, cd));
    _mm512_store_si512(target + 2 * kTileBytes, _mm512_unpacklo_epi16(ab_high, cd_high));
    _mm512_store_si512(target + 3 * kTileBytes, _mm512_unpackhi_epi16(ab_high, cd_high));
  }
}

// sums = sums * shrink + weights . values. Sums keep the order of columns of the tiles until order_columns.
void add_tiles(const AttentionArgs& args, const Workspace& w, const Places& places, uint32_t n, Fetch& fetch) {
  const QueryVector<Isa>& v = w.vectors[n];
  const size_t at = static_cast<size_t>(v.kv) * args.head_dim;
  alignas(16) float unit[4];
  _mm_store_ps(unit, convert_weights(w.scores + n * kQueries * kKeys, w.weights));
  for (uint32_t d = 0; d < args.head_dim; d += 64) {
    interleave_values(places, at + d, w.values, fetch);
    tile_fence();
    _tile_loadd(4, w.weights, 64);
    clear_accumulators();
    _tile_loadd(6, w.values, 64);
    _tile_dpbssd(0, 4, 6);
    _tile_loadd(7, w.values + kTileBytes, 64);
    _tile_dpbssd(1, 4, 7);
    _tile_loadd(6, w.values + 2 * kTileBytes, 64);
    _tile_dpbssd(2, 4, 6);
    _tile_loadd(7, w.values + 3 * kTileBytes, 64);
    _tile_dpbssd(3, 4, 7);
    store_accumulators(w.sums, w.sums + 256, w.sums + 512, w.sums + 768);
    tile_fence();
    for (uint32_t row = 0; row < v.rows; row++)
      for (uint32_t i = 0; i < 4; i++) {
        const __m512i low = _mm512_loadu_si512(w.sums + 256 * i + 16 * row);
        const __m512i high = _mm512_loadu_si512(w.sums + 256 * i + 16 * (kQueries + row));
        const __m512 found = _mm512_cvtepi32_ps(_mm512_add_epi32(low, _mm512_slli_epi32(high, 8)));
        float* sums = v.sums[row] + d + 16 * i;
        const __m512 before = _mm512_mul_ps(Isa::load(sums), Isa::set(v.shrink[row]));
        Isa::store(sums, Isa::multiply_add(found, Isa::set(unit[row]), before));
      }
  }
}

// Columns in the order of interleave_values to their own, in place.
void order_columns(float* sums, uint32_t dim) {
  for (uint32_t d = 0; d < dim; d += 64, sums += 64) {
    __m128 quarters[16];
    for (uint32_t i = 0; i < 16; i++) quarters[i] = _mm_loadu_ps(sums + 4 * i);
    for (uint32_t i = 0; i < 16; i++) _mm_storeu_ps(sums + 16 * (i % 4) + 4 * (i / 4), quarters[i]);
  }
}

// One block; `next` is the one after it, or null.
void attend_integers_block(const AttentionArgs& args, const Workspace& w, const Places& places, const Places* next,
                           uint32_t count) {
  Fetch keys, values;
  if (next) {
    keys = Fetch(next->keys, next->stride, count * kPlaceRows);
    values = Fetch(next->values, next->stride, count * kPlaceRows * (args.head_dim / 64));
  }
  for (uint32_t n = 0; n < count; n++) score_tiles(args, w, places, n, keys);
  for (uint32_t n = 0; n < count; n++)
    weigh_block(w.vectors[n], places.block, 0, places.block.count, args.rule.softcap, w.scores + n * kQueries * kKeys);
  for (uint32_t n = 0; n < count; n++) add_tiles(args, w, places, n, values);
}

// Keys from `begin` on, a block of which is not full: a copy, for one head after the other.
void attend_rest(const AttentionArgs& args, Workspace& w, uint32_t begin, uint32_t end, uint32_t count) {
  const uint32_t dim = args.head_dim;
  for (uint32_t n = 0; n < count; n++) {
    const uint32_t kv = w.vectors[n].kv;
    memset(w.keys_end, 0, kKeys * dim);
    memset(w.values_end, 0, kKeys * dim);
    Places places{};
    places.block = key_block<int8_t>(args, kv, begin, end - begin);
    for (uint32_t key = 0; key < end - begin; key++) {
      const size_t target = (key % kPlaces * kPlaceRows + key / kPlaces) * dim;
      memcpy(w.keys_end + target, places.block.keys + key * args.stride(), dim);
      memcpy(w.values_end + target, places.block.values + key * args.stride(), dim);
    }
    places.stride = dim;
    for (uint32_t j = 0; j < kPlaces; j++) {
      // Heads begin at column kv * dim, as in the cache.
      places.keys[j] = w.keys_end + j * kPlaceRows * dim - static_cast<size_t>(kv) * dim;
      places.values[j] = w.values_end + j * kPlaceRows * dim - static_cast<size_t>(kv) * dim;
    }
    float* scores = w.scores + n * kQueries * kKeys;
    Fetch nothing;
    score_tiles(args, w, places, n, nothing);
    weigh_block(w.vectors[n], places.block, 0, end - begin, args.rule.softcap, scores);
    const uint32_t weighed = kQueries * round_up(end - begin, kPlaces);
    memset(scores + weighed, 0, 4 * (kQueries * kKeys - weighed));
    add_tiles(args, w, places, n, nothing);
  }
}

// The block of all heads whose first place begins at key `row` of `keys`; places are `rows` apart.
Places places_at(const AttentionArgs& args, const KeyRange& keys, uint32_t row, uint32_t rows) {
  Places places{};
  places.block = key_block<int8_t>(args, 0, keys.begin + row, kKeys);
  places.block.apart = rows;
  places.block.step = 1;
  places.stride = args.stride();
  for (uint32_t j = 0; j < kPlaces; j++) {
    places.keys[j] = places.block.keys + j * rows * places.stride;
    places.values[j] = places.block.values + j * rows * places.stride;
  }
  return places;
}

// Vectors of all queries in the scratch; returns how many.
uint32_t begin_integers(const AttentionArgs& args, const Workspace& w, float* sums) {
  uint32_t count = 0;
  for (uint32_t kv = 0; kv < args.kv_heads; kv++)
    for (uint32_t row = 0; row < args.tokens * args.group; row += kQueries, count++) {
      w.vectors[count].q = w.q + static_cast<size_t>(count) * kQueries * args.head_dim;
      begin_vector<Isa>(args, {0, args.tokens, 0, args.kv_heads, sums}, kv, row, w.vectors[count]);
      convert_queries(w.vectors[count], args.head_dim, w.tiles + count * (args.head_dim / 64) * kTileBytes,
                      w.factors + 16 * count);
    }
  memset(w.weights, 0, kTileBytes);
  return count;
}

// As attend_split.
void attend_integers(const AttentionArgs& args, uint32_t split, float* scratch) {
  const KeyRange keys = split_keys<Isa>(args, split);
  if (keys.begin == keys.end) return;
  const uint32_t rows = (keys.end - keys.begin) / kKeys * kPlaceRows;
  Places places = places_at(args, keys, 0, rows), next;
  if (rows > 0) {
    Fetch(places.keys, places.stride, 1).step();
    Fetch(places.values, places.stride, 1).step();
  }
  const SplitResults results = results_of<Isa>(args, split);
  uint8_t* at = reinterpret_cast<uint8_t*>(scratch);
  Workspace w(args, at + (-reinterpret_cast<uintptr_t>(at) & 63));
  const uint32_t count = begin_integers(args, w, results.sums);
  const TileScope tiles;
  for (uint32_t row = 0; row < rows; row += kPlaceRows, places = next) {
    const bool more = row + kPlaceRows < rows;
    if (more) next = places_at(args, keys, row + kPlaceRows, rows);
    attend_integers_block(args, w, places, more ? &next : nullptr, count);
  }
  const uint32_t rest = keys.begin + kPlaces * rows;
  if (rest < keys.end) attend_rest(args, w, rest, keys.end, count);
  each_query<Isa>(w.vectors, count, [&](const QueryVector<Isa>& queries, uint32_t row) {
    order_columns(queries.sums[row], args.head_dim);
    const size_t place = static_cast<size_t>(queries.sums[row] - results.sums) / args.head_dim;
    results.largest[place] = queries.largest[row];
    results.totals[place] = queries.total(row);
  });
}

void integers_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread) {
  const AttentionArgs args = step.as<AttentionArgs>().now();
  if (phase != 1 || !args.fits()) return attention_run<Isa, int8_t>(step, phase, tile, thread);
  attend_integers(args, tile, args.scratch + thread * args.thread_floats);
}

bool takes_integers(const Call& call, const AttentionArgs& args) {
  return cache_type(call) == CacheType::kIntegers && args.splits > 0 && args.head_dim % 64 == 0;
}

AttentionArgs integers_args(const Call& call) {
  AttentionArgs args = attention_args<Isa>(call);
  if (!takes_integers(call, args)) return args;
  args.lane_rows = kQueries;
  args.vectors = args.kv_heads * ceil_div(args.tokens * args.group, kQueries);
  args.thread_floats = Workspace(args, nullptr).bytes / 4 + 16;
  return args;
}

size_t integers_scratch(const Call& call) {
  const AttentionArgs args = integers_args(call);
  return 4 * (args.threads * args.thread_floats + args.splits * args.split_floats);
}

void integers_prepare(Step& step, const Call& call) {
  const AttentionArgs args = integers_args(call);
  if (!takes_integers(call, args)) return attention_prepare<Isa>(step, call);
  bind_attention(step, args, call);
  step.run = integers_run;
}

constexpr uint32_t kNeeds = kAvx2 | kAvx512 | kAvx512Vnni | kAvx512Vbmi | kAmxInt8;

constexpr KernelRow kRows[] = {
    {"attention_f32_1x1x64_amx_int8", "attention", nullptr, 0, kNeeds, 1, 1, integers_scratch, integers_prepare},
    {"rope_attention_f32_1x1x64_amx_int8", "rope_attention", nullptr, 0, kNeeds, 1, 1,
     rope_attention_scratch<integers_scratch>, rope_attention_prepare<Isa, integers_prepare>},
};

}  // namespace

KernelRows attention_integers_amx_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
