// Rotary position embedding (RoPE, Su et al. 2021) of the pairs of dimensions i and half + i.
#pragma once

#include "../division.h"
#include "arguments.h"

namespace lowbit {

struct RopeArgs {
  const float* x;
  const float* angles;
  float* y;
  uint32_t tokens, heads, head_dim, half, tokens_per_tile;
};

// Rotates the heads of one token; `angles` holds its cosines [half], then its sines [half].
template <class Isa>
void rotate_heads(const float* x, const float* angles, uint32_t half, uint32_t heads, uint32_t dim, float* y) {
  for (uint32_t head = 0; head < heads; head++, x += dim, y += dim) {
    each_vector<Isa>(half, [&](size_t i, auto vector) {
      const auto a = vector.load(x + i), b = vector.load(x + half + i);
      const auto c = vector.load(angles + i), s = vector.load(angles + half + i);
      vector.store(y + i, Isa::multiply_add(a, c, Isa::set(0.0f) - b * s));
      vector.store(y + half + i, Isa::multiply_add(b, c, a * s));
    });
    for (uint32_t i = 2 * half; i < dim; i++) y[i] = x[i];
  }
}

template <class Isa>
void rope_run(const Step& step, uint32_t, uint32_t tile, uint32_t) {
  const RopeArgs& args = step.as<RopeArgs>();
  const uint32_t last = std::min(args.tokens, (tile + 1) * args.tokens_per_tile);
  for (uint32_t t = tile * args.tokens_per_tile; t < last; t++) {
    const size_t start = static_cast<size_t>(t) * args.heads * args.head_dim;
    const float* angles = args.angles + static_cast<size_t>(t) * 2 * args.half;
    rotate_heads<Isa>(args.x + start, angles, args.half, args.heads, args.head_dim, args.y + start);
  }
}

template <class Isa>
void rope_prepare(Step& step, const Call& call) {
  const auto given = arguments_of<RopeArguments>(call);
  RopeArgs& args = step.init<RopeArgs>();
  args.tokens = given.tokens;
  args.heads = given.heads;
  args.head_dim = given.head_dim;
  args.half = given.half;
  args.x = given.x;
  args.angles = given.angles;
  args.y = given.y;
  const uint32_t values = std::max(1u, args.heads * args.head_dim);
  args.tokens_per_tile = items_per_tile<Isa>(args.tokens, kTileValues / values, call.threads);
  step.phases = 1;
  step.tiles[0] = ceil_div(args.tokens, args.tokens_per_tile);
  step.run = rope_run<Isa>;
}

}  // namespace lowbit
