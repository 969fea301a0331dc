// Arguments, lanes and float32 rounding shared by the quantizers of groups.
#pragma once

#include <algorithm>
#include <cstring>

#include "../../half.h"
#include "arguments.h"

namespace lowbit {
namespace {

constexpr size_t kLanes = 16;
// 1.5 * 2^23, where floats are the whole numbers: adding and subtracting it rounds smaller numbers, ties to even.
constexpr float kWhole = 0x1.8p23f;
constexpr float kSmallestScale = 0x1p-126f, kLargestScale = 0x1.fffffep127f;
constexpr float kSmallestHalf = 0x1p-24f, kLargestHalf = 65504;
// Largest magnitude of integer scales, and weights along k that share their factor.
constexpr float kIntegerMax = 127;
constexpr size_t kSuperGroup = 256;

// Numbered as in src/kernels/families/packing/fields.ts; k-means gives a codebook.
enum class Mapping : uint32_t { kSymmetric, kNoClippingError, kAsymmetric, kCodebook };
enum class Algorithm : uint32_t { kAffine, kHqq, kMse };
enum class ScaleType : uint32_t { kFloat, kHalf, kInteger };

struct QuantizeArgs {
  const void* weights;
  int8_t* qvals;
  float* scales;
  // Factors of integer scales.
  float* super_scales;
  // Null without zero points.
  int8_t* zeros;
  // Zero point of a codebook's groups with odd integer scales; 0 for none.
  float odd_zero;
  // Weights of columns in the squared error; null: all count alike.
  const float* importance;
  // trials: candidates of the search. levels: of a codebook.
  const float* trials;
  const int8_t* levels;
  // Set to 1 when a weight is not finite.
  int32_t* failed;
  // Scratch: a row of floats per thread.
  float* rows;
  // Scratch: three groups of floats per thread, for the search.
  float* searched;
  size_t n, k, group_size, groups, rows_per_tile;
  FloatType type;
  Mapping mapping;
  Algorithm algorithm;
  float qmin, qmax;
  uint32_t level_count;
  ScaleType scale_type;
  bool is_signs;
};

// Sets the fields that calls of several families share.
template <class Given>
void set_scheme(QuantizeArgs& args, const Given& given) {
  const int bits = given.bits;
  args.n = given.n;
  args.k = given.k;
  args.group_size = given.group_size;
  args.groups = (args.k + args.group_size - 1) / args.group_size;
  args.mapping = std::min(static_cast<Mapping>(given.mapping_type), Mapping::kCodebook);
  args.scale_type = static_cast<ScaleType>(given.scale_type);
  args.is_signs = bits == 1 && args.mapping != Mapping::kAsymmetric;
  args.level_count = args.mapping == Mapping::kCodebook ? 1u << bits : 0;
  args.qmin = static_cast<float>(-(1 << (bits - 1)));
  args.qmax = -args.qmin - 1;
  args.qvals = given.qvals;
  args.scales = given.scales;
  args.super_scales = given.super_scales;
  args.odd_zero = given.odd_zero;
  args.zeros = args.mapping == Mapping::kAsymmetric || args.odd_zero != 0 ? given.zeros : nullptr;
  args.importance = given.importances > 0 ? given.importance : nullptr;
  args.trials = given.trials;
  args.levels = given.levels;
  args.failed = given.failed;
}

// The factor that the integer scales of a column's super-block have in a row.
inline float& super_scale_at(const QuantizeArgs& args, size_t row, size_t column) {
  return args.super_scales[row * ((args.k + kSuperGroup - 1) / kSuperGroup) + column / kSuperGroup];
}

inline float smaller(float a, float b) { return b < a ? b : a; }
inline float larger(float a, float b) { return b > a ? b : a; }
inline float clamp(float value, float low, float high) { return value < low ? low : value > high ? high : value; }
inline float rounded(float value) { return (value + kWhole) - kWhole; }

// Calls f(block of 16 values, index of the first, number of values); the last block is padded with zeros.
template <class F>
inline void for_blocks(const float* values, size_t count, F f) {
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) f(values + i, i, kLanes);
  if (i == count) return;
  float last[kLanes] = {};
  memcpy(last, values + i, 4 * (count - i));
  f(last, i, count - i);
}

inline float half_scale(float scale) { return half_to_float(float_to_half(clamp(scale, kSmallestHalf, kLargestHalf))); }

}  // namespace
}  // namespace lowbit
