// Linear layers over float weights as stored, y [m, n] = x [m, k] . w [n, k]^T + bias, with w in f32, f16 or bf16. GEMV
// multiplies few rows of x by weights as they come from memory. GEMM, from kManyRows rows on, first copies panels of
// weights to f32.
//
// Sums are in f32: the error is at most (k + 2 lanes) * 2^-24 * sum |x| |w|, and typically that of a random walk.
#pragma once

#include "float_call.h"
#include "float_panels.h"
#include "float_rows.h"

namespace lowbit {
namespace {

struct FloatLinear : FloatCall {
  // spaced: rows of x as chains, `stride` floats from one to the next: no power of two, which would map all rows to the
  // same cache sets. panels: one panel per thread.
  float* spaced;
  float* panels;
  size_t stride;
  uint32_t columns_per_tile, rows_per_tile;
};
static_assert(sizeof(FloatLinear) <= kArgsMax);

// Fewest rows of x for which copying weights pays.
constexpr uint32_t kManyRows = 8;

// Floats from one row of chains to the next, and floats of a panel of chains.
template <class Isa>
inline size_t chain_stride(uint32_t k) {
  return size_t{Isa::kLanes} * chain_length<Isa>(k) + 16;
}
template <class Isa>
inline size_t chain_panel(uint32_t k) {
  return size_t{kPanelColumns<Isa>} * Isa::kLanes * chain_places(chain_length<Isa>(k));
}

template <class Isa>
inline FloatLinear read_float_linear(const Call& call) {
  const auto given = arguments_of<LinearFloatArguments>(call);
  FloatLinear args{read_float_call(call)};
  args.spaced = static_cast<float*>(given.scratch);
  args.stride = chain_stride<Isa>(args.k);
  args.panels = args.spaced + args.m * args.stride;
  return args;
}

template <class Isa>
size_t float_linear_scratch(const Call& call) {
  const auto given = arguments_of<LinearFloatArguments>(call);
  const uint32_t m = given.m, k = given.k;
  if (m < kManyRows) return 0;
  return sizeof(float) * (m * chain_stride<Isa>(k) + call.threads * chain_panel<Isa>(k));
}

template <class Isa, FloatType Type>
void few_rows_run(const Step& step, uint32_t, uint32_t tile, uint32_t) {
  const FloatLinear& args = step.as<FloatLinear>();
  const uint32_t first = tile * args.columns_per_tile;
  const uint32_t count = std::min(args.columns_per_tile, args.n - first);
  const auto* w = static_cast<const typename FloatWeight<Type>::Element*>(args.weights) + size_t{first} * args.k;
  const float* bias = args.bias ? args.bias + first : nullptr;
  dot_rows<Isa, Type, true>({args.x, w, args.y + first, bias, args.k, args.k, args.n, args.m, count, args.k, false});
}

template <class Isa, FloatType Type>
void many_rows_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread) {
  const FloatLinear& args = step.as<FloatLinear>();
  if (phase == 0) {
    const uint32_t last = std::min(args.m, (tile + 1) * args.rows_per_tile);
    for (uint32_t row = tile * args.rows_per_tile; row < last; row++)
      copy_chains<Isa>(args.x + size_t{row} * args.k, args.k, args.spaced + row * args.stride);
    return;
  }
  const uint32_t first = tile * kPanelColumns<Isa>;
  const uint32_t count = std::min(kPanelColumns<Isa>, args.n - first);
  const auto* w = static_cast<const typename FloatWeight<Type>::Element*>(args.weights) + size_t{first} * args.k;
  float* panel = args.panels + thread * chain_panel<Isa>(args.k);
  copy_panel<Isa, Type>(w, count, args.k, panel);
  const float* bias = args.bias ? args.bias + first : nullptr;
  multiply_panel<Isa, ChainSums<Isa>>({args.spaced, args.stride, panel, bias, args.y + first, args.n, args.m,
                                       chain_length<Isa>(args.k), count, nullptr, 0});
}

template <class Isa, FloatType Type>
void split_float_linear(Step& step, FloatLinear& args, uint32_t threads) {
  if (args.m >= kManyRows) {
    args.rows_per_tile = ceil_div(args.m, 4 * threads);
    step.phases = 2;
    step.tiles[0] = ceil_div(args.m, args.rows_per_tile);
    step.tiles[1] = ceil_div(args.n, kPanelColumns<Isa>);
    step.run = many_rows_run<Isa, Type>;
    return;
  }
  // Few tiles a thread: each is read as streams, which should be long.
  args.columns_per_tile = static_cast<uint32_t>(round_up(args.n / (4 * threads) + 1, kDotColumns));
  step.phases = 1;
  step.tiles[0] = ceil_div(args.n, args.columns_per_tile);
  step.run = few_rows_run<Isa, Type>;
}

template <class Isa>
void float_linear_prepare(Step& step, const Call& call) {
  FloatLinear& args = step.init<FloatLinear>();
  args = read_float_linear<Isa>(call);
  switch (args.type) {
    case FloatType::kF32: return split_float_linear<Isa, FloatType::kF32>(step, args, call.threads);
    case FloatType::kF16: return split_float_linear<Isa, FloatType::kF16>(step, args, call.threads);
    case FloatType::kBf16: return split_float_linear<Isa, FloatType::kBf16>(step, args, call.threads);
  }
}

}  // namespace
}  // namespace lowbit
