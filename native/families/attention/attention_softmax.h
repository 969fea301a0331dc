// Online softmax of a block of scores (Milakov and Gimelshein 2018; FlashAttention, Dao et al. 2022): largest' =
// max(largest, scores), weight = exp(score - largest'), shrink = exp(largest - largest'), total' = total * shrink + sum
// of weights.
#pragma once

#include <cmath>

#include "attention_scores.h"

namespace lowbit {

// Applies the softcap to the scores of the block at `start`. Keys that a query does not see get a score whose weight is
// 0.
template <class Isa, int Rows>
LOWBIT_APART void rule_scores(const QueryVector<Isa>& queries, uint32_t start, float softcap, KeyRange keys,
                              float* scores) {
  float from[Isa::kLanes], to[Isa::kLanes];
  for (uint32_t lane = 0; lane < Isa::kLanes; lane++) {
    from[lane] = static_cast<float>(std::max(queries.first[lane], start) - start);
    to[lane] = static_cast<float>(std::max(queries.last[lane], start) - start);
  }
  const auto seen_from = Isa::load(from), seen_to = Isa::load(to);
  const auto none = Isa::set(-INFINITY), cap = Isa::set(softcap);
  const auto lane_key = lane_keys<Isa, Rows>();
  constexpr uint32_t kKeys = Isa::kLanes / Rows;
  for (uint32_t key = keys.first / kKeys * kKeys; key < keys.last; key += kKeys) {
    auto score = Isa::load(scores + key * Rows);
    if (softcap > 0) score = cap * tanh_of<Isa>(score / cap);
    const auto index = lane_key + Isa::set(static_cast<float>(key));
    score = Isa::choose_less(index, seen_from, none, score);
    Isa::store(scores + key * Rows, Isa::choose_less(index, seen_to, score, none));
  }
}

// Reduces the lanes of each query by combine(). The order of keys is the same for any number of keys a vector.
template <class Isa, uint32_t Rows, uint32_t Apart = Isa::kLanes / 2, class Combine>
inline LOWBIT_INLINE typename Isa::V fold_keys(typename Isa::V v, Combine&& combine) {
  if constexpr (Apart < Rows) return v;
  else return fold_keys<Isa, Rows, Apart / 2>(combine(v, Isa::template rotate<Apart>(v)), combine);
}

// Stands for values without scales.
struct NoScales {};

// Calls keep(r, exp(score - largest)) for `Rows` vectors of scores, several at a time.
template <class Isa, int Rows, class Keep>
inline LOWBIT_INLINE void weigh_rows(const float* scores, typename Isa::V largest, Keep&& keep) {
  constexpr int kCount = Rows < 4 ? Rows : 4;
  using Few = SideBySide<Isa, kCount>;
  each_index<Rows / kCount>([&](auto part) LOWBIT_INLINE {
    const auto weights = exp_of_negative<Few>(Few::each([&](auto i) LOWBIT_INLINE {
      return Isa::load(scores + (part * kCount + i) * Isa::kLanes) - largest;
    }));
    each_index<kCount>([&](auto i) LOWBIT_INLINE {
      keep(std::integral_constant<int, part * kCount + i>{}, weights.parts[i]);
    });
  });
}

// Replaces scores by weights exp(score - largest), and multiplies those of vector i by scales(i), the scales of values.
// Totals are summed by key modulo lanes, then as a tree: in the same order for any number of keys a vector.
template <class Isa, int Rows, class Scales>
LOWBIT_APART void softmax_block(QueryVector<Isa>& queries, KeyRange keys, float* scores, Scales scales) {
  using V = typename Isa::V;
  constexpr uint32_t kLanes = Isa::kLanes, kKeys = kLanes / Rows, kChains = 4;
  const uint32_t begin = keys.first / kKeys, end = ceil_div(keys.last, kKeys);
  const V before = Isa::load(queries.largest);
  V chains[kChains] = {before, before, before, before};
  uint32_t i = begin;
  for (; i + kChains <= end; i += kChains)
    each_index<kChains>([&](auto c) LOWBIT_INLINE {
      chains[c] = Isa::max(Isa::load(scores + (i + c) * kLanes), chains[c]);
    });
  for (; i < end; i++) chains[0] = Isa::max(Isa::load(scores + i * kLanes), chains[0]);
  V largest = Isa::max(Isa::max(chains[0], chains[1]), Isa::max(chains[2], chains[3]));
  largest = fold_keys<Isa, Rows>(largest, [](V a, V b) { return Isa::max(a, b); });
  V totals[Rows];
  each_index<Rows>([&](auto r) LOWBIT_INLINE { totals[r] = Isa::set(0); });
  // Stores a weight and adds it to total `to`: vectors of scores take the totals in turn.
  auto keep = [&](uint32_t at, auto to, V weight) LOWBIT_INLINE {
    totals[to] = totals[to] + weight;
    if constexpr (std::is_same_v<Scales, NoScales>) Isa::store(scores + at * kLanes, weight);
    else Isa::store(scores + at * kLanes, weight * scales(at));
  };
  for (i = begin / Rows * Rows; i < end; i += Rows) {
    if (i >= begin && i + Rows <= end) {
      weigh_rows<Isa, Rows>(scores + i * kLanes, largest,
                            [&](auto r, V weight) LOWBIT_INLINE { keep(i + r, r, weight); });
    } else {
      each_index<Rows>([&](auto r) LOWBIT_INLINE {
        if (i + r >= begin && i + r < end)
          keep(i + r, r, exp_of_negative<Isa>(Isa::load(scores + (i + r) * kLanes) - largest));
      });
    }
  }
  for (uint32_t apart = Rows / 2; apart > 0; apart /= 2)
    for (uint32_t r = 0; r < apart; r++) totals[r] = totals[r] + totals[r + apart];
  const V total = fold_keys<Isa, Rows>(totals[0], [](V a, V b) { return a + b; });
  const V factor = exp_of_negative<Isa>(before - largest);
  Isa::store(queries.shrink, factor);
  Isa::store(queries.largest, largest);
  Isa::store(queries.totals, Isa::multiply_add(Isa::load(queries.totals), factor, total));
}

// Turns the scores of the block at `start` into weights, after softcap and mask where there are any.
template <class Isa, int Rows, class Scales>
void weigh_scores(QueryVector<Isa>& queries, uint32_t start, KeyRange keys, float softcap, float* scores,
                  Scales scales) {
  constexpr uint32_t kKeys = Isa::kLanes / Rows;
  bool all_seen = softcap == 0 && keys.first % kKeys == 0 && keys.last % kKeys == 0;
  for (uint32_t r = 0; r < Rows; r++)
    all_seen = all_seen && queries.first[r] <= start + keys.first && queries.last[r] >= start + keys.last;
  if (!all_seen) rule_scores<Isa, Rows>(queries, start, softcap, keys, scores);
  softmax_block<Isa, Rows>(queries, keys, scores, scales);
}

// Those of the block's `keys` that at least one query of the vector sees.
template <class Isa>
KeyRange seen_keys(const QueryVector<Isa>& queries, uint32_t start, KeyRange keys) {
  const uint32_t begin = std::max(queries.earliest, start + keys.first);
  const uint32_t end = std::max(begin, std::min(queries.latest, start + keys.last));
  return {begin - start, end - start};
}

// Those of the block's `keys` that query `row` sees.
template <class Isa>
KeyRange keys_of_query(const QueryVector<Isa>& queries, uint32_t row, uint32_t start, KeyRange keys) {
  const uint32_t begin = std::max(queries.first[row], start + keys.first) - start;
  const uint32_t end = std::min(std::max(queries.last[row], start), start + keys.last) - start;
  return {std::min(begin, end), end};
}

}  // namespace lowbit
