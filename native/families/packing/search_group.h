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

// A grid: the scale, which may not be as it is stored yet, and the zero point.
struct Grid {
  float scale, zero;
};

// Levels -1 and 1: the weighted mean of magnitudes.
inline Grid search_signs(const SearchedGroup& group) {
  SearchSums sums;
  for (size_t i = 0; i < group.count; i += kLanes)
    for (size_t j = 0; j < kLanes; j++) {
      const float product = group.products[i + j];
      sums.products[j] += product < 0 ? -product : product;
      sums.squares[j] += group.importance[i + j];
    }
  const float product = sum_of_lanes(sums.products), square = sum_of_lanes(sums.squares);
  const float mean = square > 0 ? product / square * group.peak : 0;
  return {mean > 0 ? mean : 0, 0};
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

inline Grid search_whole(const QuantizeArgs& args, const SearchedGroup& group) {
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
  return {found.scale * group.peak, zeros[found.place]};
}

template <size_t Count>
inline Grid search_levels(const QuantizeArgs& args, const SearchedGroup& group) {
  const CodebookLevels<Count> levels(args.levels);
  return {find_grid(group, args.trials, levels, [&](size_t) { return levels; }).scale * group.peak, 0};
}

inline void round_whole(const QuantizeArgs& args, const float* w, size_t count, const Grid& grid, int8_t* q) {
  const float inverse = 1.0f / grid.scale, lowest = args.qmin - grid.zero, highest = args.qmax - grid.zero;
  for_blocks(w, count, [&](const float* block, size_t first, size_t some) {
    int8_t whole[kLanes];
    for (size_t j = 0; j < kLanes; j++)
      whole[j] =
          static_cast<int8_t>(static_cast<int32_t>(rounded(clamp(block[j] * inverse, lowest, highest)) + grid.zero));
    memcpy(q + first, whole, some);
  });
}

template <size_t Count>
inline void round_to_levels(const QuantizeArgs& args, const float* w, size_t count, const Grid& grid, int8_t* q) {
  const CodebookLevels<Count> levels(args.levels);
  const float inverse = 1.0f / grid.scale;
  for_blocks(w, count, [&](const float* block, size_t first, size_t some) {
    int8_t places[kLanes];
    for (size_t j = 0; j < kLanes; j++) {
      int32_t place = -static_cast<int32_t>(Count / 2);
      for (size_t i = 0; i + 1 < Count; i++) place += block[j] * inverse > levels.thresholds[i] ? 1 : 0;
      places[j] = static_cast<int8_t>(place);
    }
    memcpy(q + first, places, some);
  });
}

// The grid of a group; that of zeros has no scale.
inline Grid search_group(const QuantizeArgs& args, const float* row, const GroupPlace& place, uint32_t thread) {
  const SearchedGroup group = read_group(args, row, place, thread);
  if (args.is_signs) return search_signs(group);
  if (!(group.peak > 0)) return {0, 0};
  switch (args.level_count) {
    case 4: return search_levels<4>(args, group);
    case 8: return search_levels<8>(args, group);
    case 16: return search_levels<16>(args, group);
    default: return search_whole(args, group);
  }
}

// A scale as it is stored: 0 is that of zeros where a codebook or integers have it.
inline float stored_scale(const QuantizeArgs& args, float scale, float factor) {
  if (args.scale_type == ScaleType::kInteger) {
    const float whole = factor == 0 ? 0 : rounded(clamp(scale / factor, -kIntegerMax, kIntegerMax));
    return whole * factor + 0.0f;
  }
  if (scale == 0 && (args.is_signs || args.level_count > 0)) return 0;
  const float size = scale < 0 ? -scale : scale;
  const float stored =
      args.scale_type == ScaleType::kHalf ? half_scale(size) : clamp(size, kSmallestScale, kLargestScale);
  return scale < 0 ? -stored : stored;
}

// The integers of a group for a grid as it is stored.
inline void round_group(const QuantizeArgs& args, const float* w, size_t count, const Grid& grid, int8_t* q) {
  if (args.is_signs) {
    for (size_t i = 0; i < count; i++) q[i] = w[i] < 0 ? -1 : 0;
    return;
  }
  if (grid.scale == 0) {
    memset(q, 0, count);
    return;
  }
  switch (args.level_count) {
    case 4: return round_to_levels<4>(args, w, count, grid, q);
    case 8: return round_to_levels<8>(args, w, count, grid, q);
    case 16: return round_to_levels<16>(args, w, count, grid, q);
    default: return round_whole(args, w, count, grid, q);
  }
}

// The least binary16 number that is not below what makes integers of scales up to a magnitude.
inline float factor_of(float peak) {
  const float factor = peak / kIntegerMax;
  const uint16_t near = float_to_half(factor);
  const float value = half_to_float(near);
  return value >= factor ? smaller(value, kLargestHalf) : half_to_float(static_cast<uint16_t>(near + 1));
}

// Groups first .. last - 1 of a row, which share a factor where scales are integers.
inline void search_groups(const QuantizeArgs& args, const float* values, size_t row, size_t first, size_t last,
                          uint32_t thread) {
  float* const scales = args.scales + row * args.groups;
  float peak = 0;
  const auto place_of = [&](size_t group) {
    const size_t start = group * args.group_size;
    return GroupPlace{row, start, std::min(args.group_size, args.k - start), group};
  };
  const auto store = [&](const GroupPlace& place, Grid grid, float factor) {
    grid.scale = stored_scale(args, grid.scale, factor);
    round_group(args, values + place.start, place.count, grid, args.qvals + row * args.k + place.start);
    scales[place.group] = grid.scale;
    if (args.zeros) args.zeros[row * args.groups + place.group] = static_cast<int8_t>(grid.zero);
  };
  for (size_t group = first; group < last; group++) {
    const GroupPlace place = place_of(group);
    const Grid grid = search_group(args, values, place, thread);
    if (args.scale_type != ScaleType::kInteger) {
      store(place, grid, 1);
      continue;
    }
    scales[group] = grid.scale;
    peak = larger(peak, grid.scale < 0 ? -grid.scale : grid.scale);
  }
  if (args.scale_type != ScaleType::kInteger) return;
  const size_t supers = (args.k + kSuperGroup - 1) / kSuperGroup;
  const float factor = factor_of(peak);
  args.super_scales[row * supers + first * args.group_size / kSuperGroup] = factor;
  for (size_t group = first; group < last; group++) store(place_of(group), {scales[group], 0}, factor);
}

}  // namespace
}  // namespace lowbit
