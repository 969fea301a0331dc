// RMSNorm, softmax, sums of groups and argmax: operators over rows of values.
#pragma once

#include <cmath>

#include "../families.h"
#include "vectors.h"

namespace lowbit {

// Values below which a tile does not pay for handing it to another thread.
constexpr uint32_t kTileValues = 8192;

struct RowsArgs {
  const float* x;
  const float* weight;
  void* y;
  uint32_t rows, dim, rows_per_tile;
  double eps;
};

// Where a family has its rows and their results.
struct RowsIndices {
  ScalarIndex rows, dim;
  BufferIndex x, y;
};

template <class Isa>
RowsArgs& split_rows(Step& step, const Call& call, const RowsIndices& at) {
  RowsArgs& args = step.init<RowsArgs>();
  args.rows = scalar_of<uint32_t>(call, at.rows);
  args.dim = scalar_of<uint32_t>(call, at.dim);
  args.x = buffer_of<const float>(call, at.x);
  args.y = buffer_of<void>(call, at.y);
  args.rows_per_tile = items_per_tile<Isa>(args.rows, kTileValues / std::max(1u, args.dim), call.threads);
  step.phases = 1;
  step.tiles[0] = ceil_div(args.rows, args.rows_per_tile);
  return args;
}

// In double precision, so that squares of large values do not overflow.
template <class Isa>
double sum_of_squares(const float* x, uint32_t count) {
  constexpr uint32_t kSums = 16;
  double sums[kSums] = {};
  uint32_t i = 0;
  for (; i + kSums <= count; i += kSums)
    for (uint32_t j = 0; j < kSums; j++) sums[j] += static_cast<double>(x[i + j]) * static_cast<double>(x[i + j]);
  double total = 0;
  for (; i < count; i++) total += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  for (double sum : sums) total += sum;
  return total;
}

template <class Isa>
void norm_row(const RowsArgs& args, uint32_t row) {
  const float* x = args.x + static_cast<size_t>(row) * args.dim;
  float* y = static_cast<float*>(args.y) + static_cast<size_t>(row) * args.dim;
  const double mean = sum_of_squares<Isa>(x, args.dim) / args.dim;
  const auto inverse = Isa::set(static_cast<float>(1 / std::sqrt(mean + args.eps)));
  each_vector<Isa>(args.dim, [&](size_t i, auto vector) {
    vector.store(y + i, vector.load(x + i) * inverse * vector.load(args.weight + i));
  });
}

template <class Isa>
void rms_norm_run(const Step& step, uint32_t, uint32_t tile, uint32_t) {
  const RowsArgs& args = step.as<RowsArgs>();
  const uint32_t last = std::min(args.rows, (tile + 1) * args.rows_per_tile);
  for (uint32_t row = tile * args.rows_per_tile; row < last; row++) norm_row<Isa>(args, row);
}

template <class Isa>
void rms_norm_prepare(Step& step, const Call& call) {
  RowsArgs& args = split_rows<Isa>(step, call, {rms_norm::kRows, rms_norm::kDim, rms_norm::kX, rms_norm::kY});
  args.eps = scalar_of<double>(call, rms_norm::kEps);
  args.weight = buffer_of<const float>(call, rms_norm::kWeight);
  step.run = rms_norm_run<Isa>;
}

struct LayerNormArgs : RowsArgs {
  // Null without.
  const float* bias;
};

template <class Isa>
void layer_norm_run(const Step& step, uint32_t, uint32_t tile, uint32_t) {
  const LayerNormArgs& args = step.as<LayerNormArgs>();
  const uint32_t last = std::min(args.rows, (tile + 1) * args.rows_per_tile), dim = args.dim;
  for (uint32_t row = tile * args.rows_per_tile; row < last; row++) {
    const float* x = args.x + static_cast<size_t>(row) * dim;
    float* y = static_cast<float*>(args.y) + static_cast<size_t>(row) * dim;
    auto sum = Isa::set(0);
    each_vector<Isa>(dim, [&](size_t i, auto vector) { sum = sum + vector.load(x + i); });
    const auto mean = Isa::set(Isa::sum(sum) / static_cast<float>(dim));
    // Of values less their mean, which may be far from 0; y may be x.
    each_vector<Isa>(dim, [&](size_t i, auto vector) { vector.store(y + i, vector.load(x + i) - mean); });
    const auto inverse = Isa::set(static_cast<float>(1 / std::sqrt(sum_of_squares<Isa>(y, dim) / dim + args.eps)));
    each_vector<Isa>(dim, [&](size_t i, auto vector) {
      const auto scaled = vector.load(y + i) * inverse;
      const auto weight = vector.load(args.weight + i);
      vector.store(y + i, args.bias ? Isa::multiply_add(scaled, weight, vector.load(args.bias + i)) : scaled * weight);
    });
  }
}

template <class Isa>
void layer_norm_prepare(Step& step, const Call& call) {
  namespace from = layer_norm;
  const RowsArgs rows = split_rows<Isa>(step, call, {from::kRows, from::kDim, from::kX, from::kY});
  LayerNormArgs& args = step.init<LayerNormArgs>();
  static_cast<RowsArgs&>(args) = rows;
  args.eps = scalar_of<double>(call, from::kEps);
  args.weight = buffer_of<const float>(call, from::kWeight);
  args.bias = scalar_of<bool>(call, from::kHasBias) ? buffer_of<const float>(call, from::kBias) : nullptr;
  step.run = layer_norm_run<Isa>;
}

template <class Isa>
float largest_of(const float* x, uint32_t count) {
  if (count < Isa::kLanes) {
    float largest = x[0];
    for (uint32_t i = 1; i < count; i++) largest = x[i] > largest ? x[i] : largest;
    return largest;
  }
  auto largest = Isa::load(x);
  for (uint32_t i = Isa::kLanes; i + Isa::kLanes <= count; i += Isa::kLanes)
    largest = Isa::max(Isa::load(x + i), largest);
  // The last vector may see values again.
  return Isa::largest(Isa::max(Isa::load(x + count - Isa::kLanes), largest));
}

template <class Isa>
void softmax_run(const Step& step, uint32_t, uint32_t tile, uint32_t) {
  const RowsArgs& args = step.as<RowsArgs>();
  const uint32_t last = std::min(args.rows, (tile + 1) * args.rows_per_tile);
  for (uint32_t row = tile * args.rows_per_tile; row < last; row++) {
    const float* x = args.x + static_cast<size_t>(row) * args.dim;
    float* y = static_cast<float*>(args.y) + static_cast<size_t>(row) * args.dim;
    const auto largest = Isa::set(largest_of<Isa>(x, args.dim));
    auto total = Isa::set(0);
    float rest = 0;
    each_vector<Isa>(args.dim, [&](size_t i, auto vector) {
      const auto e = exp_of<Isa>(vector.load(x + i) - largest);
      vector.store(y + i, e);
      if (i + Isa::kLanes <= args.dim) total = total + e;
    });
    for (uint32_t i = args.dim - args.dim % Isa::kLanes; i < args.dim; i++) rest += y[i];
    const auto inverse = Isa::set(1 / (Isa::sum(total) + rest));
    each_vector<Isa>(args.dim, [&](size_t i, auto vector) { vector.store(y + i, vector.load(y + i) * inverse); });
  }
}

template <class Isa>
void softmax_prepare(Step& step, const Call& call) {
  split_rows<Isa>(step, call, {rows::kRows, rows::kDim, rows::kX, rows::kY});
  step.run = softmax_run<Isa>;
}

struct GroupSumsArgs : RowsArgs {
  uint32_t group_size, groups;
};

template <class Isa>
void group_sums_run(const Step& step, uint32_t, uint32_t tile, uint32_t) {
  const GroupSumsArgs& args = step.as<GroupSumsArgs>();
  const uint32_t last = std::min(args.rows, (tile + 1) * args.rows_per_tile);
  for (uint32_t row = tile * args.rows_per_tile; row < last; row++) {
    const float* x = args.x + static_cast<size_t>(row) * args.dim;
    float* y = static_cast<float*>(args.y) + static_cast<size_t>(row) * args.groups;
    for (uint32_t g = 0, c = 0; g < args.groups; g++, c += args.group_size) {
      auto sum = Isa::set(0);
      each_vector<Isa>(std::min(args.group_size, args.dim - c),
                       [&](size_t i, auto vector) { sum = sum + vector.load(x + c + i); });
      y[g] = Isa::sum(sum);
    }
  }
}

template <class Isa>
void group_sums_prepare(Step& step, const Call& call) {
  const RowsArgs rows =
      split_rows<Isa>(step, call, {group_sums::kRows, group_sums::kK, group_sums::kX, group_sums::kY});
  GroupSumsArgs& args = step.init<GroupSumsArgs>();
  static_cast<RowsArgs&>(args) = rows;
  args.group_size = scalar_of<uint32_t>(call, group_sums::kGroupSize);
  args.groups = ceil_div(args.dim, args.group_size);
  step.run = group_sums_run<Isa>;
}

// ln(1 + e) = 2 atanh(s), s = e / (2 + e), for e = exp(-|x|) in 0 .. 1: powers of s^2 <= 1 / 9 with a relative error of
// 1e-8. What e leaves of x is max(x, 0).
template <class Isa>
inline LOWBIT_INLINE typename Isa::V softplus_of(typename Isa::V x) {
  const auto zero = Isa::set(0.0f);
  const auto e = exp_of_negative<Isa>(Isa::min(x, zero - x));
  const auto s = e / (Isa::set(2.0f) + e);
  const auto square = s * s;
  auto series = Isa::set(2.0f / 15);
  for (float power : {13.0f, 11.0f, 9.0f, 7.0f, 5.0f, 3.0f, 1.0f})
    series = Isa::multiply_add(series, square, Isa::set(2.0f / power));
  return Isa::multiply_add(s, series, Isa::max(zero, x));
}

struct SoftplusArgs : RowsArgs {
  const float* factors;
};

template <class Isa>
void softplus_run(const Step& step, uint32_t, uint32_t tile, uint32_t) {
  const SoftplusArgs& args = step.as<SoftplusArgs>();
  const uint32_t last = std::min(args.rows, (tile + 1) * args.rows_per_tile);
  for (uint32_t row = tile * args.rows_per_tile; row < last; row++) {
    const float* x = args.x + static_cast<size_t>(row) * args.dim;
    float* y = static_cast<float*>(args.y) + static_cast<size_t>(row) * args.dim;
    each_vector<Isa>(args.dim, [&](size_t i, auto vector) {
      const auto shifted = vector.load(x + i) + vector.load(args.weight + i);
      vector.store(y + i, vector.load(args.factors + i) * softplus_of<Isa>(shifted));
    });
  }
}

template <class Isa>
void softplus_prepare(Step& step, const Call& call) {
  const RowsArgs rows = split_rows<Isa>(step, call, {softplus::kRows, softplus::kDim, softplus::kX, softplus::kY});
  SoftplusArgs& args = step.init<SoftplusArgs>();
  static_cast<RowsArgs&>(args) = rows;
  args.weight = buffer_of<const float>(call, softplus::kBias);
  args.factors = buffer_of<const float>(call, softplus::kFactors);
  step.run = softplus_run<Isa>;
}

struct ScaleRowsArgs : RowsArgs {
  uint32_t count;
};

template <class Isa>
void scale_rows_run(const Step& step, uint32_t, uint32_t tile, uint32_t) {
  const ScaleRowsArgs& args = step.as<ScaleRowsArgs>();
  const uint32_t last = std::min(args.rows, (tile + 1) * args.rows_per_tile);
  for (uint32_t row = tile * args.rows_per_tile; row < last; row++) {
    const float* x = args.x + static_cast<size_t>(row) * args.dim;
    float* y = static_cast<float*>(args.y) + static_cast<size_t>(row) * args.dim;
    const auto factor = Isa::set(args.weight[row % args.count]);
    each_vector<Isa>(args.dim, [&](size_t i, auto vector) { vector.store(y + i, factor * vector.load(x + i)); });
  }
}

template <class Isa>
void scale_rows_prepare(Step& step, const Call& call) {
  const RowsArgs rows =
      split_rows<Isa>(step, call, {scale_rows::kRows, scale_rows::kDim, scale_rows::kX, scale_rows::kY});
  ScaleRowsArgs& args = step.init<ScaleRowsArgs>();
  static_cast<RowsArgs&>(args) = rows;
  args.count = scalar_of<uint32_t>(call, scale_rows::kCount);
  args.weight = buffer_of<const float>(call, scale_rows::kFactors);
  step.run = scale_rows_run<Isa>;
}

// Index of the first largest value, or of the first NaN.
template <class Isa>
uint32_t argmax_of(const float* x, uint32_t count) {
  constexpr uint32_t kBlock = 1024;
  uint32_t best = 0;
  float largest = x[0];
  for (uint32_t start = 0; start < count && !std::isnan(largest); start += kBlock) {
    const uint32_t end = std::min(count, start + kBlock);
    auto vector = Isa::set(largest);
    // Maxima may lose a NaN; 0 times the values, summed, is 0 unless there is one, or an infinity.
    auto zeros = Isa::set(0.0f);
    uint32_t i = start;
    for (; i + Isa::kLanes <= end; i += Isa::kLanes) {
      const auto values = Isa::load(x + i);
      vector = Isa::max(values, vector);
      zeros = Isa::multiply_add(values, Isa::set(0.0f), zeros);
    }
    if (i == end && Isa::sum(zeros) == 0 && !(Isa::largest(vector) > largest)) continue;
    for (uint32_t j = start; j < end && !std::isnan(largest); j++)
      if (!(x[j] <= largest)) largest = x[best = j];
  }
  return best;
}

template <class Isa>
void argmax_run(const Step& step, uint32_t, uint32_t tile, uint32_t) {
  const RowsArgs& args = step.as<RowsArgs>();
  const uint32_t last = std::min(args.rows, (tile + 1) * args.rows_per_tile);
  for (uint32_t row = tile * args.rows_per_tile; row < last; row++)
    static_cast<int64_t*>(args.y)[row] = argmax_of<Isa>(args.x + static_cast<size_t>(row) * args.dim, args.dim);
}

template <class Isa>
void argmax_prepare(Step& step, const Call& call) {
  split_rows<Isa>(step, call, {rows::kRows, rows::kDim, rows::kX, rows::kY});
  step.run = argmax_run<Isa>;
}

}  // namespace lowbit
