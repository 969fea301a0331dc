// Attention of many queries on AMX: scores and weighted sums as products of bf16 tiles, floats split in two, see
// split_bf16.h; results are as exact as 16 bits of the largest terms. Scores are made transposed, [keys][queries]: each
// query is a lane of the vectors of its softmax, and neither keys nor weights need to be turned.
#include "../kernel.h"
#include "../transformer/fused.h"
#include "attention_integers_amx.h"
#include "floats_avx512.h"
#include "split_bf16.h"
#include "tiles_amx.h"

namespace lowbit {
namespace {

// Queries that are multiplied at once: two tiles.
constexpr uint32_t kPair = 32;
constexpr uint32_t kTileFloats = kTileBytes / 4;
// Score of a key that is not seen.
constexpr float kNone = -INFINITY;
constexpr float kLog2e = 1.44269504f;

// Parts of one thread's scratch. A tile is 16 rows of 64 bytes; `steps` of 32 columns make a row of the head.
struct Workspace {
  uint8_t* keys;     // [keys / 16][steps][high, low]
  uint8_t* values;   // transposed: [columns / 16][keys / 32][high, low]
  float* scores;     // [2][64 keys][16 queries]
  uint8_t* weights;  // [2][keys / 32][high, low], pairs of keys
  // Of each 16 queries.
  uint8_t* queries;  // [steps][high, low], pairs of columns
  float* sums;       // [columns][16 queries]
  float* largest;
  float* totals;
  int32_t* first;
  int32_t* last;
};

struct Sizes {
  uint32_t steps, columns, query_tiles;
  size_t keys, values, scores, weights, queries, sums;

  Sizes(uint32_t dim, uint32_t rows) {
    steps = ceil_div(dim, 32);
    columns = 32 * steps;
    query_tiles = 2 * ceil_div(rows, kPair);
    keys = values = 8 * static_cast<size_t>(steps) * kTileBytes;
    scores = 2 * 4 * kTileBytes;
    weights = 2 * 2 * 2 * kTileBytes;
    queries = 2 * static_cast<size_t>(steps) * kTileBytes;
    sums = 2 * static_cast<size_t>(steps) * kTileBytes;
  }
  size_t bytes() const { return 64 + keys + values + scores + weights + query_tiles * (queries + sums + 4 * 64); }
};

Workspace workspace_at(uint8_t* at, const Sizes& sizes) {
  at += -reinterpret_cast<uintptr_t>(at) & 63;
  auto take = [&](size_t bytes) {
    uint8_t* start = at;
    at += bytes;
    return start;
  };
  Workspace w;
  w.keys = take(sizes.keys);
  w.values = take(sizes.values);
  w.scores = reinterpret_cast<float*>(take(sizes.scores));
  w.weights = take(sizes.weights);
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

// Sixteen values of a row from column d on, 0 beyond its end.
template <class Element>
inline __m512 load_columns(const Element* row, uint32_t d, uint32_t dim) {
  return d < dim ? load_lanes(row + d, std::min(16u, dim - d)) : _mm512_setzero_ps();
}

// Sixteen queries, scaled, to tiles of pairs of columns.
void convert_queries(const float* const* rows, uint32_t dim, uint32_t steps, float scale, uint8_t* target) {
  const __m512 factor = _mm512_set1_ps(scale);
  for (uint32_t step = 0; step < steps; step++, target += 2 * kTileBytes) {
    __m512i high[16], low[16];
    for (int r = 0; r < 16; r++) {
      __m512 a = _mm512_setzero_ps(), b = a;
      if (rows[r]) {
        a = _mm512_mul_ps(load_columns(rows[r], 32 * step, dim), factor);
        b = _mm512_mul_ps(load_columns(rows[r], 32 * step + 16, dim), factor);
      }
      const SplitVector split = split_row(a, b);
      high[r] = split.high;
      low[r] = split.low;
    }
    transpose16(high);
    transpose16(low);
    for (int r = 0; r < 16; r++) {
      _mm512_store_si512(target + 64 * r, high[r]);
      _mm512_store_si512(target + kTileBytes + 64 * r, low[r]);
    }
  }
}

// The same of a row of keys or values; `scales` are those of its heads where they are integers.
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

// Keys to tiles of 16 keys by 32 columns; those beyond the block's last are zeros. Rows of the next block, if there is
// one, are fetched meanwhile.
template <class Element>
void convert_keys(const CacheBlock<Element>& block, uint32_t steps, uint8_t* target) {
  for (uint32_t key = 0; key < round_up(block.last, 32); key++) {
    uint8_t* tile = target + (key / 16) * steps * 2 * kTileBytes + 64 * (key % 16);
    if (block.next) {
      fetch_row(block.next->keys[key], block.dim);
      fetch_row(block.next->values[key], block.dim);
    }
    for (uint32_t step = 0; step < steps; step++, tile += 2 * kTileBytes) {
      SplitVector split{};
      if (key < block.last) split = split_row(load_key(block, key, 32 * step), load_key(block, key, 32 * step + 16));
      _mm512_store_si512(tile, split.high);
      _mm512_store_si512(tile + kTileBytes, split.low);
    }
  }
}

// Values to tiles of 16 columns by 32 keys. False where one is infinite or NaN: a weight of 0 would not hide it.
template <class Element>
bool convert_values(const CacheBlock<Element>& block, uint32_t steps, uint8_t* target) {
  __m512 unless_finite[2] = {};
  for (uint32_t d = 0; d < 32 * steps; d += 16, target += 4 * kTileBytes) {
    for (uint32_t half = 0; half < ceil_div(block.last, 32); half++) {
      auto value = [&](uint32_t key) { return key < block.last ? load_value(block, key, d) : _mm512_setzero_ps(); };
      __m512i high[16], low[16];
      for (uint32_t r = 0; r < 16; r++) {
        const __m512 a = value(32 * half + 2 * r), b = value(32 * half + 2 * r + 1);
        // A product with 0 is NaN where a value is not finite.
        unless_finite[0] = _mm512_fmadd_ps(a, _mm512_setzero_ps(), unless_finite[0]);
        unless_finite[1] = _mm512_fmadd_ps(b, _mm512_setzero_ps(), unless_finite[1]);
        const SplitVector split = split_pairs(a, b);
        high[r] = split.high;
        low[r] = split.low;
      }
      transpose16(high);
      transpose16(low);
      uint8_t* tile = target + half * 2 * kTileBytes;
      for (uint32_t r = 0; r < 16; r++) {
        _mm512_store_si512(tile + 64 * r, high[r]);
        _mm512_store_si512(tile + kTileBytes + 64 * r, low[r]);
      }
    }
  }
  return _mm512_cmp_ps_mask(unless_finite[0], unless_finite[1], _CMP_UNORD_Q) == 0;
}

// scores[2][64][16] of a pair of query tiles over 32 * halves keys.
void score_pair(const Workspace& w, const Sizes& sizes, uint32_t pair, uint32_t halves) {
  const size_t row_of_tiles = 2 * static_cast<size_t>(sizes.steps) * kTileBytes;
  const uint8_t* queries = w.queries + 2 * pair * sizes.queries;
  for (uint32_t half = 0; half < halves; half++) {
    const uint8_t* keys = w.keys + 2 * half * row_of_tiles;
    clear_accumulators();
    for (uint32_t step = 0; step < sizes.steps; step++) {
      const size_t at = 2 * static_cast<size_t>(step) * kTileBytes;
      multiply_tiles(keys + at, keys + row_of_tiles + at, queries + at, queries + sizes.queries + at);
    }
    float* scores = w.scores + 2 * half * kTileFloats;
    store_accumulators(scores, scores + 4 * kTileFloats, scores + kTileFloats, scores + 5 * kTileFloats);
  }
  tile_fence();
}

// sums += values . weights, for a pair of query tiles.
void add_pair(const Workspace& w, const Sizes& sizes, uint32_t pair, uint32_t halves) {
  tile_fence();
  float* sums = w.sums + 2 * pair * sizes.sums / 4;
  float* next = sums + sizes.sums / 4;
  for (uint32_t d = 0; d < 2 * sizes.steps; d += 2) {
    const uint8_t* values = w.values + 4 * d * kTileBytes;
    float *s0 = sums + d * kTileFloats, *n0 = next + d * kTileFloats, *s1 = s0 + kTileFloats, *n1 = n0 + kTileFloats;
    load_accumulators(s0, n0, s1, n1);
    for (uint32_t half = 0; half < halves; half++) {
      const size_t at = 2 * half * kTileBytes;
      multiply_tiles(values + at, values + 4 * kTileBytes + at, w.weights + at, w.weights + 4 * kTileBytes + at);
    }
    store_accumulators(s0, n0, s1, n1);
  }
  tile_fence();
}

// 2^x for x <= 0, relative error 2e-7: 2^n * (1 + f q(f)), |f| <= 1/2. No less than the smallest normal number.
inline __m512 exp2_of(__m512 x) {
  x = _mm512_max_ps(_mm512_set1_ps(-126.0f), x);
  const __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 f = _mm512_sub_ps(x, n);
  __m512 q = _mm512_set1_ps(1.33813499e-3f);
  q = _mm512_fmadd_ps(q, f, _mm512_set1_ps(9.66641679e-3f));
  q = _mm512_fmadd_ps(q, f, _mm512_set1_ps(5.5503808e-2f));
  q = _mm512_fmadd_ps(q, f, _mm512_set1_ps(2.40223482e-1f));
  q = _mm512_fmadd_ps(q, f, _mm512_set1_ps(6.93147182e-1f));
  return _mm512_scalef_ps(_mm512_fmadd_ps(q, f, _mm512_set1_ps(1.0f)), n);
}

// Scores of 16 queries and `count` keys from `start` as softmax wants them, in powers of two.
void hide_scores(float* scores, float softcap, uint32_t start, uint32_t count, __m512i first, __m512i last) {
  const __m512 cap = _mm512_set1_ps(softcap * kLog2e), none = _mm512_set1_ps(kNone);
  for (uint32_t key = 0; key < count; key++) {
    __m512 score = _mm512_load_ps(scores + 16 * key);
    if (softcap > 0) score = _mm512_mul_ps(cap, tanh_of<FloatsAvx512>(score));
    const __m512i index = _mm512_set1_epi32(static_cast<int>(start + key));
    const __mmask16 seen = _mm512_cmplt_epi32_mask(index, last) & _mm512_cmpge_epi32_mask(index, first);
    _mm512_store_ps(scores + 16 * key, _mm512_mask_mov_ps(none, seen, score));
  }
}

// Online softmax of 16 queries over 32 * halves keys: weights in pairs of keys, sums and totals shrunk.
void softmax_tile(const Workspace& w, const Sizes& sizes, uint32_t tile, uint32_t halves) {
  const uint32_t count = 32 * halves;
  const float* scores = w.scores + (tile & 1) * 4 * kTileFloats;
  uint8_t* weights = w.weights + (tile & 1) * 4 * kTileBytes;
  __m512 top[4];
  for (auto& t : top) t = _mm512_set1_ps(kNoneYet);
  for (uint32_t key = 0; key < count; key += 4)
    for (int i = 0; i < 4; i++) top[i] = _mm512_max_ps(_mm512_load_ps(scores + 16 * (key + i)), top[i]);
  const __m512 before = _mm512_load_ps(w.largest + 16 * tile);
  const __m512 found = _mm512_max_ps(_mm512_max_ps(top[0], top[1]), _mm512_max_ps(top[2], top[3]));
  const __m512 largest = _mm512_max_ps(found, before);
  __m512 total = _mm512_load_ps(w.totals + 16 * tile);
  if (_mm512_cmp_ps_mask(found, before, _CMP_GT_OQ)) {
    const __m512 shrink = exp2_of(_mm512_sub_ps(before, largest));
    float* sums = w.sums + tile * sizes.sums / 4;
    for (uint32_t d = 0; d < sizes.columns; d++)
      _mm512_store_ps(sums + 16 * d, _mm512_mul_ps(_mm512_load_ps(sums + 16 * d), shrink));
    total = _mm512_mul_ps(total, shrink);
    _mm512_store_ps(w.largest + 16 * tile, largest);
  }
  for (uint32_t key = 0; key < count; key += 2) {
    const __m512 a = exp2_of(_mm512_sub_ps(_mm512_load_ps(scores + 16 * key), largest));
    const __m512 b = exp2_of(_mm512_sub_ps(_mm512_load_ps(scores + 16 * key + 16), largest));
    total = _mm512_add_ps(total, _mm512_add_ps(a, b));
    const SplitVector split = split_pairs(a, b);
    uint8_t* row = weights + (key / 32) * 2 * kTileBytes + (key % 32) * 32;
    _mm512_store_si512(row, split.high);
    _mm512_store_si512(row + kTileBytes, split.low);
  }
  _mm512_store_ps(w.totals + 16 * tile, total);
}

// Queries of one head of keys and values, in order: all heads of a row, then the next row.
template <class Element>
class TilesPart : AttentionPart<FloatsAvx512, Element> {
  using Part = AttentionPart<FloatsAvx512, Element>;

 public:
  TilesPart(const Part& part, float* scratch)
      : Part(part),
        sizes_(this->args_.head_dim, this->queries()),
        w_(workspace_at(reinterpret_cast<uint8_t*>(scratch), sizes_)) {}

  // False where values are not finite: nothing is written then.
  bool attend() {
    begin_queries();
    const TileScope tiles;
    bool are_finite = true;
    this->each_block([&](const CacheBlock<Element>& block, uint32_t, bool) {
      if (!are_finite) return;
      convert_keys(block, sizes_.steps, w_.keys);
      are_finite = convert_values(block, sizes_.steps, w_.values);
      if (are_finite) attend_block(block);
    });
    if (are_finite) end_queries();
    return are_finite;
  }

 private:
  size_t place_of_query(uint32_t query) const {
    return this->place_of(this->row_of(query), this->head_of(this->kv_first_, query));
  }

  void begin_queries() {
    const ScoreRule& rule = this->args_.rule;
    const float scale = rule.softcap > 0 ? rule.scale / rule.softcap : rule.scale * kLog2e;
    for (uint32_t tile = 0; tile < sizes_.query_tiles; tile++) {
      const float* rows[16] = {};
      for (uint32_t i = 0; i < 16; i++) {
        const uint32_t query = 16 * tile + i;
        const bool exists = query < this->queries();
        if (exists) rows[i] = this->args_.q + place_of_query(query);
        const uint32_t position = this->run_.position + this->row_of(query);
        // Queries that do not exist see nothing.
        w_.first[query] = exists ? static_cast<int32_t>(this->args_.first_seen(position)) : INT32_MAX;
        w_.last[query] = exists ? static_cast<int32_t>(position + 1) : 0;
        const PartialResult first = first_result(this->args_, this->head_of(this->kv_first_, query));
        w_.largest[query] = first.total > 0 ? first.largest * kLog2e : first.largest;
        w_.totals[query] = first.total;
      }
      convert_queries(rows, this->args_.head_dim, sizes_.steps, scale, w_.queries + tile * sizes_.queries);
    }
    memset(w_.sums, 0, sizes_.query_tiles * sizes_.sums);
  }

  // Halves of a block that some query of the pair sees up to. Queries are in the order of rows: the first one sees from
  // the earliest key, the last one to the latest.
  uint32_t halves(const CacheBlock<Element>& block, uint32_t pair) const {
    const uint32_t last_query = std::min(this->queries(), kPair * (pair + 1)) - 1;
    const uint32_t from = static_cast<uint32_t>(w_.first[kPair * pair]),
                   to = static_cast<uint32_t>(w_.last[last_query]);
    const bool sees = to > block.start && from < block.start + block.last;
    return sees ? ceil_div(std::min(to - block.start, block.last), 32) : 0;
  }

  // The next pair that sees anything.
  uint32_t seeing(const CacheBlock<Element>& block, uint32_t pair) const {
    while (pair < sizes_.query_tiles / 2 && halves(block, pair) == 0) pair++;
    return pair;
  }

  void soften(uint32_t start, uint32_t pair, uint32_t halves) const {
    const float softcap = this->args_.rule.softcap;
    for (uint32_t tile = 2 * pair; tile < 2 * pair + 2; tile++) {
      const __m512i first = _mm512_load_si512(w_.first + 16 * tile), last = _mm512_load_si512(w_.last + 16 * tile);
      const __m512i begin = _mm512_set1_epi32(static_cast<int>(start));
      const __m512i end = _mm512_set1_epi32(static_cast<int>(start + 32 * halves));
      const bool some_unseen = _mm512_cmplt_epi32_mask(last, end) | _mm512_cmpgt_epi32_mask(first, begin);
      if (some_unseen || softcap > 0)
        hide_scores(w_.scores + (tile & 1) * 4 * kTileFloats, softcap, start, 32 * halves, first, last);
      softmax_tile(w_, sizes_, tile, halves);
    }
  }

  // The next pair's scores are made between a pair's softmax and its products with values: what vectors stored has then
  // reached the cache when tiles load it, and the other way around.
  void attend_block(const CacheBlock<Element>& block) const {
    const uint32_t pairs = sizes_.query_tiles / 2;
    uint32_t pair = seeing(block, 0);
    if (pair < pairs) score_pair(w_, sizes_, pair, halves(block, pair));
    while (pair < pairs) {
      const uint32_t own = halves(block, pair), next = seeing(block, pair + 1);
      soften(block.start, pair, own);
      if (next < pairs) score_pair(w_, sizes_, next, halves(block, next));
      add_pair(w_, sizes_, pair, own);
      pair = next;
    }
  }

  // Sums [columns][queries] divided by the totals to rows of y.
  void end_queries() const {
    const uint32_t dim = this->args_.head_dim;
    for (uint32_t tile = 0; 16 * tile < this->queries(); tile++) {
      const __m512 inverse = _mm512_div_ps(_mm512_set1_ps(1.0f), _mm512_load_ps(w_.totals + 16 * tile));
      for (uint32_t d = 0; d < dim; d += 16) {
        const float* sums = w_.sums + tile * sizes_.sums / 4 + 16 * d;
        __m512i rows[16];
        for (int i = 0; i < 16; i++)
          rows[i] = _mm512_castps_si512(_mm512_mul_ps(_mm512_load_ps(sums + 16 * i), inverse));
        transpose16(rows);
        for (uint32_t i = 0; i < std::min(16u, this->queries() - 16 * tile); i++)
          FloatsAvx512::store_some(this->args_.y + place_of_query(16 * tile + i) + d, _mm512_castsi512_ps(rows[i]),
                                   std::min(16u, dim - d));
      }
    }
  }

  Sizes sizes_;
  Workspace w_;
};

// Queries of one head of keys and values that make up for tiles of these; fewer stay on vectors of floats.
constexpr uint32_t kTileQueries = 64;
// Rows from which tiles serve a cache of float32, where they pay best. They lose what halves and integers have lost
// already, so pages of float32, which say that exactness is wanted, stay on vectors.
constexpr uint32_t kFloatRows = 128;

template <class Element>
bool is_for_tiles(const AttentionArgs& args, const Run& run) {
  if (std::is_same_v<Element, float> && (args.pages || run.rows < kFloatRows)) return false;
  return run.rows > kFewRows && run.rows * args.group >= kTileQueries;
}

template <class Element>
void amx_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread) {
  if (phase != 1) return attention_run<FloatsAvx512, Element>(step, phase, tile, thread);
  const AttentionArgs& args = step.as<AttentionArgs>();
  float* scratch = thread_scratch(args, thread);
  each_part(args, tile, step.tiles[1], [&](const AttentionJob& job, uint32_t index) {
    const AttentionPart<FloatsAvx512, Element> part(args, job, index);
    if constexpr (std::is_same_v<Element, int8_t>) {
      if (!is_for_tiles<Element>(args, job.run)) return IntegersPart(part, scratch).attend();
    }
    // Vectors leave out values that are not finite for the queries that do not see them.
    if (!is_for_tiles<Element>(args, job.run) || !TilesPart<Element>(part, scratch).attend())
      attend_part<FloatsAvx512>(part, scratch);
  });
}

// Most floats of the queries of a part. With their sums they take 8 bytes each, and stay in the second cache.
constexpr uint32_t kPartFloats = 65536;
// What converting keys and values costs, in queries that are multiplied with them.
constexpr uint32_t kConvertCost = 40;

// Rows of a part such that threads are done soonest: pairs of tiles are filled, and keys are converted for few parts.
uint32_t rows_for_tiles(const AttentionArgs& args) {
  const uint32_t most = std::max(1u, kPartFloats / args.head_dim / args.group);
  uint32_t best = 0;
  uint64_t least = UINT64_MAX;
  for (uint32_t parts = ceil_div(args.rows, most); parts <= std::min(args.rows, 16 * args.threads); parts++) {
    const uint32_t rows = ceil_div(args.rows, parts);
    const uint64_t cost = round_up(rows * args.group, kPair) + kConvertCost;
    const uint64_t longest = ceil_div(args.kv_heads * parts, args.threads) * cost;
    if (longest < least) {
      least = longest;
      best = rows;
    }
  }
  return best > 0 ? best : most;
}

// Of the integers of all heads of few rows, or of one head.
size_t integers_bytes(const AttentionArgs& args) {
  const uint32_t few = std::min(args.rows, kFewRows) * args.group;
  const uint32_t many = std::max(few, args.rows_per_tile * args.group);
  const IntegersScratch of_few(args.head_dim, args.kv_heads, few), of_many(args.head_dim, 1, many);
  return round_up(std::max(of_few.bytes, of_many.bytes), 64);
}

// The same numbers, with parts for tiles, and scratch for these.
AttentionArgs with_tiles(AttentionArgs args) {
  args.rows_per_tile = rows_for_tiles(args);
  const Sizes sizes(args.head_dim, args.rows_per_tile * args.group);
  args.thread_floats = std::max(floats_of_thread<FloatsAvx512>(args), round_up(sizes.bytes(), 64) / 4);
  args.thread_floats = std::max(args.thread_floats, integers_bytes(args) / 4);
  return args;
}

void begin_tiles(Step& step, const AttentionArgs& args, CacheType type) {
  begin_attention<FloatsAvx512>(step, args, type);
  switch (type) {
    case CacheType::kFloats: step.run = amx_run<float>; break;
    case CacheType::kHalves: step.run = amx_run<uint16_t>; break;
    case CacheType::kIntegers: step.run = amx_run<int8_t>; break;
  }
}

size_t cache_scratch(const Call& call) { return 4 * attention_floats(with_tiles(cache_args<FloatsAvx512>(call))); }

void cache_prepare(Step& step, const Call& call) {
  AttentionArgs args = with_tiles(cache_args<FloatsAvx512>(call));
  bind_cache(args, call);
  begin_tiles(step, args, scalar_of<CacheType>(call, attention::kCacheType));
}

size_t pages_scratch(const Call& call) { return 4 * attention_floats(with_tiles(pages_args<FloatsAvx512>(call))); }

void pages_prepare(Step& step, const Call& call) {
  AttentionArgs args = with_tiles(pages_args<FloatsAvx512>(call));
  bind_pages(args, call);
  begin_tiles(step, args, scalar_of<CacheType>(call, update_and_attend::kCacheType));
}

constexpr uint32_t kNeeds = kAvx2 | kAvx512 | kAvx512Bf16 | kAmxBf16 | kAmxInt8;

constexpr KernelRow kRows[] = {
    {"attention_f32_16x1x32_amx", "attention", nullptr, 0, kNeeds, 16, 1, cache_scratch, cache_prepare},
    {"rope_attention_f32_16x1x32_amx", "rope_attention", nullptr, 0, kNeeds, 16, 1,
     rope_attention_scratch<cache_scratch>, rope_attention_prepare<FloatsAvx512, cache_prepare>},
    {"update_and_attend_f32_16x1x32_amx", "update_and_attend", nullptr, 0, kNeeds, 16, 1, pages_scratch, pages_prepare},
    {"rope_update_and_attend_f32_16x1x32_amx", "rope_update_and_attend", nullptr, 0, kNeeds, 16, 1,
     rope_attention_scratch<pages_scratch>, rope_update_and_attend_prepare<FloatsAvx512, pages_prepare>},
};

}  // namespace

KernelRows attention_amx_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
