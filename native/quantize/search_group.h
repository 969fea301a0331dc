// The search for the grid of least squared error: src/quantize/group-fit.ts in C++, the same in every bit. Grids are
// tried 16 at a time, one in each lane, so that no sum crosses lanes.
#pragma once

#include "quantize_args.h"

namespace lowbit {
namespace {

// Where a group is: its row, first column, number of weights and number in the row.
struct GroupPlace {
  size_t row, start, count, group;
};

// A group's weights over the largest magnitude, their importance, and the products of both; zeros up to whole blocks.
struct SearchedGroup {
  float *values, *importance, *products;
  size_t count;
  float peak;
};

// Whole numbers of those that a zero point leaves, a zero point a lane.
struct WholeLevels {
  const float *least, *most;
  float at(float scaled, size_t lane) const { return rounded(clamp(scaled, least[lane], most[lane])); }
};

// The nearest level: the lowest, and the steps over all thresholds that are below.
template <size_t Count>
struct CodebookLevels {
  float lowest, steps[Count - 1], thresholds[Count - 1];
  explicit CodebookLevels(const int8_t* levels) : lowest(levels[0]) {
    for (size_t i = 0; i + 1 < Count; i++) {
      steps[i] = static_cast<float>(levels[i + 1] - levels[i]);
      thresholds[i] = static_cast<float>(levels[i] + levels[i + 1]) / 2;
    }
  }
  float at(float scaled, size_t) const {
    float level = lowest;
    for (size_t i = 0; i + 1 < Count; i++) level += scaled > thresholds[i] ? steps[i] : 0;
    return level;
  }
};

struct SearchSums {
  float products[kLanes] = {}, squares[kLanes] = {};
};

inline float sum_of_lanes(float* lanes) {
  for (size_t width = kLanes / 2; width > 0; width /= 2)
    for (size_t j = 0; j < width; j++) lanes[j] += lanes[j + width];
  return lanes[0];
}

inline float score_of(float product, float square) { return square > 0 ? product * product / square : 0; }

// Sums of all grids, a grid a lane.
template <class Levels>
inline SearchSums sums_of_trials(const SearchedGroup& group, const float* inverses, const Levels& levels) {
  SearchSums sums;
  for (size_t i = 0; i < group.count; i++) {
    const float value = group.values[i], importance = group.importance[i], product = group.products[i];
    for (size_t j = 0; j < kLanes; j++) {
      const float q = levels.at(value * inverses[j], j);
      sums.products[j] += product * q;
      sums.squares[j] += importance * q * q;
    }
  }
  return sums;
}

// Sums of one grid, a weight a lane. What is beyond the last weight has no importance.
template <class Levels>
inline SearchSums sums_of_grid(const SearchedGroup& group, float inverse, const Levels& levels) {
  SearchSums sums;
  for (size_t i = 0; i < group.count; i += kLanes)
    for (size_t j = 0; j < kLanes; j++) {
      const float q = levels.at(group.values[i + j] * inverse, j);
      sums.products[j] += group.products[i + j] * q;
      sums.squares[j] += group.importance[i + j] * q * q;
    }
  return sums;
}

// Floats that a thread keeps of each kind.
inline size_t searched_floats(size_t group_size) { return (group_size + kLanes - 1) / kLanes * kLanes; }

inline SearchedGroup read_group(const QuantizeArgs& args, const float* values, const GroupPlace& place,
                                uint32_t thread) {
  const size_t padded = searched_floats(args.group_size);
  float* at = args.searched + 3 * padded * thread;
  SearchedGroup group = {at, at + padded, at + 2 * padded, place.count, 0};
  const size_t end = (place.count + kLanes - 1) / kLanes * kLanes;
  const float *w = values + place.start, *importance = args.importance ? args.importance + place.start : nullptr;
  float peaks[kLanes] = {}, odd[kLanes] = {};
  for_blocks(w, place.count, [&](const float* block, size_t first, size_t) {
    memcpy(group.values + first, block, 4 * kLanes);
    for (size_t j = 0; j < kLanes; j++) peaks[j] = larger(peaks[j], block[j] < 0 ? -block[j] : block[j]);
    for (size_t j = 0; j < kLanes; j++) odd[j] += block[j] * 0.0f;
  });
  float odds = 0;
  for (size_t j = 0; j < kLanes; j++) {
    group.peak = larger(group.peak, peaks[j]);
    odds += odd[j];
  }
  if (!(odds == 0)) *args.failed = 1;
  for (size_t i = 0; i < place.count; i++) group.importance[i] = importance ? importance[i] : 1;
  for (size_t i = place.count; i < end; i++) group.importance[i] = 0;
  if (group.peak > 0)
    for (size_t i = 0; i < end; i++) group.values[i] /= group.peak;
  for (size_t i = 0; i < end; i++) group.products[i] = group.importance[i] * group.values[i];
  return group;
}

inline float stored_scale(const QuantizeArgs& args, float scale) {
  return args.has_half_scales ? half_scale(scale) : clamp(scale, kSmallestScale, kLargestScale);
}

// Levels -1 and 1: the weighted mean of magnitudes.
inline void search_signs(const QuantizeArgs& args, const SearchedGroup& group, const float* w, int8_t* q,
                         float* scale) {
  SearchSums sums;
  for (size_t i = 0; i < group.count; i += kLanes)
    for (size_t j = 0; j < kLanes; j++) {
      const float product = group.products[i + j];
      sums.products[j] += product < 0 ? -product : product;
      sums.squares[j] += group.importance[i + j];
    }
  const float product = sum_of_lanes(sums.products), square = sum_of_lanes(sums.squares);
  const float mean = square > 0 ? product / square * group.peak : 0;
  *scale = mean > 0 ? stored_scale(args, mean) : 0;
  for (size_t i = 0; i < group.count; i++) q[i] = w[i] < 0 ? -1 : 0;
}

// The lane of the grid with the best score, and its scale, improved once.
struct Found {
  size_t place;
  float scale;
};

inline size_t best_trial(const SearchSums& sums) {
  size_t best = 0;
  for (size_t j = 1; j < kLanes; j++)
    if (score_of(sums.products[j], sums.squares[j]) > score_of(sums.products[best], sums.squares[best])) best = j;
  return best;
}

// `levels_at(lane)` gives the levels of the grid of one lane in all lanes.
template <class Levels, class LevelsAt>
inline Found find_grid(const SearchedGroup& group, const float* inverses, const Levels& levels, LevelsAt levels_at) {
  const SearchSums sums = sums_of_trials(group, inverses, levels);
  const size_t best = best_trial(sums);
  const float score = score_of(sums.products[best], sums.squares[best]);
  const float scale = score > 0 ? sums.products[best] / sums.squares[best] : 1.0f / inverses[best];
  SearchSums again = sums_of_grid(group, 1.0f / scale, levels_at(best));
  const float product = sum_of_lanes(again.products), square = sum_of_lanes(again.squares);
  return {best, score_of(product, square) > score ? product / square : scale};
}

// Parts of the range between the least and the largest weight, with the zero points below and above the exact one.
inline void try_zeros(const QuantizeArgs& args, const SearchedGroup& group, float* inverses, float* zeros) {
  float low = 0, high = 0;
  for (size_t i = 0; i < group.count; i++) {
    low = smaller(low, group.values[i]);
    high = larger(high, group.values[i]);
  }
  const float step = (high - low) / (args.qmax - args.qmin);
  for (size_t j = 0; j < kLanes; j++) {
    const float part = args.trials[j], scale = part * step, offset = part * low / scale;
    const float near = rounded(offset), below = args.qmin - (near < offset ? near + 1 : near);
    inverses[j] = 1.0f / scale;
    zeros[j] = clamp(j < kLanes / 2 ? below : below + 1, args.qmin, args.qmax);
  }
}

inline float stored_grid_scale(const QuantizeArgs& args, float exact) {
  const float stored = stored_scale(args, exact < 0 ? -exact : exact);
  return exact < 0 ? -stored : stored;
}

inline void search_whole(const QuantizeArgs& args, const SearchedGroup& group, const float* w, int8_t* q, size_t at) {
  float inverses[kLanes], zeros[kLanes] = {}, least[kLanes], most[kLanes];
  memcpy(inverses, args.trials, sizeof inverses);
  if (args.zeros) try_zeros(args, group, inverses, zeros);
  for (size_t j = 0; j < kLanes; j++) {
    least[j] = args.qmin - zeros[j];
    most[j] = args.qmax - zeros[j];
  }
  float chosen_least[kLanes], chosen_most[kLanes];
  const Found found = find_grid(group, inverses, WholeLevels{least, most}, [&](size_t place) {
    for (size_t j = 0; j < kLanes; j++) {
      chosen_least[j] = least[place];
      chosen_most[j] = most[place];
    }
    return WholeLevels{chosen_least, chosen_most};
  });
  const float zero = zeros[found.place], scale = stored_grid_scale(args, found.scale * group.peak);
  const float inverse = 1.0f / scale, lowest = least[found.place], highest = most[found.place];
  for_blocks(w, group.count, [&](const float* block, size_t first, size_t some) {
    int8_t whole[kLanes];
    for (size_t j = 0; j < kLanes; j++)
      whole[j] = static_cast<int8_t>(static_cast<int32_t>(rounded(clamp(block[j] * inverse, lowest, highest)) + zero));
    memcpy(q + first, whole, some);
  });
  args.scales[at] = scale;
  if (args.zeros) args.zeros[at] = static_cast<int8_t>(zero);
}

template <size_t Count>
inline void search_levels(const QuantizeArgs& args, const SearchedGroup& group, const float* w, int8_t* q, size_t at) {
  const CodebookLevels<Count> levels(args.levels);
  const Found found = find_grid(group, args.trials, levels, [&](size_t) { return levels; });
  const float scale = stored_grid_scale(args, found.scale * group.peak);
  const float inverse = 1.0f / scale;
  for_blocks(w, group.count, [&](const float* block, size_t first, size_t some) {
    int8_t places[kLanes];
    for (size_t j = 0; j < kLanes; j++) {
      int32_t place = -static_cast<int32_t>(Count / 2);
      for (size_t i = 0; i + 1 < Count; i++) place += block[j] * inverse > levels.thresholds[i] ? 1 : 0;
      places[j] = static_cast<int8_t>(place);
    }
    memcpy(q + first, places, some);
  });
  args.scales[at] = scale;
}

// A group of zeros: a codebook may have no level 0, so that its scale is.
inline void store_zeros(const QuantizeArgs& args, const SearchedGroup& group, int8_t* q, size_t at) {
  memset(q, 0, group.count);
  args.scales[at] = args.level_count > 0 ? 0 : stored_scale(args, 0);
  if (args.zeros) args.zeros[at] = 0;
}

inline void search_group(const QuantizeArgs& args, const float* row, const GroupPlace& place, int8_t* q,
                         uint32_t thread) {
  const SearchedGroup group = read_group(args, row, place, thread);
  const float* w = row + place.start;
  const size_t at = place.row * args.groups + place.group;
  if (args.is_signs) return search_signs(args, group, w, q, args.scales + at);
  if (!(group.peak > 0)) return store_zeros(args, group, q, at);
  switch (args.level_count) {
    case 4: return search_levels<4>(args, group, w, q, at);
    case 8: return search_levels<8>(args, group, w, q, at);
    case 16: return search_levels<16>(args, group, w, q, at);
    default: return search_whole(args, group, w, q, at);
  }
}

}  // namespace
}  // namespace lowbit
