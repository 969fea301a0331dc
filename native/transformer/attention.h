// Causal grouped-query attention over a KV cache, in two ways to split it among threads: few queries over many keys are
// split by keys and merged at the end, so that the cache is read once and in order; many queries are split by head and
// token. A position outside of the cache gives NaN and writes nothing: a kernel cannot raise errors; operators check.
#pragma once

#include "../families.h"
#include "attention_block.h"
#include "embedding.h"

namespace lowbit {

struct AttentionArgs {
  const float* q;
  // Null where the caches hold the new keys and values already.
  const float* k;
  const float* v;
  void* key_cache;
  void* value_cache;
  // [capacity][kv_heads], of caches of integers.
  float* key_scales;
  float* value_scales;
  const int64_t* position;
  float* y;
  float* scratch;
  uint32_t tokens, heads, kv_heads, head_dim, capacity, window;
  // Query heads of one head of keys and values.
  uint32_t group;
  // Pairs of dimensions of a head that are rotated, in steps of rope_attention.
  uint32_t half;
  ScoreRule rule;
  uint32_t threads;
  // Parts of the keys with results of their own; 0 when tiles are heads and tokens.
  uint32_t splits;
  uint32_t tokens_per_tile, stored_per_tile;
  // Most vectors of queries of a tile, and queries of one vector.
  uint32_t vectors, lane_rows;
  // Floats of one thread's scratch, and of one split's results.
  size_t thread_floats, split_floats;
  // What `position` was when `now` made this copy.
  int64_t start;

  // The arguments of a tile: the position is read once, so that what was checked is what is used.
  AttentionArgs now() const {
    AttentionArgs args = *this;
    args.start = *static_cast<const volatile int64_t*>(position);
    return args;
  }
  size_t stride() const { return static_cast<size_t>(kv_heads) * head_dim; }
  bool fits() const { return start >= 0 && start <= static_cast<int64_t>(capacity) - tokens; }
  // First key that a query at `token` sees, and the one after the last.
  uint32_t first_key(uint32_t token) const {
    const int64_t end = last_key(token);
    return window > 0 && end > window ? static_cast<uint32_t>(end - window) : 0;
  }
  uint32_t last_key(uint32_t token) const { return static_cast<uint32_t>(start) + token + 1; }
};
static_assert(sizeof(AttentionArgs) <= kArgsMax);

// Results of one split: largest and total [tokens][heads], then sums [tokens][heads][dim].
struct SplitResults {
  float* largest;
  float* totals;
  float* sums;
};

template <class Isa>
SplitResults results_of(const AttentionArgs& args, uint32_t split) {
  float* at = args.scratch + args.threads * args.thread_floats + split * args.split_floats;
  const size_t rows = static_cast<size_t>(args.tokens) * args.heads;
  return {at, at + rows, at + 2 * rows};
}

// Integers and scale of one row of a head: largest / 127; rows of next to nothing become zeros. The scale of a row with
// an infinite value or NaN is NaN.
template <class Isa>
float store_integers(const float* x, uint32_t dim, int8_t* target) {
  constexpr float kLeast = 1e-30f;
  Magnitude<Isa> magnitude;
  each_vector<Isa>(dim, [&](size_t d, auto vector) { magnitude.add(vector.load(x + d)); });
  const float largest = magnitude.largest();
  const auto inverse = Isa::set(largest < kLeast ? 0.0f : 127.0f / largest);
  each_vector<Isa>(dim, [&](size_t d, auto vector) { vector.store(target + d, vector.load(x + d) * inverse); });
  return (largest < kLeast ? 0.0f : largest / 127.0f) + magnitude.unless_finite();
}

// New keys and values into the cache.
template <class Isa, class Element>
void store_tokens(const AttentionArgs& args, uint32_t first, uint32_t last) {
  const size_t stride = args.stride();
  const size_t position = static_cast<size_t>(args.start) + first;
  const size_t target = position * stride, source = first * stride;
  Element* keys = static_cast<Element*>(args.key_cache) + target;
  Element* values = static_cast<Element*>(args.value_cache) + target;
  if constexpr (std::is_same_v<Element, int8_t>) {
    float* key_scales = args.key_scales + position * args.kv_heads;
    float* value_scales = args.value_scales + position * args.kv_heads;
    for (size_t head = 0; head < static_cast<size_t>(last - first) * args.kv_heads; head++) {
      const size_t at = head * args.head_dim;
      key_scales[head] = store_integers<Isa>(args.k + source + at, args.head_dim, keys + at);
      value_scales[head] = store_integers<Isa>(args.v + source + at, args.head_dim, values + at);
    }
  } else {
    each_vector<Isa>((last - first) * stride, [&](size_t i, auto vector) {
      vector.store(keys + i, vector.load(args.k + source + i));
      vector.store(values + i, vector.load(args.v + source + i));
    });
  }
}

// Keys start .. start + count of the cache, from head `kv` on.
template <class Element>
KeyBlock<Element> key_block(const AttentionArgs& args, uint32_t kv, uint32_t start, uint32_t count) {
  const size_t at = start * args.stride() + static_cast<size_t>(kv) * args.head_dim;
  KeyBlock<Element> block{};
  block.keys = static_cast<const Element*>(args.key_cache) + at;
  block.values = static_cast<const Element*>(args.value_cache) + at;
  block.stride = args.stride();
  block.dim = args.head_dim;
  block.kv = kv;
  block.start = start;
  block.count = count;
  block.apart = 1;
  block.step = kPlaces;
  if constexpr (std::is_same_v<Element, int8_t>) {
    block.key_scales = args.key_scales + static_cast<size_t>(start) * args.kv_heads + kv;
    block.value_scales = args.value_scales + static_cast<size_t>(start) * args.kv_heads + kv;
    block.scale_stride = args.kv_heads;
  }
  return block;
}

// Lets the block after this one be fetched meanwhile.
template <class Element>
void fetch_next(KeyBlock<Element>& block) {
  block.ahead[0] = kBlockKeys * block.stride;
  block.ahead[1] = block.values - block.keys + kBlockKeys * block.stride;
}

// Queries of a tile: tokens first .. last of the heads that share keys and values kv_first .. kv_last. Sums have rows
// [token - first][head][dim].
struct QueryTile {
  uint32_t first, last, kv_first, kv_last;
  float* sums;
};

// How the queries of a head of keys and values fill vectors: lanes that they leave are for more keys.
template <class Isa>
struct LaneShape {
  uint32_t lane_rows, vectors;

  LaneShape(uint32_t queries_per_kv, uint32_t kv_heads) : lane_rows(1) {
    while (lane_rows < queries_per_kv && lane_rows < Isa::kLanes) lane_rows *= 2;
    vectors = kv_heads * ceil_div(queries_per_kv, lane_rows);
  }
};

// Where the parts of one thread's scratch begin, in floats.
template <class Isa>
struct ThreadScratch {
  size_t queries, q, scores, copy, floats;
  // Of one vector.
  size_t q_floats, score_floats;

  explicit ThreadScratch(const AttentionArgs& args) {
    q_floats = args.lane_rows * round_up(args.head_dim, Isa::kLanes);
    score_floats = round_up(kSplitBlockKeys * args.lane_rows, Isa::kLanes);
    queries = 0;
    q = round_up(args.vectors * sizeof(QueryVector<Isa>), 64) / 4;
    scores = q + args.vectors * q_floats;
    copy = scores + std::max<size_t>(kBlockKeys * Isa::kLanes, args.vectors * score_floats);
    floats = round_up(copy + 2 * kBlockKeys * static_cast<size_t>(args.head_dim), 16);
  }
};

// Fills one vector with queries row .. of head `kv` of a tile.
template <class Isa>
void begin_vector(const AttentionArgs& args, const QueryTile& tile, uint32_t kv, uint32_t row, QueryVector<Isa>& v) {
  v.kv = kv;
  v.lane_rows = args.lane_rows;
  v.rows = std::min((tile.last - tile.first) * args.group - row, v.lane_rows);
  v.earliest = UINT32_MAX;
  v.latest = 0;
  for (uint32_t lane = 0; lane < Isa::kLanes; lane++) {
    const uint32_t own = lane % v.lane_rows, r = row + std::min(own, v.rows - 1);
    const uint32_t token = tile.first + r / args.group;
    const uint32_t first = args.first_key(token), last = args.last_key(token);
    v.earliest = std::min(v.earliest, first);
    v.latest = std::max(v.latest, last);
    v.first[lane] = static_cast<float>(first);
    v.last[lane] = static_cast<float>(last);
    v.largest[lane] = kNoneYet;
    v.totals[lane] = 0;
    if (lane >= v.lane_rows) continue;
    const uint32_t head = kv * args.group + r % args.group;
    const float* q = args.q + (static_cast<size_t>(token) * args.heads + head) * args.head_dim;
    v.sums[lane] = tile.sums + (static_cast<size_t>(token - tile.first) * args.heads + head) * args.head_dim;
    const auto scale = Isa::set(args.rule.scale);
    each_vector<Isa>(args.head_dim, [&](size_t d, auto vector) {
      Isa::store(v.q + d * v.lane_rows + lane * Isa::kLanes, vector.load(q + d) * scale);
      vector.store(v.sums[lane] + d, Isa::set(0));
    });
  }
}

// All vectors of a tile; returns how many.
template <class Isa>
uint32_t begin_vectors(const AttentionArgs& args, const QueryTile& tile, float* scratch, QueryVector<Isa>* vectors) {
  const ThreadScratch<Isa> parts(args);
  uint32_t count = 0;
  for (uint32_t kv = tile.kv_first; kv < tile.kv_last; kv++)
    for (uint32_t row = 0; row < (tile.last - tile.first) * args.group; row += args.lane_rows, count++) {
      vectors[count].q = scratch + parts.q + count * parts.q_floats;
      begin_vector<Isa>(args, tile, kv, row, vectors[count]);
    }
  return count;
}

// Keys and values of one head as contiguous floats: strided rows would share few sets of the first cache.
template <class Isa, class Element>
KeyBlock<float> copy_block(const KeyBlock<Element>& block, float* target) {
  float* values = target + kBlockKeys * block.dim;
  for (uint32_t key = 0; key < block.count; key++) {
    fetch_ahead(block, block.keys + key * block.stride);
    auto key_scale = Isa::set(1), value_scale = key_scale;
    if constexpr (std::is_same_v<Element, int8_t>) {
      key_scale = Isa::set(block.key_scales[key * block.scale_stride]);
      value_scale = Isa::set(block.value_scales[key * block.scale_stride]);
    }
    each_vector<Isa>(block.dim, [&](size_t d, auto vector) {
      vector.store(target + key * block.dim + d, vector.load(block.keys + key * block.stride + d) * key_scale);
      vector.store(values + key * block.dim + d, vector.load(block.values + key * block.stride + d) * value_scale);
    });
  }
  KeyBlock<float> copy{};
  copy.keys = target;
  copy.values = values;
  copy.stride = copy.dim = block.dim;
  copy.apart = block.apart;
  copy.step = block.step;
  copy.kv = block.kv;
  copy.start = block.start;
  copy.count = block.count;
  return copy;
}

// Keys begin .. end for some vectors of queries of one head of keys and values, block by block; the next block is
// fetched meanwhile.
template <class Isa, class Element>
void attend_keys(const AttentionArgs& args, QueryVector<Isa>* vectors, uint32_t count, uint32_t begin, uint32_t end,
                 float* scratch) {
  const ThreadScratch<Isa> parts(args);
  for (uint32_t start = begin; start < end; start += kBlockKeys) {
    KeyBlock<Element> block = key_block<Element>(args, vectors[0].kv, start, std::min(kBlockKeys, end - start));
    fetch_next(block);
    if (count == 1) {
      attend_block<Isa>(vectors[0], block, args.rule, scratch + parts.scores);
      continue;
    }
    const KeyBlock<float> copied = copy_block<Isa>(block, scratch + parts.copy);
    for (uint32_t i = 0; i < count; i++) attend_block<Isa>(vectors[i], copied, args.rule, scratch + parts.scores);
  }
}

// Keys begin .. end, all of which some query sees, for vectors of queries of all heads: a block of keys for all heads,
// then the next. Keys come from `places`, 1 or kPlaces, of the cache side by side.
template <class Isa, class Element>
void attend_places(const AttentionArgs& args, QueryVector<Isa>* vectors, uint32_t count, uint32_t begin, uint32_t end,
                   uint32_t places, float* scratch) {
  const uint32_t rows = (end - begin) / places;
  const uint32_t rows_per_block = kSplitBlockKeys / places;
  const ThreadScratch<Isa> parts(args);
  float* scores = scratch + parts.scores;
  for (uint32_t row = 0; row < rows; row += rows_per_block) {
    const uint32_t keys = std::min(rows_per_block, rows - row) * places;
    KeyBlock<Element> block = key_block<Element>(args, 0, begin + row, keys);
    if (places > 1) {
      block.apart = rows;
      block.step = 1;
    }
    block.ahead[0] = block.values - block.keys;
    score_block(vectors, count, block, 0, keys, scores, parts.score_floats);
    for (uint32_t i = 0; i < count; i++)
      weigh_block(vectors[i], block, 0, keys, args.rule.softcap, scores + i * parts.score_floats);
    for (uint32_t i = 0; i < count; i++) add_values(vectors[i], block, 0, keys, scores + i * parts.score_floats);
  }
}

// Calls body(vector, row) for every query.
template <class Isa, class Body>
void each_query(const QueryVector<Isa>* vectors, uint32_t count, Body&& body) {
  for (uint32_t i = 0; i < count; i++)
    for (uint32_t row = 0; row < vectors[i].rows; row++) body(vectors[i], row);
}

// A tile of queries over all keys that they see.
template <class Isa, class Element>
void attend_queries(const AttentionArgs& args, uint32_t tile, float* scratch) {
  // One head after the other, so that its keys stay in the cache; last tokens first, as they see most keys.
  const uint32_t parts = ceil_div(args.tokens, args.tokens_per_tile);
  const uint32_t kv = tile / parts, part = parts - 1 - tile % parts;
  const uint32_t first = part * args.tokens_per_tile, last = std::min(args.tokens, first + args.tokens_per_tile);
  float* y = args.y + static_cast<size_t>(first) * args.heads * args.head_dim;
  auto* vectors = reinterpret_cast<QueryVector<Isa>*>(scratch);
  const uint32_t count = begin_vectors<Isa>(args, {first, last, kv, kv + 1, y}, scratch, vectors);
  if constexpr (kScoresWords<Isa, Element>)
    if (count == 1) words_of_query<Isa>(vectors[0], args.head_dim);
  attend_keys<Isa, Element>(args, vectors, count, args.first_key(first), args.last_key(last - 1), scratch);
  each_query<Isa>(vectors, count, [&](const QueryVector<Isa>& queries, uint32_t row) {
    const auto inverse = Isa::set(1 / queries.total(row));
    float* sums = queries.sums[row];
    each_vector<Isa>(args.head_dim,
                     [&](size_t d, auto vector) { vector.store(sums + d, vector.load(sums + d) * inverse); });
  });
}

// Keys of a split: equal parts of all keys, in steps that suit the vectors, or blocks where parts are of several.
struct KeyRange {
  uint32_t begin, end;
};

template <class Isa>
KeyRange split_keys(const AttentionArgs& args, uint32_t split) {
  constexpr uint32_t kLeast = 32, kStep = 16, kBlocks = 4;
  const uint32_t first = args.first_key(0), last = args.last_key(args.tokens - 1);
  const uint32_t even = ceil_div(last - first, args.splits);
  const uint32_t step = even >= kBlocks * kSplitBlockKeys ? kSplitBlockKeys : kStep;
  const uint32_t share = std::max(kLeast, ceil_div(even, step) * step);
  const uint32_t begin = std::min(last, first + split * share);
  return {begin, std::min(last, begin + share)};
}

// All queries over one part of the keys.
template <class Isa, class Element>
void attend_split(const AttentionArgs& args, uint32_t split, float* scratch) {
  const KeyRange keys = split_keys<Isa>(args, split);
  if (keys.begin == keys.end) return;
  const SplitResults results = results_of<Isa>(args, split);
  auto* vectors = reinterpret_cast<QueryVector<Isa>*>(scratch);
  const QueryTile tile = {0, args.tokens, 0, args.kv_heads, results.sums};
  const uint32_t count = begin_vectors<Isa>(args, tile, scratch, vectors);
  if constexpr (kScoresWords<Isa, Element>)
    for (uint32_t i = 0; i < count; i++) words_of_query<Isa>(vectors[i], args.head_dim);
  const uint32_t rest = keys.begin + (keys.end - keys.begin) / kPlaces * kPlaces;
  attend_places<Isa, Element>(args, vectors, count, keys.begin, rest, kPlaces, scratch);
  attend_places<Isa, Element>(args, vectors, count, rest, keys.end, 1, scratch);
  each_query<Isa>(vectors, count, [&](const QueryVector<Isa>& queries, uint32_t row) {
    const size_t at = static_cast<size_t>(queries.sums[row] - results.sums) / args.head_dim;
    results.largest[at] = queries.largest[row];
    results.totals[at] = queries.total(row);
  });
}

// One row of y from the results of all splits that have keys.
template <class Isa>
void merge_row(const AttentionArgs& args, uint32_t splits, size_t row) {
  float largest = -INFINITY;
  for (uint32_t s = 0; s < splits; s++) largest = std::max(largest, results_of<Isa>(args, s).largest[row]);
  float* y = args.y + row * args.head_dim;
  memset(y, 0, 4 * static_cast<size_t>(args.head_dim));
  float total = 0;
  for (uint32_t s = 0; s < splits; s++) {
    const SplitResults results = results_of<Isa>(args, s);
    const float factor = Isa::first_lane(exp_of<Isa>(Isa::set(results.largest[row] - largest)));
    const float* sum = results.sums + row * args.head_dim;
    total += factor * results.totals[row];
    each_vector<Isa>(args.head_dim, [&](size_t d, auto vector) {
      vector.store(y + d, Isa::multiply_add(vector.load(sum + d), Isa::set(factor), vector.load(y + d)));
    });
  }
  const auto inverse = Isa::set(1 / total);
  each_vector<Isa>(args.head_dim, [&](size_t d, auto vector) { vector.store(y + d, vector.load(y + d) * inverse); });
}

// A part of the rows of y for each tile.
template <class Isa>
void merge_splits(const AttentionArgs& args, uint32_t tile, uint32_t tiles) {
  uint32_t splits = 0;
  while (splits < args.splits && split_keys<Isa>(args, splits).begin < split_keys<Isa>(args, splits).end) splits++;
  const size_t rows = static_cast<size_t>(args.tokens) * args.heads;
  for (size_t row = rows * tile / tiles; row < rows * (tile + 1) / tiles; row++) merge_row<Isa>(args, splits, row);
}

// Phases: store, attend, and with splits merge.
template <class Isa, class Element>
void attention_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread) {
  const AttentionArgs args = step.as<AttentionArgs>().now();
  if (!args.fits()) {
    if (phase == 0 && tile == 0) fill_nan(args.y, static_cast<size_t>(args.tokens) * args.heads * args.head_dim);
    return;
  }
  float* scratch = args.scratch + thread * args.thread_floats;
  if (phase == 0) {
    const uint32_t first = tile * args.stored_per_tile;
    if (args.k) store_tokens<Isa, Element>(args, first, std::min(args.tokens, first + args.stored_per_tile));
  } else if (phase == 2) {
    merge_splits<Isa>(args, tile, step.tiles[2]);
  } else if (args.splits > 0) {
    attend_split<Isa, Element>(args, tile, scratch);
  } else {
    attend_queries<Isa, Element>(args, tile, scratch);
  }
}

// Tiles of about 64 rows that share their keys, smaller when there are threads to feed.
template <class Isa>
uint32_t tokens_of_tile(const AttentionArgs& args) {
  const uint32_t tiles_wanted = ceil_div(4 * args.threads, args.kv_heads);
  const uint32_t by_rows = std::max(1u, 64 / args.group);
  return std::max(1u, std::min(by_rows, args.tokens / tiles_wanted));
}

template <class Isa>
AttentionArgs attention_args(const Call& call) {
  AttentionArgs args{};
  args.tokens = scalar_of<uint32_t>(call, attention::kTokens);
  args.heads = scalar_of<uint32_t>(call, attention::kHeads);
  args.kv_heads = scalar_of<uint32_t>(call, attention::kKvHeads);
  args.head_dim = scalar_of<uint32_t>(call, attention::kHeadDim);
  args.capacity = scalar_of<uint32_t>(call, attention::kCapacity);
  args.rule = {scalar_of<float>(call, attention::kScale), scalar_of<float>(call, attention::kSoftcap)};
  // Longer ones show all, too, and need not fit 32 bits.
  args.window = static_cast<uint32_t>(
      std::min(scalar_of<double>(call, attention::kWindow), scalar_of<double>(call, attention::kCapacity)));
  args.group = args.heads / args.kv_heads;
  args.threads = call.threads;
  const size_t rows = static_cast<size_t>(args.tokens) * args.heads;
  const bool few_queries = args.tokens <= 4;
  args.splits = few_queries ? 2 * args.threads : 0;
  args.tokens_per_tile = few_queries ? args.tokens : tokens_of_tile<Isa>(args);
  const size_t stored_least = kTileValues / std::max<size_t>(1, args.stride());
  args.stored_per_tile = items_per_tile<Isa>(args.tokens, stored_least, args.threads);
  args.split_floats = round_up(rows * (args.head_dim + 2), 16);
  const LaneShape<Isa> shape(args.tokens_per_tile * args.group, few_queries ? args.kv_heads : 1);
  args.lane_rows = shape.lane_rows;
  args.vectors = shape.vectors;
  args.thread_floats = ThreadScratch<Isa>(args).floats;
  return args;
}

template <class Isa>
size_t attention_scratch(const Call& call) {
  const AttentionArgs args = attention_args<Isa>(call);
  return 4 * (args.threads * args.thread_floats + args.splits * args.split_floats);
}

// Buffers of the call and the tiles of each phase.
static inline void bind_attention(Step& step, const AttentionArgs& sizes, const Call& call) {
  AttentionArgs& args = step.init<AttentionArgs>();
  args = sizes;
  args.q = buffer_of<const float>(call, attention::kQ);
  if (scalar_of<bool>(call, attention::kStores)) {
    args.k = buffer_of<const float>(call, attention::kK);
    args.v = buffer_of<const float>(call, attention::kV);
  }
  args.key_cache = buffer_of<void>(call, attention::kKeyCache);
  args.value_cache = buffer_of<void>(call, attention::kValueCache);
  args.key_scales = buffer_of<float>(call, attention::kKeyScales);
  args.value_scales = buffer_of<float>(call, attention::kValueScales);
  args.position = buffer_of<const int64_t>(call, attention::kPosition);
  args.y = buffer_of<float>(call, attention::kY);
  args.scratch = buffer_of<float>(call, attention::kScratch);
  step.phases = args.splits > 0 ? 3 : 2;
  step.tiles[0] = args.k ? ceil_div(args.tokens, args.stored_per_tile) : 1;
  step.tiles[1] = args.splits > 0 ? args.splits : args.kv_heads * ceil_div(args.tokens, args.tokens_per_tile);
  step.tiles[2] = std::min(args.threads, ceil_div(args.tokens * args.heads * args.head_dim, 1024));
}

// What a cache holds, as numbered in src/kernels/native/families.ts.
enum class CacheType : uint32_t { kFloats, kHalves, kIntegers };

static inline CacheType cache_type(const Call& call) { return scalar_of<CacheType>(call, attention::kCacheType); }

template <class Isa>
void attention_prepare(Step& step, const Call& call) {
  bind_attention(step, attention_args<Isa>(call), call);
  switch (cache_type(call)) {
    case CacheType::kFloats: step.run = attention_run<Isa, float>; break;
    case CacheType::kHalves: step.run = attention_run<Isa, uint16_t>; break;
    case CacheType::kIntegers: step.run = attention_run<Isa, int8_t>; break;
  }
}

}  // namespace lowbit
