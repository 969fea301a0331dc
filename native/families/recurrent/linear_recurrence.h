// Linear recurrences over the tokens of a step, each on the state S [keys, columns] that its sequence has in a head.
// With D = decay * the state before and y = scale * S^T q:
//
//   S = D + k v^T                      Mamba 2 (Dao and Gu 2024)
//   S = D + beta k (v - D^T k)^T       the gated delta rule (Yang et al. 2024)
//
// Columns of S do not depend on each other. So a tile is a range of columns of a head, which stays in the first-level
// cache from a run's first token to its last. A token's result has the same bits whichever tokens are beside it: sums
// over keys go from key 0 on.
#pragma once

#include <cmath>

#include "../attention/attention_scores.h"
#include "../division.h"
#include "../embedding/embedding.h"
#include "../runs.h"
#include "arguments.h"

namespace lowbit {

struct LinearRecurrenceArgs {
  const float *q, *k, *v, *log_decay;
  // Null without the delta rule.
  const float* beta;
  float *y, *scratch;
  StateTable table;
  uint32_t key_heads, heads, key_dim, value_dim;
  // Groups of columns in a head, and in a tile.
  uint32_t groups, per_tile;
  float scale;
  bool streams;
};

// Columns of a group: 128 keys of them take at most 32 kB, and two sums of each vector stay in registers.
template <class Isa>
struct StateColumns {
  static constexpr uint32_t kVectors = 4, kCount = kVectors * Isa::kLanes;
};

// From this many bytes of states on, a call writes them with non-temporal stores. The weights of all layers pass
// through the caches until the next step, so cached stores would first fetch each state from memory just to overwrite
// it.
constexpr size_t kStreamedStates = 1u << 19;

// Rows [keys] of a group of columns of a state.
template <class T>
struct StateRows {
  T* at;
  size_t stride;
};

// The update of a group of columns by one token, S = decay S + k u^T, and the next token's key, of which S^T k is
// computed ahead.
struct StateChange {
  float decay;
  const float *k, *u, *q, *next_k;
};

// Results of a pass over the columns beside the new state.
enum class Pass { kForesees, kStores, kStreams };

// `sums` = S^T q of the new state and, where there is a next token, `known` = S^T next_k.
template <class Isa, Pass kPass>
LOWBIT_APART void change_columns(StateRows<const float> from, StateRows<float> to, uint32_t keys,
                                 const StateChange& change, float* sums, float* known) {
  using V = typename Isa::V;
  constexpr int kVectors = StateColumns<Isa>::kVectors;
  constexpr bool kForesees = kPass == Pass::kForesees;
  const V decay = Isa::set(change.decay);
  const float *k = change.k, *q = change.q, *next_k = change.next_k;
  V added[kVectors], results[kVectors], ahead[kVectors];
  each_index<kVectors>([&](auto c) LOWBIT_INLINE {
    added[c] = Isa::load(change.u + c * Isa::kLanes);
    results[c] = ahead[c] = Isa::set(0);
  });
  for (uint32_t i = 0; i < keys; i++, from.at += from.stride, to.at += to.stride) {
    const V key = Isa::set(k[i]), query = Isa::set(q[i]), next_key = Isa::set(kForesees ? next_k[i] : 0);
    each_index<kVectors>([&](auto c) LOWBIT_INLINE {
      const V s = Isa::multiply_add(key, added[c], decay * Isa::load(from.at + c * Isa::kLanes));
      if constexpr (kPass == Pass::kStreams) Isa::stream(to.at + c * Isa::kLanes, s);
      else Isa::store(to.at + c * Isa::kLanes, s);
      results[c] = Isa::multiply_add(query, s, results[c]);
      if constexpr (kForesees) ahead[c] = Isa::multiply_add(next_key, s, ahead[c]);
    });
  }
  each_index<kVectors>([&](auto c) LOWBIT_INLINE {
    Isa::store(sums + c * Isa::kLanes, results[c]);
    if constexpr (kForesees) Isa::store(known + c * Isa::kLanes, ahead[c]);
  });
}

// Copies a group of columns of a state to `to` and computes `known` = S^T k.
template <class Isa>
LOWBIT_APART void take_columns(StateRows<const float> from, float* to, uint32_t keys, const float* k, float* known) {
  using V = typename Isa::V;
  constexpr uint32_t kVectors = StateColumns<Isa>::kVectors, kCount = StateColumns<Isa>::kCount;
  V sums[kVectors];
  each_index<kVectors>([&](auto c) LOWBIT_INLINE { sums[c] = Isa::set(0); });
  for (uint32_t i = 0; i < keys; i++, from.at += from.stride, to += kCount) {
    const V key = Isa::set(k[i]);
    each_index<kVectors>([&](auto c) LOWBIT_INLINE {
      const V s = Isa::load(from.at + c * Isa::kLanes);
      Isa::store(to + c * Isa::kLanes, s);
      sums[c] = Isa::multiply_add(key, s, sums[c]);
    });
  }
  each_index<kVectors>([&](auto c) LOWBIT_INLINE { Isa::store(known + c * Isa::kLanes, sums[c]); });
}

// Runs one group of columns of a head through the tokens of a run; `tile` has room for the group.
template <class Isa>
class RecurrentGroup {
 public:
  RecurrentGroup(const LinearRecurrenceArgs& args, uint32_t index, float* tile)
      : args_(args),
        tile_{tile, kCount},
        head_(index / args.groups),
        key_head_(static_cast<uint32_t>(static_cast<uint64_t>(head_) * args.key_heads / args.heads)),
        first_(index % args.groups * kCount),
        count_(std::min(kCount, args.value_dim - first_)) {}

  void run(const Run& run, const float* now, float* next) {
    const size_t at = static_cast<size_t>(head_) * args_.key_dim * args_.value_dim + first_;
    load(now + at, args_.k + key_place(run.row));
    const uint32_t end = run.row + run.rows;
    for (uint32_t row = run.row; row < end; row++) {
      if (row + kAhead < end) fetch(row + kAhead);
      advance(row, row + 1 == end ? next + at : nullptr);
    }
  }

  // Where the group begins and ends in a row of y, which holds all heads.
  size_t begin() const { return static_cast<size_t>(head_) * args_.value_dim + first_; }
  size_t end() const { return begin() + count_; }

 private:
  static constexpr uint32_t kCount = StateColumns<Isa>::kCount;
  static constexpr size_t kVectorBytes = sizeof(float) * Isa::kLanes;

  // Rows to prefetch: they lie apart, so that the CPU's own prefetcher does not find them.
  static constexpr uint32_t kAhead = 2;

  void fetch(uint32_t row) const {
    fetch_row(args_.q + key_place(row), args_.key_dim);
    fetch_row(args_.k + key_place(row), args_.key_dim);
    fetch_row(args_.v + value_place(row), count_);
    fetch_row(args_.log_decay + gate_place(row), 1);
    if (args_.beta) fetch_row(args_.beta + gate_place(row), 1);
    __builtin_prefetch(args_.y + value_place(row), 1);
  }

  size_t key_place(uint32_t row) const {
    return (static_cast<size_t>(row) * args_.key_heads + key_head_) * args_.key_dim;
  }
  size_t gate_place(uint32_t row) const { return static_cast<size_t>(row) * args_.heads + head_; }
  size_t value_place(uint32_t row) const { return gate_place(row) * args_.value_dim + first_; }

  // Loads the state that a run begins with, and S^T k of the run's first key.
  void load(const float* state, const float* k) {
    const size_t stride = args_.value_dim;
    StateRows<const float> from = {state, stride};
    if (count_ < kCount) {
      memset(tile_.at, 0, 4 * static_cast<size_t>(args_.key_dim) * kCount);
      for (uint32_t i = 0; i < args_.key_dim; i++)
        memcpy(tile_.at + static_cast<size_t>(i) * kCount, state + i * stride, 4 * static_cast<size_t>(count_));
      from = {tile_.at, kCount};
    }
    take_columns<Isa>(from, tile_.at, args_.key_dim, k, known_);
  }

  // `last`: where the columns are stored after the run's last token.
  void advance(uint32_t row, float* last) {
    const float log_decay = args_.log_decay[gate_place(row)];
    // Smaller decays are 0: they would make subnormal numbers, which are slow.
    const float decay = log_decay < -87 ? 0 : std::exp(log_decay);
    const float* v = args_.v + value_place(row);
    const auto factor = Isa::set(args_.beta ? args_.beta[gate_place(row)] : 1);
    each_vector<Isa>(count_, [&](size_t c, auto vector) {
      auto u = vector.load(v + c);
      if (args_.beta) u = factor * Isa::multiply_add(Isa::set(-decay), vector.load(known_ + c), u);
      vector.store(added_ + c, u);
    });
    const size_t at = key_place(row);
    const float* next_k = last ? nullptr : args_.k + key_place(row + 1);
    const StateChange change = {decay, args_.k + at, added_, args_.q + at, next_k};
    const bool is_whole = count_ == kCount;
    const StateRows<float> to = last && is_whole ? StateRows<float>{last, args_.value_dim} : tile_;
    const StateRows<const float> from = {tile_.at, kCount};
    const bool streams = args_.streams && is_whole && last && reinterpret_cast<uintptr_t>(last) % kVectorBytes == 0;
    const auto change_all = streams               ? change_columns<Isa, Pass::kStreams>
                            : last || !args_.beta ? change_columns<Isa, Pass::kStores>
                                                  : change_columns<Isa, Pass::kForesees>;
    change_all(from, to, args_.key_dim, change, sums_, known_);
    if (last && !is_whole)
      for (uint32_t i = 0; i < args_.key_dim; i++)
        memcpy(last + static_cast<size_t>(i) * args_.value_dim, tile_.at + static_cast<size_t>(i) * kCount, 4 * count_);
    float* y = args_.y + value_place(row);
    const auto scale = Isa::set(args_.scale);
    each_vector<Isa>(count_, [&](size_t c, auto vector) { vector.store(y + c, vector.load(sums_ + c) * scale); });
  }

  const LinearRecurrenceArgs& args_;
  const StateRows<float> tile_;
  const uint32_t head_, key_head_, first_, count_;
  // Lanes beyond the last column stay 0.
  float added_[kCount] = {}, sums_[kCount], known_[kCount];
};

// Calls body with each run, its state before and its state after. Rows of y that belong to no run become NaN in columns
// `begin` .. `end`.
template <class Body>
void each_recurrence(const LinearRecurrenceArgs& args, size_t begin, size_t end, Body&& body) {
  const size_t columns = static_cast<size_t>(args.heads) * args.value_dim;
  auto skip = [&](uint32_t row, uint32_t last) {
    for (; row < last; row++) fill_nan(args.y + row * columns + begin, end - begin);
  };
  each_state(args.table, skip, body);
}

template <class Isa>
void linear_recurrence_run(const Step& step, uint32_t, uint32_t tile, uint32_t thread) {
  const LinearRecurrenceArgs& args = step.as<LinearRecurrenceArgs>();
  const uint32_t first = tile * args.per_tile, last = std::min(args.heads * args.groups, first + args.per_tile);
  float* scratch = args.scratch + static_cast<size_t>(thread) * args.key_dim * StateColumns<Isa>::kCount;
  auto group = [&](uint32_t index) { return RecurrentGroup<Isa>(args, index, scratch); };
  each_recurrence(args, group(first).begin(), group(last - 1).end(),
                  [&](const Run& run, const float* now, float* next) {
                    for (uint32_t index = first; index < last; index++) group(index).run(run, now, next);
                  });
  if (args.streams) Isa::end_streams();
}

template <class Isa>
size_t linear_recurrence_scratch(const Call& call) {
  const auto given = arguments_of<LinearRecurrenceArguments>(call);
  return 4 * static_cast<size_t>(call.threads) * given.key_dim * StateColumns<Isa>::kCount;
}

// Fills in the sizes of a call, not its buffers.
template <class Isa>
LinearRecurrenceArgs recurrence_sizes(const Call& call) {
  const auto given = arguments_of<LinearRecurrenceArguments>(call);
  LinearRecurrenceArgs args{};
  args.key_heads = given.key_heads;
  args.heads = given.heads;
  args.key_dim = given.key_dim;
  args.value_dim = given.value_dim;
  args.scale = given.scale;
  args.groups = ceil_div(args.value_dim, StateColumns<Isa>::kCount);
  args.streams = args.value_dim % Isa::kLanes == 0 &&
                 sizeof(float) * args.heads * args.key_dim * args.value_dim >= kStreamedStates;
  return args;
}

template <class Isa>
void linear_recurrence_prepare(Step& step, const Call& call) {
  const auto given = arguments_of<LinearRecurrenceArguments>(call);
  LinearRecurrenceArgs& args = step.init<LinearRecurrenceArgs>();
  args = recurrence_sizes<Isa>(call);
  args.q = given.q;
  args.k = given.k;
  args.v = given.v;
  args.log_decay = given.log_decay;
  args.beta = given.beta;
  args.y = given.y;
  args.scratch = static_cast<float*>(given.scratch);
  args.table = state_table(given);
  const size_t values = static_cast<size_t>(args.table.rows) * args.key_dim * StateColumns<Isa>::kCount;
  args.per_tile =
      items_per_tile<Isa>(args.heads * args.groups, kTileValues / std::max<size_t>(1, values), call.threads);
  step.phases = 1;
  step.tiles[0] = ceil_div(args.heads * args.groups, args.per_tile);
  step.run = linear_recurrence_run<Isa>;
}

}  // namespace lowbit
