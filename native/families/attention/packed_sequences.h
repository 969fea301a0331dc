// Attention over packed sequences, for encoders: y = softmax(scale * q . k) . v. A token sees the keys of its own
// sequence from `before` tokens before it to `after` tokens after it. Four tokens are computed at a time, and a lane is
// a key. A token's result has the same bits whichever sequences are packed with it, and for any number of threads.
#pragma once

#include "../division.h"
#include "../reduction/softmax.h"
#include "arguments.h"
#include "attention_block.h"

namespace lowbit {

struct PackedSequencesArgs {
  const float *q, *k, *v;
  const int64_t* offsets;
  float *y, *scratch;
  uint32_t rows, heads, kv_heads, head_dim, sequences, before, after;
  float scale;
  // Floats of the scores of one token, and of a thread's scratch.
  uint32_t score_floats;
  size_t thread_floats;
};

// Tokens of a tile. They share blocks of kSequenceKeys transposed keys.
constexpr uint32_t kSequenceRows = 32;
constexpr uint32_t kSequenceKeys = 64;

template <class Isa>
PackedSequencesArgs packed_sequences_args(const Call& call) {
  const auto given = arguments_of<AttendPackedArguments>(call);
  PackedSequencesArgs args{};
  args.rows = given.rows;
  args.heads = given.heads;
  args.kv_heads = given.kv_heads;
  args.head_dim = given.head_dim;
  args.sequences = given.bounds - 1;
  args.scale = given.scale;
  args.before = given.before;
  args.after = given.after;
  const double seen = 1.0 * args.before + args.after + kSequenceRows;
  args.score_floats = static_cast<uint32_t>(round_up(std::min<size_t>(args.rows, seen), kSequenceKeys)) + Isa::kLanes;
  const size_t keys = static_cast<size_t>(args.head_dim) * kSequenceKeys;
  args.thread_floats = round_up(kSequenceRows * static_cast<size_t>(args.score_floats) + keys + kSequenceRows, 16);
  return args;
}

// A tile's work on one sequence: tokens first .. last - 1, which together see keys begin .. end - 1.
struct SequencePart {
  uint32_t first, last, sequence_begin, sequence_end, begin, end;

  SequencePart(const PackedSequencesArgs& args, uint32_t first, uint32_t last, uint32_t sequence_begin,
               uint32_t sequence_end)
      : first(first),
        last(last),
        sequence_begin(sequence_begin),
        sequence_end(sequence_end),
        begin(seen_from(args, first)),
        end(seen_to(args, last - 1)) {}

  // The keys that a token sees: seen_from .. seen_to - 1.
  uint32_t seen_from(const PackedSequencesArgs& args, uint32_t row) const {
    return row - std::min(args.before, row - sequence_begin);
  }
  uint32_t seen_to(const PackedSequencesArgs& args, uint32_t row) const {
    return row + 1 + std::min(args.after, sequence_end - 1 - row);
  }
};

// Transposes a block of one head's keys to [columns][kSequenceKeys], with zeros from `count` on.
static inline void transpose_keys(const float* keys, size_t stride, uint32_t count, uint32_t dim, float* transposed) {
  for (uint32_t d = 0; d < dim; d++) {
    float* row = transposed + static_cast<size_t>(d) * kSequenceKeys;
    for (uint32_t key = 0; key < count; key++) row[key] = keys[key * stride + d];
    for (uint32_t key = count; key < kSequenceKeys; key++) row[key] = 0;
  }
}

// Scores of `Rows` queries with a block of keys.
template <class Isa, int Rows>
LOWBIT_APART void score_sequence(const float* q, size_t q_stride, const float* keys, uint32_t count, uint32_t dim,
                                 float scale, float* scores, size_t score_stride) {
  using V = typename Isa::V;
  constexpr uint32_t kVectors = 2, kStep = kVectors * Isa::kLanes;
  const V factor = Isa::set(scale);
  for (uint32_t at = 0; at < count; at += kStep) {
    V sums[Rows][kVectors];
    each_index<Rows>([&](auto r) LOWBIT_INLINE {
      each_index<kVectors>([&](auto c) LOWBIT_INLINE { sums[r][c] = Isa::set(0); });
    });
    const float* column = keys + at;
    for (uint32_t d = 0; d < dim; d++, column += kSequenceKeys) {
      V own[kVectors];
      each_index<kVectors>([&](auto c) LOWBIT_INLINE { own[c] = Isa::load(column + c * Isa::kLanes); });
      each_index<Rows>([&](auto r) LOWBIT_INLINE {
        const V value = Isa::set(q[r * q_stride + d]);
        each_index<kVectors>(
            [&](auto c) LOWBIT_INLINE { sums[r][c] = Isa::multiply_add(value, own[c], sums[r][c]); });
      });
    }
    each_index<Rows>([&](auto r) LOWBIT_INLINE {
      each_index<kVectors>([&](auto c) LOWBIT_INLINE {
        Isa::store(scores + r * score_stride + at + c * Isa::kLanes, sums[r][c] * factor);
      });
    });
  }
}

// Turns the scores of the keys that a token sees into weights and those around them into 0. Returns 1 / the sum of the
// weights.
template <class Isa>
float weigh_sequence(float* scores, uint32_t begin, uint32_t end, uint32_t count) {
  float* own = scores + begin;
  const auto largest = Isa::set(largest_of<Isa>(own, end - begin));
  auto total = Isa::set(0);
  float rest = 0;
  const uint32_t whole = (end - begin) / Isa::kLanes * Isa::kLanes;
  each_vector<Isa>(end - begin, [&](size_t i, auto vector) {
    const auto weight = exp_of_negative<Isa>(vector.load(own + i) - largest);
    vector.store(own + i, weight);
    if (i < whole) total = total + weight;
  });
  for (uint32_t i = whole; i < end - begin; i++) rest += own[i];
  std::fill_n(scores, begin, 0.0f);
  std::fill(scores + end, scores + count, 0.0f);
  return 1 / (Isa::sum(total) + rest);
}

// `Columns` vectors of y for `Rows` queries.
template <class Isa, int Rows, int Columns, class Vector>
LOWBIT_APART void add_sequence_columns(const float* weights, size_t weight_stride, const float* values, size_t stride,
                                       uint32_t count, const float* inverses, float* y, size_t y_stride,
                                       Vector vector) {
  using V = typename Isa::V;
  V sums[Rows][Columns];
  each_index<Rows>([&](auto r) LOWBIT_INLINE {
    each_index<Columns>([&](auto c) LOWBIT_INLINE { sums[r][c] = Isa::set(0); });
  });
  for (uint32_t key = 0; key < count; key++, values += stride) {
    V own[Columns];
    each_index<Columns>([&](auto c) LOWBIT_INLINE { own[c] = vector.load(values + c * Isa::kLanes); });
    each_index<Rows>([&](auto r) LOWBIT_INLINE {
      const V weight = Isa::set(weights[r * weight_stride + key]);
      each_index<Columns>(
          [&](auto c) LOWBIT_INLINE { sums[r][c] = Isa::multiply_add(weight, own[c], sums[r][c]); });
    });
  }
  each_index<Rows>([&](auto r) LOWBIT_INLINE {
    const V inverse = Isa::set(inverses[r]);
    each_index<Columns>([&](auto c) LOWBIT_INLINE {
      vector.store(y + r * y_stride + c * Isa::kLanes, sums[r][c] * inverse);
    });
  });
}

template <class Isa, int Rows>
void add_sequence_values(const float* weights, size_t weight_stride, const float* values, size_t stride, uint32_t count,
                         const float* inverses, float* y, size_t y_stride, uint32_t dim) {
  constexpr int kColumns = Rows == 4 ? Isa::kColumns : 4;
  uint32_t d = 0;
  for (; d + kColumns * Isa::kLanes <= dim; d += kColumns * Isa::kLanes)
    add_sequence_columns<Isa, Rows, kColumns>(weights, weight_stride, values + d, stride, count, inverses, y + d,
                                              y_stride, WholeVector<Isa>{});
  for (; d + Isa::kLanes <= dim; d += Isa::kLanes)
    add_sequence_columns<Isa, Rows, 1>(weights, weight_stride, values + d, stride, count, inverses, y + d, y_stride,
                                       WholeVector<Isa>{});
  if (d < dim)
    add_sequence_columns<Isa, Rows, 1>(weights, weight_stride, values + d, stride, count, inverses, y + d, y_stride,
                                       PartialVector<Isa>{dim - d});
}

template <class Isa>
void attend_sequence_part(const PackedSequencesArgs& args, const SequencePart& part, uint32_t head, float* scratch) {
  const uint32_t dim = args.head_dim, rows = part.last - part.first, count = part.end - part.begin;
  const size_t q_stride = static_cast<size_t>(args.heads) * dim, stride = static_cast<size_t>(args.kv_heads) * dim;
  const size_t kv_head = static_cast<size_t>(head) * args.kv_heads / args.heads;
  const size_t kv_at = kv_head * dim, apart = args.score_floats;
  float *scores = scratch, *keys = scores + kSequenceRows * apart,
        *inverses = keys + static_cast<size_t>(dim) * kSequenceKeys;
  const size_t q_at = part.first * q_stride + static_cast<size_t>(head) * dim;
  for (uint32_t from = 0; from < count; from += kSequenceKeys) {
    const uint32_t some = std::min(kSequenceKeys, count - from);
    transpose_keys(args.k + (part.begin + from) * stride + kv_at, stride, some, dim, keys);
    uint32_t row = 0;
    for (; row + 4 <= rows; row += 4)
      score_sequence<Isa, 4>(args.q + q_at + row * q_stride, q_stride, keys, some, dim, args.scale,
                             scores + row * apart + from, apart);
    for (; row < rows; row++)
      score_sequence<Isa, 1>(args.q + q_at + row * q_stride, q_stride, keys, some, dim, args.scale,
                             scores + row * apart + from, apart);
  }
  for (uint32_t row = 0; row < rows; row++)
    inverses[row] = weigh_sequence<Isa>(scores + row * apart, part.seen_from(args, part.first + row) - part.begin,
                                        part.seen_to(args, part.first + row) - part.begin, count);
  const float* values = args.v + part.begin * stride + kv_at;
  uint32_t row = 0;
  for (; row + 4 <= rows; row += 4)
    add_sequence_values<Isa, 4>(scores + row * apart, apart, values, stride, count, inverses + row,
                                args.y + q_at + row * q_stride, q_stride, dim);
  for (; row < rows; row++)
    add_sequence_values<Isa, 1>(scores + row * apart, apart, values, stride, count, inverses + row,
                                args.y + q_at + row * q_stride, q_stride, dim);
}

// A tile is kSequenceRows tokens of one head.
template <class Isa>
void attend_packed_run(const Step& step, uint32_t, uint32_t tile, uint32_t thread) {
  const PackedSequencesArgs& args = step.as<PackedSequencesArgs>();
  const uint32_t head = tile % args.heads, first = tile / args.heads * kSequenceRows;
  const uint32_t last = std::min(args.rows, first + kSequenceRows);
  float* scratch = args.scratch + thread * args.thread_floats;
  // Offsets out of range are clamped: a kernel cannot raise errors.
  auto place = [&](uint32_t i) {
    return static_cast<uint32_t>(std::min<int64_t>(std::max<int64_t>(args.offsets[i], 0), args.rows));
  };
  for (uint32_t row = first, i = 0; row < last;) {
    while (i < args.sequences && place(i + 1) <= row) i++;
    const bool is_known = i < args.sequences && place(i) <= row;
    const uint32_t end = i < args.sequences ? std::min(last, is_known ? place(i + 1) : row + 1) : last;
    if (is_known) {
      attend_sequence_part<Isa>(args, SequencePart(args, row, end, place(i), place(i + 1)), head, scratch);
    } else {
      for (uint32_t i = row; i < end; i++)
        std::fill_n(args.y + (static_cast<size_t>(i) * args.heads + head) * args.head_dim, args.head_dim, NAN);
    }
    row = end;
  }
}

template <class Isa>
size_t attend_packed_scratch(const Call& call) {
  return 4 * static_cast<size_t>(call.threads) * packed_sequences_args<Isa>(call).thread_floats;
}

template <class Isa>
void attend_packed_prepare(Step& step, const Call& call) {
  const auto given = arguments_of<AttendPackedArguments>(call);
  PackedSequencesArgs& args = step.init<PackedSequencesArgs>();
  args = packed_sequences_args<Isa>(call);
  args.q = given.q;
  args.k = given.k;
  args.v = given.v;
  args.offsets = given.offsets;
  args.y = given.y;
  args.scratch = static_cast<float*>(given.scratch);
  step.phases = 1;
  step.tiles[0] = ceil_div(args.rows, kSequenceRows) * args.heads;
  step.run = attend_packed_run<Isa>;
}

}  // namespace lowbit
