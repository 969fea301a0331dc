// Binds calls of linear layers over panel32 weights: sizes of chunks and tiles, and the code for the width of weights.
#pragma once

#include "../families/linear/arguments.h"
#include "panel32.h"

namespace lowbit {
namespace {

inline void read_call(Linear32& args, const Call& call, Granularity activations) {
  const auto given = arguments_of<PackedLinearArguments>(call);
  args.m = given.m;
  args.x = given.x;
  args.weights = read_panels(given.weights, kPanelRows, given.n);
  args.y = given.y;
  args.rows.in_blocks = activations == Granularity::kBlock;
  args.rows.starts_in_twos = false;
  if (args.weights.parts == 2) args.chunk = args.weights.part_length();
  else if (args.rows.in_blocks) args.chunk = kBlockColumns;
  else args.chunk = args.weights.group_length > kChunkMax ? kLongChunk : kChunkMax;
}

// Splits panels into about eight tiles per thread of at most 128 KiB of weights each.
inline void split_panels(Step& step, Linear32& args, uint32_t threads) {
  const Panels& w = args.weights;
  args.rows_per_tile = std::max(1u, ceil_div(args.m, 4 * threads));
  const uint32_t by_size = static_cast<uint32_t>(std::max<size_t>(1, (128u << 10) / w.panel_bytes));
  args.panels_per_tile = std::min(by_size, std::max(1u, w.panel_count / (8 * threads)));
  step.phases = 2;
  step.tiles[0] = ceil_div(args.m, args.rows_per_tile);
  step.tiles[1] = ceil_div(w.panel_count, args.panels_per_tile);
}

using Run = void (*)(const Step&, uint32_t, uint32_t, uint32_t);

// Whether groups have minima or integer scales.
inline bool has_numbers(const Panels& w) { return w.has_minima || w.scale_bytes == 1; }

// Code::run<Bits, Levels>() for the width of the weights and whether they have a codebook, which is of up to 4 bits.
template <class Code, int Bits = 1>
Run choose_run(const Panels& w) {
  if constexpr (Bits < 8)
    if (w.bits != Bits) return choose_run<Code, Bits + 1>(w);
  if constexpr (Bits <= 4)
    if (w.has_levels) return Code::template run<Bits, true>();
  return Code::template run<Bits, false>();
}

}  // namespace
}  // namespace lowbit
