// Search for the scale and zero point of least squared error, bit for bit as src/quantize/group-fit.ts. 16 candidates
// are tried at a time, one per lane, so that no sum crosses lanes.
#pragma once

#include <cmath>

#include "quantize_args.h"

namespace lowbit {
namespace {

// A group: its row, first column, number of weights, and index in the row.
struct GroupPlace {
  size_t row, start, count, group;
};

// A group's weights divided by their largest magnitude, their importance, and importance * weight. All are padded with
// zeros to whole blocks.
struct SearchedGroup {
  float *values, *importance, *products;
  size_t count;
  float peak;
};

// Compiler vectors of 16 floats, which any instruction set can have, and the masks of comparing them.
typedef float LaneFloats __attribute__((vector_size(4 * kLanes)));

inline LaneFloats load_lanes(const float* p) {
  LaneFloats lanes;
  memcpy(&lanes, p, sizeof lanes);
  return lanes;
}

// Rounds to whole numbers within the range that a zero point leaves; one zero point per lane.
struct WholeLevels {
  LaneFloats least, most;
  void round(const LaneFloats& scaled, LaneFloats& q) const {
    const LaneFloats raised = scaled < least ? least : scaled;
    q = ((raised > most ? most : raised) + kWhole) - kWhole;
  }
};

// A codebook minus a zero point: its lowest level, the steps from each level to the next, and the thresholds above
// which the next is nearer.
template <size_t Count>
struct Codebook {
  float lowest, steps[Count - 1], thresholds[Count - 1];
  Codebook(const int8_t* levels, float zero) : lowest(levels[0] - zero) {
    for (size_t i = 0; i + 1 < Count; i++) {
      steps[i] = static_cast<float>(levels[i + 1] - levels[i]);
      thresholds[i] = static_cast<float>(levels[i] + levels[i + 1]) / 2 - zero;
    }
  }
};

// Nearest level: the lowest one plus the steps of all thresholds below the value.
template <size_t Count>
struct SummedLevels {
  const Codebook<Count> codebook;
  SummedLevels(const int8_t* levels, float zero) : codebook(levels, zero) {}
  void round(const LaneFloats& scaled, LaneFloats& q) const {
    const LaneFloats zeros = {};
    q = zeros + codebook.lowest;
    for (size_t i = 0; i + 1 < Count; i++)
      q += scaled > zeros + codebook.thresholds[i] ? zeros + codebook.steps[i] : zeros;
  }
};

// Search for the nearest level on instruction sets without a faster way.
struct PlainSearch {
  template <size_t Count>
  using Levels = SummedLevels<Count>;
};

struct SearchSums {
  float products[kLanes] = {}, squares[kLanes] = {};
};

inline SearchSums stored_sums(const LaneFloats& products, const LaneFloats& squares) {
  SearchSums sums;
  memcpy(sums.products, &products, sizeof products);
  memcpy(sums.squares, &squares, sizeof squares);
  return sums;
}

inline float sum_of_lanes(float* lanes) {
  for (size_t width = kLanes / 2; width > 0; width /= 2)
    for (size_t j = 0; j < width; j++) lanes[j] += lanes[j + width];
  return lanes[0];
}

inline float score_of(float product, float square) { return square > 0 ? product * product / square : 0; }

// Sums of all candidates, one per lane.
template <class Levels>
inline SearchSums sums_of_trials(const SearchedGroup& group, const float* inverses, const Levels& levels) {
  const LaneFloats factors = load_lanes(inverses);
  LaneFloats q, products = {}, squares = {};
  for (size_t i = 0; i < group.count; i++) {
    levels.round(group.values[i] * factors, q);
    products += group.products[i] * q;
    squares += group.importance[i] * q * q;
  }
  return stored_sums(products, squares);
}

// Sums of one candidate, one weight per lane. Padding has no importance.
template <class Levels>
inline SearchSums sums_of_grid(const SearchedGroup& group, float inverse, const Levels& levels) {
  LaneFloats q, products = {}, squares = {};
  for (size_t i = 0; i < group.count; i += kLanes) {
    levels.round(load_lanes(group.values + i) * inverse, q);
    products += load_lanes(group.products + i) * q;
    squares += load_lanes(group.importance + i) * q * q;
  }
  return stored_sums(products, squares);
}

// Floats of each of a thread's arrays.
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

// A candidate: scale, perhaps not rounded to its stored form yet, and zero point; where zero points tell parities, also
// the best scales without and with the zero point.
struct Grid {
  float scale, zero, scales[2];
};

// Levels -1 and 1: the scale is the weighted mean of magnitudes.
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
  return {mean > 0 ? mean : 0, 0, {}};
}

// Lane of the best candidate, its scale after one least-squares step, and how much it reduces the squared error.
struct Found {
  size_t place;
  float scale, score;
};

// Best of 16 candidates; the first of equal ones.
inline size_t best_trial(const SearchSums& sums, float& score) {
  const LaneFloats zeros = {}, products = load_lanes(sums.products), squares = load_lanes(sums.squares);
  const LaneFloats scores = squares > zeros ? products * products / squares : zeros;
  size_t best = 0;
  for (size_t j = 1; j < kLanes; j++)
    if (scores[j] > scores[best]) best = j;
  score = scores[best];
  return best;
}

// Finds the best candidate. `levels_at(lane)` gives the levels of one lane's candidate in all lanes.
template <class Levels, class LevelsAt>
inline Found find_grid(const SearchedGroup& group, const float* inverses, const Levels& levels, LevelsAt levels_at) {
  const SearchSums sums = sums_of_trials(group, inverses, levels);
  float score;
  const size_t best = best_trial(sums, score);
  const float scale = score > 0 ? sums.products[best] / sums.squares[best] : 1.0f / inverses[best];
  SearchSums again = sums_of_grid(group, 1.0f / scale, levels_at(best));
  const float product = sum_of_lanes(again.products), square = sum_of_lanes(again.squares);
  const float after = score_of(product, square);
  if (after > score) return {best, product / square, after};
  return {best, scale, score};
}

// Candidates with zero points: fractions of the range of the weights, each with the zero points below and above the
// exact one.
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
  float inverses[kLanes], zeros[kLanes] = {};
  memcpy(inverses, args.trials, sizeof inverses);
  if (args.zeros) try_zeros(args, group, inverses, zeros);
  const LaneFloats none = {}, zero_lanes = load_lanes(zeros);
  const Found found =
      find_grid(group, inverses, WholeLevels{args.qmin - zero_lanes, args.qmax - zero_lanes}, [&](size_t place) {
        const LaneFloats zero = none + zeros[place];
        return WholeLevels{args.qmin - zero, args.qmax - zero};
      });
  return {found.scale * group.peak, zeros[found.place], {}};
}

// The best candidate with a codebook minus a zero point.
template <class Search, size_t Count>
inline Found find_shifted(const QuantizeArgs& args, const SearchedGroup& group, float zero) {
  const typename Search::template Levels<Count> levels(args.levels, zero);
  return find_grid(group, args.trials, levels, [&](size_t) { return levels; });
}

template <class Search, size_t Count>
inline Grid search_levels(const QuantizeArgs& args, const SearchedGroup& group) {
  const Found found = find_shifted<Search, Count>(args, group, 0);
  const float scale = found.scale * group.peak;
  if (args.odd_zero == 0) return {scale, 0, {}};
  const Found shifted = find_shifted<Search, Count>(args, group, args.odd_zero);
  const float odd = shifted.scale * group.peak;
  if (shifted.score > found.score) return {odd, args.odd_zero, {scale, odd}};
  return {scale, 0, {scale, odd}};
}

// The stored scale, and with its parity the zero point, that lose least: of the integers next to the best scales
// without and with the zero point.
template <class Search, size_t Count>
inline Grid stored_shifted(const QuantizeArgs& args, const SearchedGroup& group, const float* scales, float factor) {
  Grid best = {};
  float most_gain = 0;
  for (int odd = 0; odd < 2; odd++) {
    const float parity = static_cast<float>(odd), most = kIntegerMax - 1 + parity, zero = parity * args.odd_zero;
    const typename Search::template Levels<Count> levels(args.levels, zero);
    const float quotient = scales[odd] / factor;
    const float below = 2 * std::floor((clamp(quotient, -most, most) - parity) / 2) + parity;
    for (const float whole : {below, smaller(below + 2, most)}) {
      const float scale = whole * factor / group.peak;
      if (scale == 0) continue;
      SearchSums sums = sums_of_grid(group, 1.0f / scale, levels);
      const float product = sum_of_lanes(sums.products), square = sum_of_lanes(sums.squares);
      const float gain = 2 * scale * product - scale * scale * square;
      if (!(gain > most_gain)) continue;
      most_gain = gain;
      best = {whole * factor + 0.0f, zero, {}};
    }
  }
  return best;
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
  const Codebook<Count> codebook(args.levels, grid.zero);
  const float inverse = 1.0f / grid.scale;
  for_blocks(w, count, [&](const float* block, size_t first, size_t some) {
    int8_t places[kLanes];
    for (size_t j = 0; j < kLanes; j++) {
      int32_t place = -static_cast<int32_t>(Count / 2);
      for (size_t i = 0; i + 1 < Count; i++) place += block[j] * inverse > codebook.thresholds[i] ? 1 : 0;
      places[j] = static_cast<int8_t>(place);
    }
    memcpy(q + first, places, some);
  });
}

// Scale and zero point of a group; a group of zeros has scale 0.
template <class Search>
inline Grid search_group(const QuantizeArgs& args, const float* row, const GroupPlace& place, uint32_t thread) {
  const SearchedGroup group = read_group(args, row, place, thread);
  if (args.is_signs) return search_signs(group);
  if (!(group.peak > 0)) return {};
  switch (args.level_count) {
    case 4: return search_levels<Search, 4>(args, group);
    case 8: return search_levels<Search, 8>(args, group);
    case 16: return search_levels<Search, 16>(args, group);
    default: return search_whole(args, group);
  }
}

// The integer that a scale becomes; where zero points tell parities, the nearest of the zero point's.
inline float whole_scale(const QuantizeArgs& args, const Grid& grid, float factor) {
  const float quotient = grid.scale / factor;
  if (args.odd_zero == 0) return rounded(clamp(quotient, -kIntegerMax, kIntegerMax));
  const float odd = grid.zero == 0 ? 0 : 1, most = kIntegerMax - 1 + odd;
  return 2 * rounded((clamp(quotient, -most, most) - odd) / 2) + odd;
}

// A scale rounded to its stored form. Codebooks and integer scales keep 0 for a group of zeros.
inline float stored_scale(const QuantizeArgs& args, const Grid& grid, float factor) {
  const float scale = grid.scale;
  if (args.scale_type == ScaleType::kInteger) return factor == 0 ? 0 : whole_scale(args, grid, factor) * factor + 0.0f;
  if (scale == 0 && (args.is_signs || args.level_count > 0)) return 0;
  const float size = scale < 0 ? -scale : scale;
  const float stored =
      args.scale_type == ScaleType::kHalf ? half_scale(size) : clamp(size, kSmallestScale, kLargestScale);
  return scale < 0 ? -stored : stored;
}

// The stored form of the best grid of a group.
template <class Search>
inline Grid stored_grid(const QuantizeArgs& args, const float* row, const GroupPlace& place, const Grid& found,
                        float factor, uint32_t thread) {
  if (args.odd_zero == 0) return {stored_scale(args, found, factor), found.zero, {}};
  const SearchedGroup group = read_group(args, row, place, thread);
  if (!(group.peak > 0) || factor == 0) return {};
  switch (args.level_count) {
    case 4: return stored_shifted<Search, 4>(args, group, found.scales, factor);
    case 8: return stored_shifted<Search, 8>(args, group, found.scales, factor);
    default: return stored_shifted<Search, 16>(args, group, found.scales, factor);
  }
}

// Rounds a group to integers for a stored scale and zero point.
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

// Factor of integer scales up to a magnitude: the least binary16 number that is at least peak / kIntegerMax.
inline float factor_of(float peak) {
  const float factor = peak / kIntegerMax;
  const uint16_t near = float_to_half(factor);
  const float value = half_to_float(near);
  return value >= factor ? smaller(value, kLargestHalf) : half_to_float(static_cast<uint16_t>(near + 1));
}

// Searches groups first .. last - 1 of a row, which share a factor where scales are integers.
template <class Search>
inline void search_groups(const QuantizeArgs& args, const float* values, size_t row, size_t first, size_t last,
                          uint32_t thread) {
  const auto place_of = [&](size_t group) {
    const size_t start = group * args.group_size;
    return GroupPlace{row, start, std::min(args.group_size, args.k - start), group};
  };
  const auto store = [&](const GroupPlace& place, const Grid& found, float factor) {
    const Grid grid = stored_grid<Search>(args, values, place, found, factor, thread);
    round_group(args, values + place.start, place.count, grid, args.qvals + row * args.k + place.start);
    const size_t at = row * args.groups + place.group;
    args.scales[at] = grid.scale;
    if (args.zeros) args.zeros[at] = static_cast<int8_t>(grid.zero);
  };
  if (args.scale_type != ScaleType::kInteger) {
    for (size_t group = first; group < last; group++)
      store(place_of(group), search_group<Search>(args, values, place_of(group), thread), 1);
    return;
  }
  Grid found[kSuperGroup];
  float peak = 0;
  for (size_t group = first; group < last; group++) {
    found[group - first] = search_group<Search>(args, values, place_of(group), thread);
    peak = larger(peak, std::fabs(found[group - first].scale));
  }
  const float factor = factor_of(peak);
  super_scale_at(args, row, first * args.group_size) = factor;
  for (size_t group = first; group < last; group++) store(place_of(group), found[group - first], factor);
}

}  // namespace
}  // namespace lowbit
