// Causal depthwise convolution: y[t, c] = bias[c] + sum over taps of weight[tap, c] * x[t - taps + 1 + tap, c], where a
// sequence's state holds its last taps - 1 inputs. A tile is a range of channels of all tokens. A token's result has
// the same bits whichever tokens are beside it: a sum starts with the bias and adds the oldest input first.
#pragma once

#include "../embedding/embedding.h"
#include "../gate/activations.h"
#include "../runs.h"
#include "arguments.h"

namespace lowbit {

struct ShortConvolutionArgs {
  const float *x, *weight;
  // Null without a bias.
  const float* bias;
  float* y;
  StateTable table;
  uint32_t channels, taps, per_tile;
  bool silu;
};

// One token's `count` channels: the first `known` of its inputs lie in the state at `before`, the others at `x`.
template <class Isa>
void convolve_row(const ShortConvolutionArgs& args, uint32_t first, uint32_t count, uint32_t known, const float* before,
                  const float* x, float* y) {
  using V = typename Isa::V;
  const size_t stride = args.channels;
  each_vector<Isa>(count, [&](size_t c, auto vector) {
    V sum = args.bias ? vector.load(args.bias + first + c) : Isa::set(0);
    const float* weight = args.weight + first + c;
    auto add = [&](const float* input, uint32_t inputs) LOWBIT_INLINE {
      for (uint32_t j = 0; j < inputs; j++, input += stride, weight += stride)
        sum = Isa::multiply_add(vector.load(weight), vector.load(input), sum);
    };
    add(before + c, known);
    add(x + c, args.taps - known);
    if (args.silu) sum = Silu::times<Isa>(sum, Isa::set(1.0f));
    vector.store(y + c, sum);
  });
}

template <class Isa>
void short_convolution_run(const Step& step, uint32_t, uint32_t tile, uint32_t) {
  const ShortConvolutionArgs& args = step.as<ShortConvolutionArgs>();
  const uint32_t first = tile * args.per_tile, count = std::min(args.per_tile, args.channels - first);
  const uint32_t kept = args.taps - 1;
  const size_t stride = args.channels;
  auto skip = [&](uint32_t row, uint32_t last) {
    for (; row < last; row++) fill_nan(args.y + row * stride + first, count);
  };
  each_state(args.table, skip, [&](const Run& run, const float* now, float* next) {
    const float* x = args.x + run.row * stride + first;
    float* y = args.y + run.row * stride + first;
    for (uint32_t row = 0; row < run.rows; row++, y += stride) {
      const uint32_t known = kept - std::min(kept, row);
      const float* before = now + (kept - known) * stride + first;
      convolve_row<Isa>(args, first, count, known, before, x + (row + known - kept) * stride, y);
    }
    for (uint32_t j = 0; j < kept; j++) {
      const uint32_t input = run.rows + j;
      const float* from = input < kept ? now + input * stride + first : x + (input - kept) * stride;
      memcpy(next + j * stride + first, from, 4 * static_cast<size_t>(count));
    }
  });
}

template <class Isa>
void short_convolution_prepare(Step& step, const Call& call) {
  const auto given = arguments_of<ShortConvolutionArguments>(call);
  ShortConvolutionArgs& args = step.init<ShortConvolutionArgs>();
  args.x = given.x;
  args.weight = given.weight;
  args.bias = given.bias;
  args.y = given.y;
  args.table = state_table(given);
  args.channels = given.channels;
  args.taps = given.taps;
  args.silu = given.silu;
  // Cost of one channel of a token: an input and a weight for each tap.
  const size_t least = kTileValues / std::max<size_t>(1, size_t{2} * args.taps * args.table.rows);
  args.per_tile = static_cast<uint32_t>(round_up(items_per_tile<Isa>(args.channels, least, call.threads), 16));
  step.phases = 1;
  step.tiles[0] = ceil_div(args.channels, args.per_tile);
  step.run = short_convolution_run<Isa>;
}

}  // namespace lowbit
