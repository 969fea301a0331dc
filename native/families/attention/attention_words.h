// Attention of prefill runs, one KV head at a time, by products of 16-bit words. Roundings: queries and keys to 1/65534
// of their lengths, values to at most 1/4096 of the largest of their row, weights times value units to 1/16382 of the
// largest of a block. f32 pages, which ask for exactness, do not use it. A token's result has the same bits whichever
// tokens are beside it, and for any number of threads.
#pragma once

#include "rope_attention.h"
#include "word_blocks.h"

namespace lowbit {

// Most queries of a part. All of them share a block's words.
constexpr uint32_t kWordQueries = 512;
// Cost of converting a block to words, as that of so many queries.
constexpr uint32_t kWordCopyCost = 16;

// Offsets in a thread's scratch, in floats.
template <class Isa>
struct WordsScratch {
  static constexpr uint32_t kLanes = Isa::kLanes, kRows = Isa::kWordRows;
  static_assert(kRows <= kLanes);

  uint32_t groups;
  // Floats of a group of queries: words [pairs][kRows][2], sums [kRows][columns].
  size_t query_floats, columns;
  size_t queries, sums, largest, totals, factors, scores, weights, block, floats;

  WordsScratch(uint32_t head_dim, uint32_t count)
      : groups(ceil_div(count, kRows)),
        query_floats(size_t{WordBlock<Isa>::pairs_of(head_dim)} * kRows),
        columns(size_t{WordBlock<Isa>::panels_of(head_dim)} * WordBlock<Isa>::kColumns) {
    queries = 0;
    sums = round_up(queries + groups * query_floats, 16);
    largest = sums + groups * kRows * columns;
    totals = largest + groups * kLanes;
    factors = totals + groups * kLanes;
    scores = round_up(factors + groups * kLanes, 16);
    weights = scores + kRows * kBlockKeys;
    block = round_up(weights + kRows * kBlockKeys / 2, 16);
    floats = round_up(block + WordBlock<Isa>::floats(head_dim), 16);
  }
};

template <class Isa, class Element>
class WordsPart : SharedBlocksPart<typename Isa::Floats, Element> {
  using Shared = SharedBlocksPart<typename Isa::Floats, Element>;
  using V = typename Isa::V;
  static constexpr uint32_t kLanes = Isa::kLanes, kRows = Isa::kWordRows, kColumns = WordBlock<Isa>::kColumns;
  static constexpr float kLog2e = 1.44269504f;

 public:
  WordsPart(const AttentionPart<typename Isa::Floats, Element>& part, float* scratch)
      : Shared(part),
        at_(this->args_.head_dim, this->queries()),
        scratch_(scratch),
        block_(this->args_.head_dim, scratch + at_.block) {}

  // Returns false, and writes nothing, where a query, key or value is not finite.
  bool attend() {
    bool are_finite = begin_queries();
    this->each_shared_block(scratch_ + at_.floats, [&](const CacheBlock<Element>& block, QueryRange range) {
      are_finite = are_finite && block_.pack(block);
      range_ = range;
      if (are_finite) attend_block(block);
    });
    if (are_finite) end_queries();
    return are_finite;
  }

 private:
  // The keys first .. last - 1 of a block that a group's queries see. `some`: not all of them see all of these.
  struct Seen {
    uint32_t first, last;
    bool some;
  };

  float* sums_of(uint32_t query) const { return scratch_ + at_.sums + query * at_.columns; }
  float* state_of(size_t state, uint32_t group) const { return scratch_ + state + size_t{group} * kLanes; }
  int16_t* words_of(uint32_t group) const {
    return reinterpret_cast<int16_t*>(scratch_ + at_.queries + group * at_.query_floats);
  }
  // The position of a query's token. Queries past the last one repeat it.
  uint32_t position_of(uint32_t query) const {
    return this->run_.position + this->row_of(std::min(query, this->queries() - 1));
  }
  size_t place_of_query(uint32_t query) const {
    return this->place_of(this->row_of(query), this->head_of(this->kv_first_, query));
  }

  bool begin_queries() {
    const ScoreRule& rule = this->args_.rule;
    const float scale = rule.softcap > 0 ? rule.scale / rule.softcap : rule.scale * kLog2e;
    memset(scratch_ + at_.queries, 0, 4 * at_.groups * at_.query_floats);
    memset(scratch_ + at_.sums, 0, 4 * at_.groups * kRows * at_.columns);
    float odd = 0;
    for (uint32_t query = 0; query < at_.groups * kRows; query++) {
      const uint32_t group = query / kRows, lane = query % kRows;
      float &largest = state_of(at_.largest, group)[lane], &total = state_of(at_.totals, group)[lane];
      float& factor = state_of(at_.factors, group)[lane];
      largest = kNoneYet;
      total = factor = 0;
      if (query >= this->queries()) continue;
      const PartialResult first = first_result(this->args_, this->head_of(this->kv_first_, query));
      if (first.total > 0) {
        largest = first.largest * kLog2e;
        total = kWordWeight * first.total;
      }
      const WordRow<Isa>& row = block_.rows[0];
      factor = row.round_to_length(this->args_.q + place_of_query(query), scale);
      odd += 0 * factor;
      int16_t* to = words_of(group) + 2 * lane;
      for (uint32_t pair = 0; pair < block_.pairs; pair++) memcpy(to + 2 * kRows * pair, row.words + 2 * pair, 4);
    }
    return odd == 0;
  }

  // Queries are ordered by token: the first of a group sees the earliest key, the last one the latest.
  Seen seen_of(const CacheBlock<Element>& block, uint32_t group) const {
    const uint32_t begins = group * kRows, ends = std::min(begins + kRows, this->queries());
    const QueryRange own = {std::max(begins, range_.first), std::min(ends, range_.last)};
    if (own.first >= own.last) return {0, 0, false};
    const uint32_t first = position_of(own.first), last = position_of(own.last - 1);
    const uint32_t from = std::max(this->args_.first_seen(first), block.start + block.first) - block.start;
    const uint32_t end = std::min(last + 1, block.start + block.last);
    if (end <= block.start + from) return {0, 0, false};
    const uint32_t begin = from / kColumns * kColumns;
    const uint32_t to = static_cast<uint32_t>(round_up(end - block.start, kColumns));
    const bool all = own.first == begins && own.last == ends && this->args_.first_seen(last) <= block.start + begin &&
                     first + 1 >= block.start + to && block.first <= begin && block.last >= to;
    return {begin, to, !all};
  }

  void attend_block(const CacheBlock<Element>& block) const {
    for (uint32_t group = 0; group < at_.groups; group++) {
      const Seen seen = seen_of(block, group);
      if (seen.first == seen.last) continue;
      multiply_keys(group, seen);
      float shrink[kLanes], unit[kLanes];
      weigh(block, group, seen, shrink, unit);
      add_values(group, seen, shrink, unit);
    }
  }

  // Integer scores [kRows][kBlockKeys].
  void multiply_keys(uint32_t group, Seen seen) const {
    for (uint32_t panel = seen.first / kColumns; panel < seen.last / kColumns; panel++) {
      float* to = scratch_ + at_.scores + panel * kColumns;
      multiply_panel<Isa, 2, 2 * kRows>(words_of(group), block_.key_panel(panel), block_.pairs,
                                        [to](auto r, auto c, typename Isa::Words sum) LOWBIT_INLINE {
                                          Isa::store(to + r * kBlockKeys + c * kLanes, Isa::floats_of(sum));
                                        });
    }
  }

  // Turns scores into weights. Sets shrink, by which earlier sums and totals are multiplied, and unit, by which the
  // block's integer sums are.
  void weigh(const CacheBlock<Element>& block, uint32_t group, Seen seen, float* shrink, float* unit) const {
    float found[kLanes] = {}, added[kLanes] = {};
    const float* factors = state_of(at_.factors, group);
    for (uint32_t row = 0; row < kRows; row++) {
      if (seen.some || this->args_.rule.softcap > 0)
        found[row] = rule_row(block, group * kRows + row, factors[row], seen);
      else found[row] = scale_row(row, factors[row], seen);
    }
    for (uint32_t row = 0; row < kRows; row++) added[row] = weigh_row(row, found[row], seen);
    float *largest = state_of(at_.largest, group), *totals = state_of(at_.totals, group);
    const V before = Isa::load(largest), own = Isa::load(found), most = Isa::max(own, before);
    const V factor = Isa::exp2(before - most), block_factor = Isa::exp2(own - most);
    Isa::store(largest, most);
    Isa::store(shrink, factor);
    Isa::store(unit, block_factor);
    Isa::store(totals, Isa::multiply_add(Isa::load(totals), factor, Isa::load(added) * block_factor));
  }

  // Turns a row's products into the base-2 logarithms of weight * value unit, and returns the largest.
  float scale_row(uint32_t row, float factor, Seen seen) const {
    float* scores = scratch_ + at_.scores + row * kBlockKeys;
    const V times = Isa::set(factor);
    V largest = Isa::set(kNoneYet);
    for (uint32_t key = seen.first; key < seen.last; key += kLanes) {
      const V product = Isa::load(scores + key) * Isa::load(block_.key_units + key);
      const V score = Isa::multiply_add(product, times, Isa::load(block_.value_logs + key));
      largest = Isa::max(score, largest);
      Isa::store(scores + key, score);
    }
    return Isa::largest(largest);
  }

  // scale_row with softcap and mask.
  LOWBIT_APART float rule_row(const CacheBlock<Element>& block, uint32_t query, float factor, Seen seen) const {
    float* scores = scratch_ + at_.scores + query % kRows * kBlockKeys;
    const uint32_t position = position_of(query);
    const uint32_t first = std::max(this->args_.first_seen(position), block.start + block.first) - block.start;
    const uint32_t before = query >= range_.first && query < range_.last ? position + 1 : 0;
    const uint32_t end = std::max(std::min(before, block.start + block.last), block.start) - block.start;
    const V from = Isa::set(static_cast<float>(first)), to = Isa::set(static_cast<float>(end));
    const float softcap = this->args_.rule.softcap;
    const V times = Isa::set(factor), cap = Isa::set(softcap * kLog2e), none = Isa::set(-INFINITY);
    V largest = Isa::set(kNoneYet);
    for (uint32_t key = seen.first; key < seen.last; key += kLanes) {
      const V product = Isa::load(scores + key) * Isa::load(block_.key_units + key);
      const V log = Isa::load(block_.value_logs + key);
      V score = softcap > 0 ? Isa::multiply_add(cap, tanh_of<typename Isa::Floats>(product * times), log)
                            : Isa::multiply_add(product, times, log);
      const V index = lane_keys<typename Isa::Floats, 1>() + Isa::set(static_cast<float>(key));
      score = Isa::choose_less(index, from, none, Isa::choose_less(index, to, score, none));
      largest = Isa::max(score, largest);
      Isa::store(scores + key, score);
    }
    return Isa::largest(largest);
  }

  // Turns a row's logarithms into words [kRows][kBlockKeys], weights * value units. Returns the sum of the weights.
  float weigh_row(uint32_t row, float largest, Seen seen) const {
    const float* scores = scratch_ + at_.scores + row * kBlockKeys;
    int16_t* weights = reinterpret_cast<int16_t*>(scratch_ + at_.weights) + row * kBlockKeys;
    // The largest word weight of the row becomes kWordWeight.
    constexpr float kLog2OfMost = 12.99982387f;
    const V most = Isa::set(largest) - Isa::set(kLog2OfMost);
    V totals[2] = {Isa::set(0), Isa::set(0)};
    for (uint32_t key = seen.first; key < seen.last; key += 2 * kLanes) {
      V weight[2];
      each_index<2>([&](auto i) LOWBIT_INLINE {
        weight[i] = Isa::exp2(Isa::load(scores + key + i * kLanes) - most);
        totals[i] = Isa::multiply_add(weight[i], Isa::load(block_.value_inverses + key + i * kLanes), totals[i]);
      });
      Isa::store_weights(weights + key, weight[0], weight[1]);
    }
    return Isa::sum(totals[0] + totals[1]);
  }

  // sums = sums * shrink + weights . values * unit
  void add_values(uint32_t group, Seen seen, const float* shrink, const float* unit) const {
    const int16_t* weights = reinterpret_cast<int16_t*>(scratch_ + at_.weights) + seen.first;
    for (uint32_t panel = 0; panel < block_.panels; panel++) {
      float* sums = sums_of(group * kRows) + panel * kColumns;
      const size_t apart = at_.columns;
      multiply_panel<Isa, kBlockKeys, 2>(weights, block_.value_panel(panel, seen.first / 2),
                                         (seen.last - seen.first) / 2,
                                         [=](auto r, auto c, typename Isa::Words sum) LOWBIT_INLINE {
                                           float* to = sums + r * apart + c * kLanes;
                                           const V before = Isa::load(to) * Isa::set(shrink[r]);
                                           const V own = Isa::floats_of(sum);
                                           Isa::store(to, Isa::multiply_add(own, Isa::set(unit[r]), before));
                                         });
    }
  }

  void end_queries() const {
    for (uint32_t query = 0; query < this->queries(); query++) {
      const V inverse = Isa::set(1 / state_of(at_.totals, query / kRows)[query % kRows]);
      const float* sums = sums_of(query);
      float* y = this->args_.y + place_of_query(query);
      each_vector<Isa>(this->args_.head_dim,
                       [&](size_t d, auto vector) { vector.store(y + d, Isa::load(sums + d) * inverse); });
    }
  }

  const WordsScratch<Isa> at_;
  float* scratch_;
  WordBlock<Isa> block_;
  // The queries that see the block.
  QueryRange range_;
};

// A kernel's run over f16, int8 and int4 pages. Decode runs, and parts with a number that is not finite, go the ways of
// attention.h and attention_int4.h.
template <class Isa, class Element, bool IsInt4 = false>
void words_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread) {
  using Floats = typename Isa::Floats;
  using Bytes = typename Isa::Bytes;
  if (phase != 1 && IsInt4) return int4_run<Bytes>(step, phase, tile, thread);
  if (phase != 1) return attention_run<Floats, Element>(step, phase, tile, thread);
  const AttentionArgs& args = step.as<AttentionArgs>();
  float* scratch = thread_scratch(args, thread);
  each_part(args, tile, step.tiles[1], [&](const AttentionJob& job, uint32_t index) {
    const AttentionPart<Floats, Element> part(args, job, index);
    const bool takes_words = job.run.is_prefill && !part.is_empty();
    if (takes_words && WordsPart<Isa, Element>(part, scratch).attend()) return;
    if constexpr (IsInt4) Int4Part<Bytes>(part, scratch).attend();
    else attend_part<Floats>(part, scratch);
  });
}

// A call's sizes, with scratch for words.
template <class Isa>
AttentionArgs words_args(const Call& call) {
  using Floats = typename Isa::Floats;
  AttentionArgs args = pages_args<Floats>(call);
  args.copies_for_prefill = rounds_prompts(call);
  if (!args.copies_for_prefill) return args;
  args.rows_per_tile =
      rows_of_copies(args, kWordQueries * 64 / args.head_dim, {WordsScratch<Isa>::kRows, kWordCopyCost});
  const WordsScratch<Isa> at(args.head_dim, args.rows_per_tile * args.group);
  args.thread_floats = std::max(floats_of_thread<Floats>(args), at.floats + expanded_floats(args));
  return args;
}

template <class Isa>
size_t words_scratch(const Call& call) {
  return 4 * attention_floats(words_args<Isa>(call));
}

template <class Isa>
void words_prepare(Step& step, const Call& call) {
  const auto given = arguments_of<UpdateAndAttendArguments>(call);
  AttentionArgs args = words_args<Isa>(call);
  bind_pages(args, call);
  begin_attention(step, args);
  switch (static_cast<CacheType>(given.cache_type)) {
    case CacheType::kFloats: step.run = attention_run<typename Isa::Floats, float>; break;
    case CacheType::kHalves: step.run = words_run<Isa, uint16_t>; break;
    case CacheType::kIntegers: step.run = words_run<Isa, int8_t>; break;
    case CacheType::kInt4: step.run = words_run<Isa, uint16_t, true>; break;
  }
}

}  // namespace lowbit
