// Attention of many queries (prefill) on AMX, in the way of FlashAttention (Dao et al. 2022): scores and weighted sums
// are products of bf16 tiles. Over f16 and int8 caches all factors are rounded to bf16, and weights are off by up to
// 0.8 %. Over f32 caches each factor is a sum of two bf16 (split_bf16.h), and results are as exact as 16 bits of the
// largest terms.
//
// Scores are computed transposed, [keys][queries]. So a query is a lane in its softmax, and neither keys nor weights
// need transposing.
#include "../families/attention/rope_attention.h"
#include "../kernel.h"
#include "attention_pairs_amx.h"
#include "floats_avx512.h"

namespace lowbit {
namespace {

// bf16 parts of a factor.
template <class Element>
constexpr int kPartsOf = std::is_same_v<Element, float> ? 2 : 1;

// Queries of one KV head, ordered by token, then by query head.
template <class Element>
class TilesPart : SharedBlocksPart<FloatsAvx512, Element> {
  using Shared = SharedBlocksPart<FloatsAvx512, Element>;
  static constexpr int kParts = kPartsOf<Element>;
  static constexpr float kUnit = kLog2e * kSteps<kParts>;

 public:
  TilesPart(const AttentionPart<FloatsAvx512, Element>& part, float* scratch)
      : Shared(part),
        sizes_(this->args_.head_dim, this->queries(), kParts),
        w_(workspace_at(reinterpret_cast<uint8_t*>(scratch), sizes_)),
        expanded_(scratch + round_up(sizes_.bytes(), 64) / 4) {}

  // Returns false, and writes nothing, where a query, key or value is not finite.
  bool attend() {
    bool are_finite = begin_queries();
    const TileScope tiles;
    this->each_shared_block(expanded_, [&](const CacheBlock<Element>& block, QueryRange range) {
      if (!are_finite) return;
      if (count_ == sizes_.blocks) attend_blocks();
      are_finite = convert_keys<kParts>(block, sizes_.steps, w_.keys + count_ * sizes_.keys) &&
                   convert_values<kParts>(block, sizes_.steps, w_.values + count_ * sizes_.values);
      blocks_[count_++] = {block.start, block.last, range};
    });
    if (!are_finite) return false;
    attend_blocks();
    end_queries();
    return true;
  }

 private:
  size_t place_of_query(uint32_t query) const {
    return this->place_of(this->row_of(query), this->head_of(this->kv_first_, query));
  }

  bool begin_queries() {
    const ScoreRule& rule = this->args_.rule;
    const float scale = rule.softcap > 0 ? rule.scale / rule.softcap : rule.scale * kUnit;
    bool are_finite = true;
    for (uint32_t tile = 0; tile < sizes_.query_tiles; tile++) {
      const float* rows[16] = {};
      for (uint32_t i = 0; i < 16; i++) {
        const uint32_t query = 16 * tile + i;
        const bool exists = query < this->queries();
        if (exists) rows[i] = this->args_.q + place_of_query(query);
        const uint32_t position = this->run_.position + this->row_of(query);
        // Padding queries see no key.
        w_.first[query] = exists ? static_cast<int32_t>(this->args_.first_seen(position)) : INT32_MAX;
        w_.last[query] = exists ? static_cast<int32_t>(position + 1) : 0;
        const PartialResult first = first_result(this->args_, this->head_of(this->kv_first_, query));
        w_.largest[query] = first.total > 0 ? first.largest * kUnit : first.largest;
        w_.totals[query] = first.total;
      }
      are_finite = convert_queries<kParts>(rows, this->args_.head_dim, sizes_.steps, scale,
                                           w_.queries + tile * sizes_.queries) &&
                   are_finite;
    }
    memset(w_.sums, 0, sizes_.query_tiles * sizes_.sums);
    return are_finite;
  }

  // A block, converted to tiles, and the queries that may see it.
  struct Block {
    uint32_t start, last;
    QueryRange range;
  };

  // Queries are ordered by token: the first of a pair sees the earliest key, the last one the latest.
  Pair pair_of(uint32_t index, uint32_t at) const {
    if (at >= count_ || index >= sizes_.query_tiles / 2) return {index, at, 0};
    const Block& block = blocks_[at];
    const QueryRange own = {std::max(block.range.first, kPair * index),
                            std::min(block.range.last, kPair * (index + 1))};
    if (own.first >= own.last) return {index, at, 0};
    const uint32_t from = static_cast<uint32_t>(w_.first[own.first]), to = static_cast<uint32_t>(w_.last[own.last - 1]);
    const bool sees = to > block.start && from < block.start + block.last;
    return {index, at, sees ? ceil_div(std::min(to - block.start, block.last), 32) : 0};
  }

  // Mask of the queries, out of 16 from `query` on, that are in the range.
  static __mmask16 lanes_in_range(QueryRange range, uint32_t query) {
    const auto before = [&](uint32_t end) { return (1u << std::min(std::max(end, query) - query, 16u)) - 1; };
    return static_cast<__mmask16>(before(range.last) & ~before(range.first));
  }

  void hide(Pair pair) const {
    if (pair.halves == 0) return;
    const Block& block = blocks_[pair.block];
    const float cap = this->args_.rule.softcap * kUnit;
    for (uint32_t i = 0; i < 2; i++) {
      const uint32_t tile = 2 * pair.index + i, count = 32 * pair.halves;
      const __m512i first = _mm512_load_si512(w_.first + 16 * tile);
      const __m512i last = _mm512_maskz_load_epi32(lanes_in_range(block.range, 16 * tile), w_.last + 16 * tile);
      const __m512i begin = _mm512_set1_epi32(static_cast<int>(block.start));
      const __m512i end = _mm512_set1_epi32(static_cast<int>(block.start + count));
      const bool some_unseen = _mm512_cmplt_epi32_mask(last, end) | _mm512_cmpgt_epi32_mask(first, begin);
      if (some_unseen || cap > 0) hide_scores(w_.scores + 4 * i * kTileFloats, cap, block.start, count, first, last);
    }
  }

  // Attends with two pairs of query tiles at a time to all blocks, so that their sums stay in the first-level cache.
  void attend_blocks() {
    for (uint32_t index = 0; index < sizes_.query_tiles / 2; index += 2) {
      uint32_t first = 0, last = count_;
      const auto sees = [&](uint32_t at) { return pair_of(index, at).halves + pair_of(index + 1, at).halves > 0; };
      while (first < last && !sees(first)) first++;
      while (first < last && !sees(last - 1)) last--;
      if (first < last) attend_pairs(index, first, last);
    }
    count_ = 0;
  }

  // A software pipeline in which the two pairs take turns. In a turn:
  //   1. tiles multiply the pair's weights with values; vectors add the products of the turn before to the sums, and
  //      find the largest scores of the turn after;
  //   2. tiles compute the scores of the turn after that; vectors turn the scores of the turn after into weights.
  // New products and scores replace those that vectors have read. What vectors store reaches the cache long before
  // tiles load it, and the other way around. A pair's sums shrink between the two: its former products are added, its
  // next ones not begun.
  void attend_pairs(uint32_t index, uint32_t first, uint32_t last) const {
    const ExponentConstants constants;
    const Pair none = {index, first, 0};
    Pair adding = none, multiplying = none, softening = none, scoring = pair_of(index, first);
    for (uint32_t turn = 0; turn < 2 * (last - first) + 3; turn++) {
      hide(softening);
      Softmax<kParts> softmax(w_, sizes_, softening, w_.weights, constants);
      Additions additions(w_, sizes_, adding);
      const auto add_and_compare = [&]() LOWBIT_INLINE {
        tile_fence();
        if (additions.any()) additions.some();
        if (softmax.any_unknown()) softmax.compare();
        else tile_gap();
        tile_fence();
      };
      multiply_pair<kParts>(w_, sizes_, multiplying, w_.weights, add_and_compare,
                            [&](uint32_t step) LOWBIT_INLINE {
                              additions.until(w_.products + (step + 1) * 4 * kTileFloats);
                            });
      additions.until(w_.products + sizes_.products / 4);
      softmax.begin_weights();
      const auto weigh = [&]() LOWBIT_INLINE {
        tile_fence();
        if (softmax.any_left()) softmax.weigh();
        else tile_gap();
        tile_fence();
      };
      score_pair<kParts>(w_, sizes_, scoring, weigh,
                         [&](uint32_t half) LOWBIT_INLINE { softmax.until(half + 1); });
      softmax.end();
      tile_fence();
      adding = multiplying;
      multiplying = softening;
      softening = scoring;
      const uint32_t next = turn + 1;
      scoring = next < 2 * (last - first) ? pair_of(index + next % 2, first + next / 2) : none;
    }
  }

  // Divides sums [columns][queries] by the totals and stores them as rows of y.
  void end_queries() const {
    const uint32_t dim = this->args_.head_dim;
    for (uint32_t tile = 0; 16 * tile < this->queries(); tile++) {
      const __m512 inverse = _mm512_div_ps(_mm512_set1_ps(1.0f), _mm512_load_ps(w_.totals + 16 * tile));
      for (uint32_t d = 0; d < dim; d += 16) {
        const float* sums =
            w_.sums + tile / 2 * sizes_.sums / 2 + (d / 32 * 4 + tile % 2 * 2) * kTileFloats + d % 32 * 16;
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
  float* expanded_;
  // The number of blocks that are tiles now.
  uint32_t count_ = 0;
  Block blocks_[kBlocksMost];
};

// Fewest tokens with which tiles serve a contiguous f32 cache. f32 pages, which ask for exactness, stay on vectors.
constexpr uint32_t kFloatRows = 128;

template <class Element>
bool is_for_tiles(const AttentionArgs& args, const Run& run) {
  if constexpr (std::is_same_v<Element, float>) return !args.pages && run.rows >= kFloatRows;
  else return run.is_prefill;
}

template <class Element, bool IsInt4 = false>
void amx_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread) {
  if (phase != 1 && IsInt4) return int4_run<BytesAvx512Vnni>(step, phase, tile, thread);
  if (phase != 1) return attention_run<FloatsAvx512, Element>(step, phase, tile, thread);
  const AttentionArgs& args = step.as<AttentionArgs>();
  float* scratch = thread_scratch(args, thread);
  each_part(args, tile, step.tiles[1], [&](const AttentionJob& job, uint32_t index) {
    const AttentionPart<FloatsAvx512, Element> part(args, job, index);
    // Tiles refuse values that are not finite. Vectors leave them out for queries that do not see them.
    if (is_for_tiles<Element>(args, job.run) && TilesPart<Element>(part, scratch).attend()) return;
    if constexpr (IsInt4) Int4Part<BytesAvx512Vnni>(part, scratch).attend();
    else attend_part<FloatsAvx512>(part, scratch);
  });
}

// Most floats of a part's queries. Each takes 8 bytes with its sum, and all stay in the second-level cache.
constexpr uint32_t kPartFloats = 131072;
// Cost of converting a block's keys and values, in queries.
constexpr uint32_t kConvertCost = 80;

// Sizes parts for tiles, and the scratch these need.
AttentionArgs with_tiles(AttentionArgs args) {
  args.rows_per_tile = rows_of_copies(args, kPartFloats / args.head_dim, {kPair, kConvertCost});
  const Sizes sizes(args.head_dim, args.rows_per_tile * args.group, kPartsOf<float>);
  const size_t of_tiles = round_up(sizes.bytes(), 64) / 4 + expanded_floats(args);
  args.thread_floats = std::max(floats_of_thread<FloatsAvx512>(args), of_tiles);
  return args;
}

size_t cache_scratch(const Call& call) { return 4 * attention_floats(with_tiles(cache_args<FloatsAvx512>(call))); }

void cache_prepare(Step& step, const Call& call) {
  AttentionArgs args = with_tiles(cache_args<FloatsAvx512>(call));
  bind_cache(args, call);
  begin_attention(step, args);
  step.run = amx_run<float>;
}

AttentionArgs tile_pages_args(const Call& call) {
  AttentionArgs args = pages_args<FloatsAvx512>(call);
  args.copies_for_prefill = rounds_prompts(call);
  return with_tiles(args);
}

size_t pages_scratch(const Call& call) { return 4 * attention_floats(tile_pages_args(call)); }

void pages_prepare(Step& step, const Call& call) {
  const auto given = arguments_of<UpdateAndAttendArguments>(call);
  AttentionArgs args = tile_pages_args(call);
  bind_pages(args, call);
  begin_attention(step, args);
  switch (static_cast<CacheType>(given.cache_type)) {
    case CacheType::kFloats: step.run = amx_run<float>; break;
    case CacheType::kHalves: step.run = amx_run<uint16_t>; break;
    case CacheType::kIntegers: step.run = amx_run<int8_t>; break;
    case CacheType::kInt4: step.run = amx_run<uint16_t, true>; break;
  }
}

constexpr uint32_t kNeeds = kAvx2 | kAvx512 | kAvx512Vnni | kAvx512Vbmi | kAvx512Bf16 | kAmxBf16;

constexpr KernelRow kRows[] = {
    {"attention_f32_16x1x32_amx", "attention", nullptr, 0, kNeeds, 16, 1, cache_scratch, cache_prepare},
    {"update_and_attend_f32_1x1x32_amx", "update_and_attend", nullptr, 0, kNeeds, 1, 1, pages_scratch, pages_prepare},
    {"rope_update_and_attend_f32_1x1x32_amx", "rope_update_and_attend", nullptr, 0, kNeeds, 1, 1,
     rope_update_and_attend_scratch<pages_scratch>, rope_update_and_attend_prepare<FloatsAvx512, pages_prepare>},
};

}  // namespace

KernelRows attention_amx_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
