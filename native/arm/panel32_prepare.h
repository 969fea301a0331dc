// Binds calls of linear layers over panel32 weights: sizes of tiles and scratch, choice of the code for the bit width.
#pragma once

#include "panel32_gemm.h"

namespace lowbit {
namespace {

// scalars: m; buffers: x, packed weights, y, scratch.
inline void read_call(Linear32& args, const Call& call) {
  args.m = static_cast<uint32_t>(call.scalars[0]);
  args.x = static_cast<const float*>(call.buffers[0]);
  args.weights = read_panels(call.buffers[1], kPanelRows);
  args.y = static_cast<float*>(call.buffers[2]);
}

// Panels in about eight tiles a thread of at most 128 KiB of weights.
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

// `Code::run<Bits, Levels>()` for the weights at hand; codebooks have up to 4 bits.
template <class Code, int Bits = 1>
Run choose_run(const Panels& w) {
  if constexpr (Bits < 8)
    if (w.bits != Bits) return choose_run<Code, Bits + 1>(w);
  if constexpr (Bits <= 4)
    if (w.has_levels) return Code::template run<Bits, true>();
  return Code::template run<Bits, false>();
}

template <class Isa>
struct GemmCode {
  template <int Bits, bool Levels>
  static constexpr Run run() { return gemm_run<Isa, Bits, Levels>; }
};

// Activations and the unpacked panel of each thread.
template <class Isa>
size_t carve_gemm(Linear32& args, uint8_t* base, uint32_t threads) {
  Carver carver{base};
  args.rows = carve_activations(carver, args.weights, args.m, Isa::kRowStep, 0);
  args.unpacked = carver.take<uint8_t>(threads * unpacked_bytes<Isa>(args.weights));
  return carver.size;
}

template <class Isa>
size_t gemm_scratch(const Call& call) {
  Linear32 args;
  read_call(args, call);
  return carve_gemm<Isa>(args, nullptr, call.threads);
}

template <class Isa>
void prepare_gemm(Step& step, const Call& call) {
  Linear32& args = step.init<Linear32>();
  read_call(args, call);
  carve_gemm<Isa>(args, static_cast<uint8_t*>(call.buffers[3]), call.threads);
  args.rows_per_tile = static_cast<uint32_t>(round_up(ceil_div(args.m, 4 * call.threads), Isa::kRowStep));
  args.panels_per_tile = 1;
  step.phases = 2;
  step.tiles[0] = ceil_div(args.m, args.rows_per_tile);
  step.tiles[1] = args.weights.panel_count * ceil_div(args.rows.row_stride, rows_of_pass(args.weights));
  step.run = choose_run<GemmCode<Isa>>(args.weights);
}

}  // namespace
}  // namespace lowbit
