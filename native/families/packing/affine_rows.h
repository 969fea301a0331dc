// Rounds floats to integers with a scale (and zero point) per group, bit for bit as src/quantize/affine.ts, hqq.ts
// (HQQ, Badri and Shaji 2023) and group-fit.ts. Values are taken in blocks of 16, one per lane, so that compilers
// vectorize the loops for any instruction set without changing the order of a sum.
#pragma once

#include <algorithm>
#include <cstring>

#include "search_group.h"

namespace lowbit {
namespace {

constexpr float kSmallestHqqScale = 0x1p-23f;
constexpr int kHqqSteps = 20;
// Weights per tile.
constexpr size_t kTileWeights = 1 << 16;

// Sums lanes by halving: lane j += lane j + width, in the order of `laneSum` in hqq.ts.
inline double lane_sum(double* lanes) {
  for (size_t width = kLanes / 2; width > 0; width /= 2)
    for (size_t j = 0; j < width; j++) lanes[j] += lanes[j + width];
  return lanes[0];
}

struct Range {
  float low, high;
  bool is_finite;
};

inline Range range_of(const float* values, size_t count) {
  float low[kLanes] = {}, high[kLanes] = {}, odd[kLanes] = {};
  for_blocks(values, count, [&](const float* w, size_t, size_t) {
    for (size_t j = 0; j < kLanes; j++) low[j] = smaller(low[j], w[j]);
    for (size_t j = 0; j < kLanes; j++) high[j] = larger(high[j], w[j]);
    // 0; NaN from the first value on that is not finite.
    for (size_t j = 0; j < kLanes; j++) odd[j] += w[j] * 0.0f;
  });
  // Reduces lanes by halving, in vectors: lane by lane, this would take longer than all the rest.
  for (size_t width = kLanes / 2; width > 0; width /= 2)
    for (size_t j = 0; j < width; j++) {
      low[j] = smaller(low[j], low[j + width]);
      high[j] = larger(high[j], high[j + width]);
      odd[j] += odd[j + width];
    }
  return {low[0], high[0], odd[0] == 0};
}

inline float affine_scale(const QuantizeArgs& args, float low, float high) {
  const float steps = args.qmax - args.qmin;
  if (args.mapping == Mapping::kSymmetric) return larger(-low, high) / (steps / 2);
  if (args.mapping == Mapping::kAsymmetric) return (high - low) / steps;
  return larger(low / args.qmin, high / args.qmax);
}

inline float hqq_scale(const QuantizeArgs& args, const float* values, size_t count, float peak) {
  float scale = larger(peak / -args.qmin, kSmallestHqqScale);
  for (int step = 0; step < kHqqSteps; step++) {
    const float inverse = 1.0f / scale;
    double products[kLanes] = {}, squares[kLanes] = {};
    for_blocks(values, count, [&](const float* w, size_t, size_t) {
      for (size_t j = 0; j < kLanes; j++) {
        const float q = rounded(clamp(w[j] * inverse, args.qmin, args.qmax));
        products[j] += static_cast<double>(w[j]) * static_cast<double>(q);
        squares[j] += static_cast<double>(q * q);
      }
    });
    const double sum = lane_sum(squares);
    const float next = sum > 0 ? larger(static_cast<float>(lane_sum(products) / sum), kSmallestHqqScale) : scale;
    if (next == scale) break;
    scale = next;
  }
  return scale;
}

inline void quantize_group(const QuantizeArgs& args, const float* values, size_t count, int8_t* q, size_t group) {
  const Range range = range_of(values, count);
  if (!range.is_finite) *args.failed = 1;
  const float chosen = args.algorithm == Algorithm::kHqq
                           ? hqq_scale(args, values, count, larger(-range.low, range.high))
                           : affine_scale(args, range.low, range.high);
  const float exact = clamp(chosen, kSmallestScale, kLargestScale);
  const float scale = args.scale_type == ScaleType::kHalf ? half_scale(exact) : exact;
  const float zero = args.zeros ? clamp(args.qmin - rounded(range.low / exact), args.qmin, args.qmax) : 0;
  // Clamps before rounding: with whole bounds, the result is the same as clamping after.
  const float inverse = 1.0f / scale, least = args.qmin - zero, most = args.qmax - zero;
  for_blocks(values, count, [&](const float* w, size_t first, size_t some) {
    int8_t block[kLanes];
    for (size_t j = 0; j < kLanes; j++) {
      const float whole = rounded(clamp(w[j] * inverse, least, most)) + zero;
      block[j] = static_cast<int8_t>(static_cast<int32_t>(whole));
    }
    memcpy(q + first, block, some);
  });
  args.scales[group] = scale;
  if (args.zeros) args.zeros[group] = static_cast<int8_t>(zero);
}

// Quantizes to one bit: -1 for negative weights, else 0; the scale is the mean magnitude.
inline void quantize_signs(const QuantizeArgs& args, const float* values, size_t count, int8_t* q, size_t group) {
  double sums[kLanes] = {};
  for_blocks(values, count, [&](const float* w, size_t first, size_t some) {
    int8_t block[kLanes];
    for (size_t j = 0; j < kLanes; j++) {
      sums[j] += static_cast<double>(w[j] < 0 ? -w[j] : w[j]);
      block[j] = w[j] < 0 ? -1 : 0;
    }
    memcpy(q + first, block, some);
  });
  const double sum = lane_sum(sums);
  if (!(sum - sum == 0)) *args.failed = 1;
  const float mean = static_cast<float>(sum / static_cast<double>(count));
  args.scales[group] = args.scale_type == ScaleType::kHalf && mean > 0 ? half_scale(mean) : mean;
}

// A row as f32; points at the stored row where that is f32.
inline const float* row_of(const QuantizeArgs& args, size_t row, uint32_t thread) {
  const size_t k = args.k;
  if (args.type == FloatType::kF32) return static_cast<const float*>(args.weights) + row * k;
  const uint16_t* stored = static_cast<const uint16_t*>(args.weights) + row * k;
  float* values = args.rows + thread * k;
  if (args.type == FloatType::kBf16)
    for (size_t i = 0; i < k; i++) values[i] = bf16_to_float(stored[i]);
  else
    for (size_t i = 0; i < k; i++) values[i] = half_to_float(stored[i]);
  return values;
}

template <class Search>
void quantize_run(const Step& step, uint32_t, uint32_t tile, uint32_t thread) {
  const QuantizeArgs& args = step.as<QuantizeArgs>();
  const size_t last = std::min(args.n, (tile + 1) * args.rows_per_tile);
  for (size_t row = tile * args.rows_per_tile; row < last; row++) {
    const float* values = row_of(args, row, thread);
    if (args.algorithm == Algorithm::kMse) {
      const size_t step = args.scale_type == ScaleType::kInteger ? kSuperGroup / args.group_size : args.groups;
      for (size_t group = 0; group < args.groups; group += step)
        search_groups<Search>(args, values, row, group, std::min(args.groups, group + step), thread);
      continue;
    }
    for (size_t group = 0; group < args.groups; group++) {
      const size_t start = group * args.group_size;
      const size_t count = std::min(args.group_size, args.k - start);
      int8_t* q = args.qvals + row * args.k + start;
      if (args.is_signs) quantize_signs(args, values + start, count, q, row * args.groups + group);
      else quantize_group(args, values + start, count, q, row * args.groups + group);
    }
  }
}

// Scratch per thread: a row of floats, and the search's copies of a group.
size_t quantize_scratch(const Call& call) {
  const auto given = arguments_of<QuantizeAffineArguments>(call);
  const size_t searched = searched_floats(given.group_size);
  return 4 * (given.k + 3 * searched) * call.threads;
}

template <class Search>
void quantize_prepare(Step& step, const Call& call) {
  const auto given = arguments_of<QuantizeAffineArguments>(call);
  QuantizeArgs& args = step.init<QuantizeArgs>();
  args = {};
  set_scheme(args, given);
  args.algorithm = static_cast<Algorithm>(given.algorithm);
  args.type = static_cast<FloatType>(given.dtype);
  args.weights = given.weights;
  args.rows = static_cast<float*>(given.scratch);
  args.searched = args.rows + call.threads * args.k;
  args.rows_per_tile = std::max<size_t>(1, kTileWeights / args.k);
  step.run = quantize_run<Search>;
  step.phases = 1;
  step.tiles[0] = static_cast<uint32_t>((args.n + args.rows_per_tile - 1) / args.rows_per_tile);
}

template <class Search>
constexpr KernelRow quantize_row(const char* name, uint32_t needs) {
  return {name, "quantize_affine", nullptr, 0, needs, 1, 1, quantize_scratch, quantize_prepare<Search>};
}

}  // namespace
}  // namespace lowbit
