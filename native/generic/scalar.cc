// Operators that gain nothing from vectors: angles of rotary embeddings, computed once per step, and copies.
#include <cmath>

#include "../families/attention/arguments.h"
#include "../families/copy/arguments.h"
#include "../families/embedding/embedding.h"
#include "floats.h"

namespace lowbit {
namespace {

struct AnglesArgs {
  const int64_t* position;
  const float* frequencies;
  float* angles;
  uint32_t tokens, half, tokens_per_tile;
  float scale;
  // Whether each token has its own position; otherwise positions follow the first.
  bool each;
};

// Rounds the angle to a float first, as PyTorch does.
void rope_angles_run(const Step& step, uint32_t, uint32_t tile, uint32_t) {
  const AnglesArgs& args = step.as<AnglesArgs>();
  const uint32_t last = std::min(args.tokens, (tile + 1) * args.tokens_per_tile);
  for (uint32_t t = tile * args.tokens_per_tile; t < last; t++) {
    const double position = args.each ? static_cast<double>(args.position[t]) : static_cast<double>(*args.position) + t;
    float* cosines = args.angles + static_cast<size_t>(t) * 2 * args.half;
    for (uint32_t i = 0; i < args.half; i++) {
      const float angle = static_cast<float>(position * args.frequencies[i]);
      cosines[i] = cosf(angle) * args.scale;
      cosines[args.half + i] = sinf(angle) * args.scale;
    }
  }
}

void rope_angles_prepare(Step& step, const Call& call) {
  const auto given = arguments_of<RopeAnglesArguments>(call);
  AnglesArgs& args = step.init<AnglesArgs>();
  args.tokens = given.tokens;
  args.half = given.half;
  args.scale = given.scale;
  args.each = given.positions > 1;
  args.position = given.position;
  args.frequencies = given.inverse_frequencies;
  args.angles = given.angles;
  args.tokens_per_tile = items_per_tile<FloatsBaseline>(args.tokens, 256 / std::max(1u, args.half), call.threads);
  step.phases = 1;
  step.tiles[0] = ceil_div(args.tokens, args.tokens_per_tile);
  step.run = rope_angles_run;
}

struct SelectArgs {
  const uint8_t* x;
  uint8_t* y;
  size_t outer, stride, block, per_tile;
};

void select_run(const Step& step, uint32_t, uint32_t tile, uint32_t) {
  const SelectArgs& args = step.as<SelectArgs>();
  const size_t last = std::min(args.outer, (tile + 1) * args.per_tile);
  for (size_t i = tile * args.per_tile; i < last; i++)
    memcpy(args.y + i * args.block, args.x + i * args.stride, args.block);
}

void select_prepare(Step& step, const Call& call) {
  const auto given = arguments_of<SelectArguments>(call);
  SelectArgs& args = step.init<SelectArgs>();
  args.outer = given.outer;
  args.stride = given.stride;
  args.block = given.block_bytes;
  args.x = given.x + given.offset;
  args.y = given.y;
  args.per_tile =
      items_per_tile<FloatsBaseline>(args.outer, 4 * kTileValues / std::max<size_t>(1, args.block), call.threads);
  step.phases = 1;
  step.tiles[0] = static_cast<uint32_t>((args.outer + args.per_tile - 1) / args.per_tile);
  step.run = select_run;
}

struct GatherArgs {
  const float* x;
  float* y;
  Indices columns;
  uint32_t rows, dim, rows_per_tile;
};

// Columns out of range give NaN; operators check them first.
void gather_run(const Step& step, uint32_t, uint32_t tile, uint32_t) {
  const GatherArgs& args = step.as<GatherArgs>();
  const uint32_t last = std::min(args.rows, (tile + 1) * args.rows_per_tile);
  for (uint32_t row = tile * args.rows_per_tile; row < last; row++) {
    const float* x = args.x + static_cast<size_t>(row) * args.dim;
    float* y = args.y + static_cast<size_t>(row) * args.columns.count;
    for (uint32_t i = 0; i < args.columns.count; i++) {
      const int64_t column = args.columns.at(i);
      y[i] = column >= 0 && column < args.dim ? x[column] : NAN;
    }
  }
}

void gather_prepare(Step& step, const Call& call) {
  const auto given = arguments_of<GatherColumnsArguments>(call);
  GatherArgs& args = step.init<GatherArgs>();
  args.rows = given.rows;
  args.dim = given.dim;
  args.columns = {given.columns, static_cast<uint32_t>(given.count), given.columns_bytes == 8};
  args.x = given.x;
  args.y = given.y;
  args.rows_per_tile =
      items_per_tile<FloatsBaseline>(args.rows, kTileValues / std::max(1u, args.columns.count), call.threads);
  step.phases = 1;
  step.tiles[0] = ceil_div(args.rows, args.rows_per_tile);
  step.run = gather_run;
}

struct JoinArgs {
  const float* left;
  const float* right;
  float* y;
  size_t rows, first, second, per_tile;
};

// A tile is a range of values of y, since there may be one long row.
void join_run(const Step& step, uint32_t, uint32_t tile, uint32_t) {
  const JoinArgs& args = step.as<JoinArgs>();
  const size_t columns = args.first + args.second;
  const size_t last = std::min(args.rows * columns, (tile + 1) * args.per_tile);
  for (size_t at = tile * args.per_tile, count; at < last; at += count) {
    const size_t row = at / columns, column = at % columns;
    const bool is_left = column < args.first;
    const float* from =
        is_left ? args.left + row * args.first + column : args.right + row * args.second + (column - args.first);
    count = std::min(last - at, (is_left ? args.first : columns) - column);
    memcpy(args.y + at, from, sizeof(float) * count);
  }
}

void join_prepare(Step& step, const Call& call) {
  const auto given = arguments_of<JoinColumnsArguments>(call);
  JoinArgs& args = step.init<JoinArgs>();
  args.left = given.left;
  args.right = given.right;
  args.y = given.y;
  args.rows = given.rows;
  args.first = given.first;
  args.second = given.second;
  const size_t values = args.rows * (args.first + args.second);
  args.per_tile = items_per_tile<FloatsBaseline>(values, 4 * kTileValues, call.threads);
  step.phases = 1;
  step.tiles[0] = static_cast<uint32_t>((values + args.per_tile - 1) / args.per_tile);
  step.run = join_run;
}

constexpr KernelRow kRows[] = {
    {"rope_angles_f32_1x1x1_" LOWBIT_FLOATS_TARGET, "rope_angles", nullptr, 0, kBaselineNeeds, 1, 1, nullptr,
     rope_angles_prepare},
    {"gather_columns_f32_1x1x1_" LOWBIT_FLOATS_TARGET, "gather_columns", nullptr, 0, kBaselineNeeds, 1, 1, nullptr,
     gather_prepare},
    {"join_columns_f32_1x1x1_" LOWBIT_FLOATS_TARGET, "join_columns", nullptr, 0, kBaselineNeeds, 1, 1, nullptr,
     join_prepare},
    {"select_any_1x1x1_" LOWBIT_FLOATS_TARGET, "select", nullptr, 0, kBaselineNeeds, 1, 1, nullptr, select_prepare},
};

}  // namespace

KernelRows scalar_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
