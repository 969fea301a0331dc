// GPTQ (Frantar et al. 2022) on a block of columns, bit for bit as src/quantize/gptq-blocks.ts. Rows do not depend on
// each other, the columns of a row do: 16 rows are taken at a time, one per lane.
#pragma once

#include "search_group.h"

namespace lowbit {
namespace {

constexpr size_t kBlockColumns = 128;

struct GptqArgs {
  QuantizeArgs grids;
  const float *original, *square;
  float *current, *changes;
  size_t first, end;
};
static_assert(sizeof(GptqArgs) <= kArgsMax);

// One number per row.
struct Lanes {
  float at[kLanes];
};

// Columns `first` .. `end - 1` of up to 16 rows, column by column.
struct BlockRows {
  size_t row, count, first, end;
  Lanes current[kBlockColumns], changes[kBlockColumns];

  Lanes& current_of(size_t column) { return current[column - first]; }
  Lanes& changes_of(size_t column) { return changes[column - first]; }
};

// Scales and zero points of a group, one row per lane.
struct GroupGrids {
  Lanes scale, inverse, zero, factor;
};

// Integers, and the weights that they stand for.
struct RoundedLanes {
  Lanes q, value;
};

// Rounds to signs: `value` of the nearest integer; scale 0 gives 0.
struct SignRounding {
  explicit SignRounding(const QuantizeArgs&) {}
  RoundedLanes round(const Lanes& x, const GroupGrids& grids) const {
    RoundedLanes result;
    for (size_t j = 0; j < kLanes; j++) {
      result.q.at[j] = x.at[j] < 0 ? -1.0f : 0.0f;
      result.value.at[j] = x.at[j] < 0 ? -grids.scale.at[j] : grids.scale.at[j];
    }
    return result;
  }
  float level(float q, float) const { return q < 0 ? -1.0f : 1.0f; }
};

struct WholeRounding {
  explicit WholeRounding(const QuantizeArgs& args) : lowest(args.qmin), highest(args.qmax) {}
  RoundedLanes round(const Lanes& x, const GroupGrids& grids) const {
    RoundedLanes result;
    for (size_t j = 0; j < kLanes; j++) {
      const float zero = grids.zero.at[j], scale = grids.scale.at[j];
      const float whole = rounded(clamp(x.at[j] * grids.inverse.at[j], lowest - zero, highest - zero));
      result.q.at[j] = scale == 0 ? 0 : whole + zero;
      result.value.at[j] = (scale == 0 ? -zero : whole) * scale;
    }
    return result;
  }
  float level(float q, float zero) const { return q - zero; }
  float lowest, highest;
};

template <size_t Count>
struct LevelRounding {
  explicit LevelRounding(const QuantizeArgs& args) : codebook(args.levels, 0) {
    for (size_t i = 0; i < Count; i++) all[i] = static_cast<float>(args.levels[i]);
  }
  RoundedLanes round(const Lanes& x, const GroupGrids& grids) const {
    RoundedLanes result;
    constexpr float kLowest = -static_cast<float>(Count / 2);
    for (size_t j = 0; j < kLanes; j++) {
      const float scaled = x.at[j] * grids.inverse.at[j], zero = grids.zero.at[j];
      float place = kLowest, level = codebook.lowest - zero;
      for (size_t i = 0; i + 1 < Count; i++) {
        const float threshold = codebook.thresholds[i] - zero;
        place += scaled > threshold ? 1.0f : 0.0f;
        level += scaled > threshold ? codebook.steps[i] : 0.0f;
      }
      result.q.at[j] = grids.scale.at[j] == 0 ? 0 : place;
      result.value.at[j] = level * grids.scale.at[j];
    }
    return result;
  }
  float level(float q, float zero) const {
    return all[static_cast<int32_t>(q) + static_cast<int32_t>(Count / 2)] - zero;
  }
  Codebook<Count> codebook;
  float all[Count];
};

// Calls f(column, index in [n, k], lane) for the rows that exist.
template <class F>
inline void each_place(const GptqArgs& args, const BlockRows& rows, size_t first, size_t end, F f) {
  for (size_t lane = 0; lane < rows.count; lane++) {
    const size_t start = (rows.row + lane) * args.grids.k;
    for (size_t c = first; c < end; c++) f(c, start + c, lane);
  }
}

inline void read_block(const GptqArgs& args, BlockRows& rows, size_t tile) {
  rows.first = args.first;
  rows.end = args.end;
  rows.row = tile * kLanes;
  rows.count = std::min(kLanes, args.grids.n - rows.row);
  memset(rows.current, 0, sizeof rows.current);
  memset(rows.changes, 0, sizeof rows.changes);
  each_place(args, rows, args.first, args.end,
             [&](size_t c, size_t at, size_t lane) { rows.current_of(c).at[lane] = args.current[at]; });
}

inline void write_changes(const GptqArgs& args, BlockRows& rows) {
  each_place(args, rows, args.first, args.end,
             [&](size_t c, size_t at, size_t lane) { args.changes[at] = rows.changes_of(c).at[lane]; });
}

inline void set_grid(GroupGrids& grids, size_t lane, float scale, float zero, float factor) {
  grids.scale.at[lane] = scale;
  grids.inverse.at[lane] = scale == 0 ? 0 : 1.0f / scale;
  grids.zero.at[lane] = zero;
  grids.factor.at[lane] = factor;
}

// Stored scales and zero points of the group of a column; 0 in lanes without a row.
inline GroupGrids grids_of(const QuantizeArgs& args, const BlockRows& rows, size_t column) {
  GroupGrids grids = {};
  const size_t group = column / args.group_size;
  for (size_t lane = 0; lane < rows.count; lane++) {
    const size_t row = rows.row + lane, at = row * args.groups + group;
    const bool has_factor = args.scale_type == ScaleType::kInteger;
    set_grid(grids, lane, args.scales[at], args.zeros ? static_cast<float>(args.zeros[at]) : 0,
             has_factor ? super_scale_at(args, row, column) : 1);
  }
  return grids;
}

inline GroupPlace place_at(const QuantizeArgs& args, size_t start) {
  return {0, start, std::min(args.group_size, args.k - start), 0};
}

// Searches scales and zero points for groups that begin at a column, and factors for super-blocks that do.
template <class Search>
inline void fit_groups(const GptqArgs& given, BlockRows& rows, size_t column, uint32_t thread) {
  const QuantizeArgs& args = given.grids;
  each_place(given, rows, column, rows.end,
             [&](size_t c, size_t at, size_t lane) { given.current[at] = rows.current_of(c).at[lane]; });
  for (size_t lane = 0; lane < rows.count; lane++) {
    const size_t row = rows.row + lane;
    const float* values = given.current + row * args.k;
    float factor = 1;
    if (args.scale_type == ScaleType::kInteger) {
      float& stored = super_scale_at(args, row, column);
      if (column % kSuperGroup == 0) {
        float peak = 0;
        for (size_t c = column; c < std::min(args.k, column + kSuperGroup); c += args.group_size)
          peak = larger(peak, std::fabs(search_group<Search>(args, values, place_at(args, c), thread).scale));
        stored = factor_of(peak);
      }
      factor = stored;
    }
    const size_t at = row * args.groups + column / args.group_size;
    const GroupPlace place = place_at(args, column);
    const Grid found = search_group<Search>(args, values, place, thread);
    const Grid grid = stored_grid<Search>(args, values, place, found, factor, thread);
    args.scales[at] = grid.scale;
    if (args.zeros) args.zeros[at] = static_cast<int8_t>(grid.zero);
  }
}

// current += by * factors[j] for columns first .. end - 1, or -=.
template <bool Adds>
inline void spread(BlockRows& rows, const Lanes& by, const float* factors, size_t first, size_t end) {
  for (size_t c = first; c < end; c++) {
    Lanes& to = rows.current_of(c);
    const float factor = factors[c];
    for (size_t j = 0; j < kLanes; j++) {
      const float product = by.at[j] * factor;
      to.at[j] = Adds ? to.at[j] + product : to.at[j] - product;
    }
  }
}

// End of the group of a column, or of the block if that comes first.
inline size_t strip_end(const GptqArgs& args, size_t column) {
  return std::min(args.end, (column / args.grids.group_size + 1) * args.grids.group_size);
}

template <class Search, class Rounding>
void round_rows(const GptqArgs& args, BlockRows& rows, uint32_t thread) {
  const QuantizeArgs& grids = args.grids;
  const Rounding rounding(grids);
  for (size_t c = args.first; c < args.end;) {
    if (c % grids.group_size == 0) fit_groups<Search>(args, rows, c, thread);
    const GroupGrids own = grids_of(grids, rows, c);
    for (const size_t end = strip_end(args, c); c < end; c++) {
      const RoundedLanes found = rounding.round(rows.current_of(c), own);
      Lanes error = {};
      for (size_t lane = 0; lane < rows.count; lane++) {
        const size_t at = (rows.row + lane) * grids.k + c;
        grids.qvals[at] = static_cast<int8_t>(static_cast<int32_t>(found.q.at[lane]));
        error.at[lane] = args.original[at] - found.value.at[lane];
      }
      rows.changes_of(c) = error;
      spread<true>(rows, error, args.square + c * grids.k, c + 1, args.end);
    }
  }
  write_changes(args, rows);
}

// Replaces the scales of groups within the block, columns `first` .. `end - 1`, by those that fit their levels best.
inline void rescale_groups(const GptqArgs& args, BlockRows& rows, GroupGrids& own, const Lanes* levels, size_t first,
                           size_t end) {
  const QuantizeArgs& grids = args.grids;
  Lanes slopes[kBlockColumns] = {}, slope = {}, curve = {}, change = {};
  for (size_t i = first; i < end; i++)
    for (size_t c = first; c < end; c++) {
      const float factor = args.square[i * grids.k + c];
      for (size_t j = 0; j < kLanes; j++) slopes[c - first].at[j] += levels[i - first].at[j] * factor;
    }
  for (size_t c = first; c < end; c++)
    for (size_t j = 0; j < kLanes; j++) {
      slope.at[j] += levels[c - first].at[j] * rows.current_of(c).at[j];
      curve.at[j] += levels[c - first].at[j] * slopes[c - first].at[j];
    }
  for (size_t lane = 0; lane < rows.count; lane++) {
    const float before = own.scale.at[lane];
    if (before == 0 || !(curve.at[lane] > 0)) continue;
    const float factor = own.factor.at[lane];
    const Grid grid = {before + slope.at[lane] / curve.at[lane], own.zero.at[lane], {}};
    const float scale = stored_scale(grids, grid, factor);
    grids.scales[(rows.row + lane) * grids.groups + first / grids.group_size] = scale;
    set_grid(own, lane, scale, own.zero.at[lane], factor);
    change.at[lane] = scale - before;
  }
  for (size_t c = first; c < end; c++)
    for (size_t j = 0; j < kLanes; j++) {
      rows.current_of(c).at[j] -= change.at[j] * slopes[c - first].at[j];
      rows.changes_of(c).at[j] = change.at[j] * levels[c - first].at[j];
    }
}

template <class Rounding>
void sweep_rows(const GptqArgs& args, BlockRows& rows, uint32_t) {
  const QuantizeArgs& grids = args.grids;
  const Rounding rounding(grids);
  Lanes levels[kBlockColumns];
  for (size_t first = args.first; first < args.end;) {
    const size_t end = strip_end(args, first);
    GroupGrids own = grids_of(grids, rows, first);
    memset(levels, 0, sizeof levels);
    each_place(args, rows, first, end, [&](size_t c, size_t at, size_t lane) {
      levels[c - first].at[lane] = rounding.level(grids.qvals[at], own.zero.at[lane]);
    });
    const bool is_whole = first % grids.group_size == 0 && end - first == std::min(grids.group_size, grids.k - first);
    if (is_whole) rescale_groups(args, rows, own, levels, first, end);
    for (size_t c = first; c < end; c++) {
      const float* row = args.square + c * grids.k;
      Lanes value, wanted;
      for (size_t j = 0; j < kLanes; j++) {
        value.at[j] = levels[c - first].at[j] * own.scale.at[j];
        wanted.at[j] = value.at[j] + rows.current_of(c).at[j] / row[c];
      }
      const RoundedLanes found = rounding.round(wanted, own);
      Lanes change;
      for (size_t j = 0; j < kLanes; j++) change.at[j] = found.value.at[j] - value.at[j];
      for (size_t lane = 0; lane < rows.count; lane++)
        grids.qvals[(rows.row + lane) * grids.k + c] = static_cast<int8_t>(static_cast<int32_t>(found.q.at[lane]));
      for (size_t j = 0; j < kLanes; j++) rows.changes_of(c).at[j] += change.at[j];
      spread<false>(rows, change, row, first, end);
    }
    for (size_t c = first; c < end; c++)
      spread<false>(rows, rows.changes_of(c), args.square + c * grids.k, end, args.end);
    first = end;
  }
  write_changes(args, rows);
}

template <class Search>
struct RoundsBlock {
  template <class Rounding>
  static void run(const GptqArgs& args, BlockRows& rows, uint32_t thread) {
    round_rows<Search, Rounding>(args, rows, thread);
  }
};
struct SweepsBlock {
  template <class Rounding>
  static void run(const GptqArgs& args, BlockRows& rows, uint32_t thread) {
    sweep_rows<Rounding>(args, rows, thread);
  }
};

template <class Work>
void gptq_run(const Step& step, uint32_t, uint32_t tile, uint32_t thread) {
  const GptqArgs& args = step.as<GptqArgs>();
  BlockRows rows;
  read_block(args, rows, tile);
  if (args.grids.is_signs) return Work::template run<SignRounding>(args, rows, thread);
  switch (args.grids.level_count) {
    case 4: return Work::template run<LevelRounding<4>>(args, rows, thread);
    case 8: return Work::template run<LevelRounding<8>>(args, rows, thread);
    case 16: return Work::template run<LevelRounding<16>>(args, rows, thread);
    default: return Work::template run<WholeRounding>(args, rows, thread);
  }
}

// Scratch per thread: the search's copies of a group.
size_t gptq_scratch(const Call& call) {
  return 4 * 3 * searched_floats(arguments_of<GptqBlockArguments>(call).group_size) * call.threads;
}

template <class Work>
void gptq_prepare(Step& step, const Call& call) {
  const auto given = arguments_of<GptqBlockArguments>(call);
  GptqArgs& args = step.init<GptqArgs>();
  args.grids = {};
  set_scheme(args.grids, given);
  args.grids.searched = static_cast<float*>(given.scratch);
  args.original = given.original;
  args.square = given.square;
  args.current = given.current;
  args.changes = given.changes;
  args.first = given.first;
  args.end = given.end;
  step.run = gptq_run<Work>;
  step.phases = 1;
  step.tiles[0] = static_cast<uint32_t>((args.grids.n + kLanes - 1) / kLanes);
}

template <class Search>
constexpr KernelRow gptq_round_row(const char* name, uint32_t needs) {
  return {name, "gptq_round", nullptr, 0, needs, 1, 1, gptq_scratch, gptq_prepare<RoundsBlock<Search>>};
}

constexpr KernelRow gptq_sweep_row(const char* name, uint32_t needs) {
  return {name, "gptq_sweep", nullptr, 0, needs, 1, 1, gptq_scratch, gptq_prepare<SweepsBlock>};
}

}  // namespace
}  // namespace lowbit
