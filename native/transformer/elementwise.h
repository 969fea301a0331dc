// Rotary embedding, gated activations, sums, factors and caps: operators that work value by value.
#pragma once

#include "../families.h"
#include "norm.h"
#include "vectors.h"

namespace lowbit {

struct BinaryArgs {
  const float* a;
  const float* b;
  float* y;
  size_t count;
  uint32_t per_tile;
  float alpha;
};

struct AddOperation {
  template <class Isa>
  static typename Isa::V apply(typename Isa::V a, typename Isa::V b, typename Isa::V alpha) {
    return Isa::multiply_add(alpha, b, a);
  }
};

// silu(a) * b
struct SwigluOperation {
  template <class Isa>
  static typename Isa::V apply(typename Isa::V a, typename Isa::V b, typename Isa::V) {
    return a / (Isa::set(1.0f) + exp_of<Isa>(Isa::set(0.0f) - a)) * b;
  }
};

// a * b
struct MultiplyOperation {
  template <class Isa>
  static typename Isa::V apply(typename Isa::V a, typename Isa::V b, typename Isa::V) {
    return a * b;
  }
};

// sigmoid(a) * b
struct SigmoidGateOperation {
  template <class Isa>
  static typename Isa::V apply(typename Isa::V a, typename Isa::V b, typename Isa::V) {
    return b / (Isa::set(1.0f) + exp_of<Isa>(Isa::set(0.0f) - a));
  }
};

// gelu(a) * b with the approximation a / (1 + exp(-2z)), z = sqrt(2 / pi) * (a + 0.044715 a^3): 1 + tanh(z) over 2 is
// that sigmoid, without its cancellation.
struct GegluOperation {
  template <class Isa>
  static typename Isa::V apply(typename Isa::V a, typename Isa::V b, typename Isa::V) {
    const auto one = Isa::set(1.0f);
    const auto bend = Isa::multiply_add(a * a, Isa::set(0.044715f), one);
    const auto exponent = a * Isa::set(-1.5957691216f) * bend;
    return a / (one + exp_of<Isa>(exponent)) * b;
  }
};

// gelu(a) * b with gelu(a) = max(a, 0) + n Q(n), n = -|a|, where Q is the normal distribution's tail beyond |a|: a
// polynomial of degree 8 in n is log2 Q, so that n Q is off by at most 9e-9 before rounding (least maximum on 0 .. 9,
// found by linear programming). It falls further on, so that what is beyond 10 makes less than 1e-31.
struct ErfGegluOperation {
  template <class Isa>
  static typename Isa::V apply(typename Isa::V a, typename Isa::V b, typename Isa::V) {
    const auto zero = Isa::set(0.0f);
    const auto n = Isa::max(Isa::set(-10.0f), Isa::min(a, zero - a));
    auto p = Isa::set(-1.90205287e-6f);
    for (float coefficient : {-2.80568111e-5f, -1.31472756e-4f, 2.72076402e-4f, 7.24542141e-3f, 5.26276119e-2f,
                              -4.59162146e-1f, 1.15111101f, -1.0f})
      p = Isa::multiply_add(p, n, Isa::set(coefficient));
    return Isa::multiply_add(n, exp2_of_small<Isa>(p), Isa::max(a, zero)) * b;
  }
};

// a * sigmoid(1.702 a) * b
struct QuickGegluOperation {
  template <class Isa>
  static typename Isa::V apply(typename Isa::V a, typename Isa::V b, typename Isa::V) {
    return a / (Isa::set(1.0f) + exp_of<Isa>(a * Isa::set(-1.702f))) * b;
  }
};

// relu(a) * b
struct RegluOperation {
  template <class Isa>
  static typename Isa::V apply(typename Isa::V a, typename Isa::V b, typename Isa::V) {
    return Isa::max(Isa::set(0.0f), a) * b;
  }
};

// relu(a)^2 * b
struct SquaredRegluOperation {
  template <class Isa>
  static typename Isa::V apply(typename Isa::V a, typename Isa::V b, typename Isa::V) {
    const auto positive = Isa::max(Isa::set(0.0f), a);
    return positive * positive * b;
  }
};

template <class Isa, class Operation>
void binary_run(const Step& step, uint32_t, uint32_t tile, uint32_t) {
  const BinaryArgs& args = step.as<BinaryArgs>();
  const size_t start = static_cast<size_t>(tile) * args.per_tile;
  const float* a = args.a + start;
  const float* b = args.b + start;
  float* y = args.y + start;
  const auto alpha = Isa::set(args.alpha);
  each_vector<Isa>(std::min<size_t>(args.per_tile, args.count - start), [&](size_t i, auto vector) {
    vector.store(y + i, Operation::template apply<Isa>(vector.load(a + i), vector.load(b + i), alpha));
  });
}

template <class Isa, class Operation>
void binary_prepare(Step& step, const Call& call) {
  BinaryArgs& args = step.init<BinaryArgs>();
  args.count = scalar_of<size_t>(call, binary::kCount);
  args.alpha = scalar_of<float>(call, binary::kAlpha);
  args.a = buffer_of<const float>(call, binary::kA);
  args.b = buffer_of<const float>(call, binary::kB);
  args.y = buffer_of<float>(call, binary::kY);
  // Whole cache lines, so that threads do not share one.
  args.per_tile = static_cast<uint32_t>(round_up(items_per_tile<Isa>(args.count, kTileValues, call.threads), 16));
  step.phases = 1;
  step.tiles[0] = static_cast<uint32_t>((args.count + args.per_tile - 1) / args.per_tile);
  step.run = binary_run<Isa, Operation>;
}

struct ClampedGateArgs {
  const float* a;
  const float* b;
  float* y;
  size_t count;
  uint32_t per_tile;
  float slope, limit;
};

// (clamp(b) + 1) * c * sigmoid(slope * c), c = min(a, limit)
template <class Isa>
void clamped_gate_run(const Step& step, uint32_t, uint32_t tile, uint32_t) {
  const ClampedGateArgs& args = step.as<ClampedGateArgs>();
  const size_t start = static_cast<size_t>(tile) * args.per_tile;
  const auto zero = Isa::set(0.0f), one = Isa::set(1.0f), slope = Isa::set(-args.slope), limit = Isa::set(args.limit);
  // NaN stays: of max's arguments it is the second one.
  const auto at_most = [&](auto x) { return zero - Isa::max(zero - limit, zero - x); };
  each_vector<Isa>(std::min<size_t>(args.per_tile, args.count - start), [&](size_t i, auto vector) {
    const auto gate = at_most(vector.load(args.a + start + i));
    const auto up = Isa::max(zero - limit, at_most(vector.load(args.b + start + i)));
    vector.store(args.y + start + i, (up + one) * (gate / (one + exp_of<Isa>(gate * slope))));
  });
}

template <class Isa>
void clamped_gate_prepare(Step& step, const Call& call) {
  ClampedGateArgs& args = step.init<ClampedGateArgs>();
  args.count = scalar_of<size_t>(call, clamped_gate::kCount);
  args.slope = scalar_of<float>(call, clamped_gate::kSlope);
  args.limit = scalar_of<float>(call, clamped_gate::kLimit);
  args.a = buffer_of<const float>(call, clamped_gate::kA);
  args.b = buffer_of<const float>(call, clamped_gate::kB);
  args.y = buffer_of<float>(call, clamped_gate::kY);
  args.per_tile = static_cast<uint32_t>(round_up(items_per_tile<Isa>(args.count, kTileValues, call.threads), 16));
  step.phases = 1;
  step.tiles[0] = static_cast<uint32_t>((args.count + args.per_tile - 1) / args.per_tile);
  step.run = clamped_gate_run<Isa>;
}

struct UnaryArgs {
  const float* x;
  float* y;
  size_t count;
  uint32_t per_tile;
  float value;
};

struct ScaleOperation {
  template <class Isa>
  static typename Isa::V apply(typename Isa::V x, typename Isa::V factor) {
    return x * factor;
  }
};

// cap * tanh(x / cap)
struct SoftcapOperation {
  template <class Isa>
  static typename Isa::V apply(typename Isa::V x, typename Isa::V cap) {
    return cap * tanh_of<Isa>(x / cap);
  }
};

struct SigmoidOperation {
  template <class Isa>
  static typename Isa::V apply(typename Isa::V x, typename Isa::V) {
    return Isa::set(1.0f) / (Isa::set(1.0f) + exp_of<Isa>(Isa::set(0.0f) - x));
  }
};

// gelu(x) as the gates have it.
template <class Gate>
struct GeluOperation {
  template <class Isa>
  static typename Isa::V apply(typename Isa::V x, typename Isa::V) {
    return Gate::template apply<Isa>(x, Isa::set(1.0f), x);
  }
};

template <class Isa, class Operation>
void unary_run(const Step& step, uint32_t, uint32_t tile, uint32_t) {
  const UnaryArgs& args = step.as<UnaryArgs>();
  const size_t start = static_cast<size_t>(tile) * args.per_tile;
  const auto value = Isa::set(args.value);
  each_vector<Isa>(std::min<size_t>(args.per_tile, args.count - start), [&](size_t i, auto vector) {
    vector.store(args.y + start + i, Operation::template apply<Isa>(vector.load(args.x + start + i), value));
  });
}

template <class Isa, class Operation>
void unary_prepare(Step& step, const Call& call) {
  UnaryArgs& args = step.init<UnaryArgs>();
  args.count = scalar_of<size_t>(call, unary::kCount);
  args.value = scalar_of<float>(call, unary::kValue);
  args.x = buffer_of<const float>(call, unary::kX);
  args.y = buffer_of<float>(call, unary::kY);
  args.per_tile = static_cast<uint32_t>(round_up(items_per_tile<Isa>(args.count, kTileValues, call.threads), 16));
  step.phases = 1;
  step.tiles[0] = static_cast<uint32_t>((args.count + args.per_tile - 1) / args.per_tile);
  step.run = unary_run<Isa, Operation>;
}

struct RopeArgs {
  const float* x;
  const float* angles;
  float* y;
  uint32_t tokens, heads, head_dim, half, tokens_per_tile;
};

// Rotates the heads of one token by its cosines and, after them, sines.
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
  RopeArgs& args = step.init<RopeArgs>();
  args.tokens = scalar_of<uint32_t>(call, rope::kTokens);
  args.heads = scalar_of<uint32_t>(call, rope::kHeads);
  args.head_dim = scalar_of<uint32_t>(call, rope::kHeadDim);
  args.half = scalar_of<uint32_t>(call, rope::kHalf);
  args.x = buffer_of<const float>(call, rope::kX);
  args.angles = buffer_of<const float>(call, rope::kAngles);
  args.y = buffer_of<float>(call, rope::kY);
  const uint32_t values = std::max(1u, args.heads * args.head_dim);
  args.tokens_per_tile = items_per_tile<Isa>(args.tokens, kTileValues / values, call.threads);
  step.phases = 1;
  step.tiles[0] = ceil_div(args.tokens, args.tokens_per_tile);
  step.run = rope_run<Isa>;
}

}  // namespace lowbit
