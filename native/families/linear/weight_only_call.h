// The bound call and scratch of linear layers with float activations over packed panels (weight-only):
//
//   y = sum over groups: scale * (sum (level - zero) * x) + bias
//
// GEMV makes floats of weights in registers; GEMM first unpacks panels to floats. All kernels add groups, and columns
// of a group, in order. Sums are in f32: the error is at most (k + 4 groups) * 2^-24 * sum |x| |w|.
#pragma once

#include <algorithm>

#include "../../panels.h"
#include "arguments.h"

namespace lowbit {
// Anonymous: each file needs its own copy. The linker would keep one for all, compiled for one file's instructions.
namespace {

struct WeightOnly {
  Panels weights;
  const float* x;
  float* y;
  // padded: rows of x, whose groups are padded with zeros. panels: unpacked panels of each thread, for GEMM.
  float* padded;
  float* panels;
  uint32_t m, panels_per_tile, rows_per_tile;
  // Floats between padded rows: not a power of two, which would map all rows to the same cache sets.
  uint32_t stride;
};
static_assert(sizeof(WeightOnly) <= kArgsMax);

// Fewest rows of x for which unpacking panels to floats pays.
constexpr uint32_t kPanelRowsMin = 16;

static inline uint32_t padded_stride(const Panels& w) { return w.padded_k() + 16; }

// Floats of unpacked panels of `columns` columns: level - zero [padded_k][columns] and scales [groups][columns].
static inline size_t panel_floats(const Panels& w, uint32_t columns) {
  return size_t{columns} * (w.padded_k() + w.part_count());
}

// Bytes of scratch, with panels of `columns` columns for each thread.
static inline size_t weight_only_scratch_bytes(const Call& call, const Panels& w, uint32_t columns) {
  const auto given = arguments_of<PackedLinearArguments>(call);
  const uint32_t m = given.m;
  const size_t panels = m < kPanelRowsMin ? 0 : call.threads * panel_floats(w, columns);
  return size_t{4} * (size_t{m} * padded_stride(w) + panels);
}

static inline void pad_rows(const WeightOnly& args, uint32_t tile) {
  const Panels& w = args.weights;
  const uint32_t first = tile * args.rows_per_tile, last = std::min(args.m, first + args.rows_per_tile);
  for (uint32_t row = first; row < last; row++) {
    const float* x = args.x + size_t{row} * w.k;
    float* out = args.padded + size_t{row} * args.stride;
    for (uint32_t g = 0; g < w.groups; g++, out += w.group_length) {
      const uint32_t count = std::min(w.group_size, w.k - g * w.group_size);
      memcpy(out, x + size_t{g} * w.group_size, 4 * size_t{count});
      memset(out + count, 0, 4 * size_t{w.group_length - count});
    }
  }
}

// Binds a call to its weights. A tile has a multiple of `panel_step` panels.
static inline WeightOnly& bind_weight_only(Step& step, const Call& call, const Panels& w, uint32_t panel_step) {
  const auto given = arguments_of<PackedLinearArguments>(call);
  WeightOnly& args = step.init<WeightOnly>();
  args.weights = w;
  args.m = given.m;
  args.x = given.x;
  args.y = given.y;
  args.padded = static_cast<float*>(given.scratch);
  args.stride = padded_stride(w);
  args.panels = args.padded + size_t{args.m} * args.stride;
  args.rows_per_tile = std::max(1u, ceil_div(args.m, 4 * call.threads));
  const uint32_t by_size = static_cast<uint32_t>(std::max<size_t>(1, (128u << 10) / w.panel_bytes));
  const uint32_t panels = std::min(by_size, std::max(1u, w.panel_count / (8 * call.threads)));
  args.panels_per_tile = static_cast<uint32_t>(round_up(panels, panel_step));
  step.phases = 2;
  step.tiles[0] = ceil_div(args.m, args.rows_per_tile);
  step.tiles[1] = ceil_div(w.panel_count, args.panels_per_tile);
  return args;
}

}  // namespace
}  // namespace lowbit
