// Linear layers over float weights [n, k] as they are stored, in f32, f16 or bf16: nothing is packed. Few rows of x are
// multiplied with the weights on their way from memory; for many, a tile of 16-bit weights is first copied to f32.
//
// Sums are in f32: the error is at most (k / lanes + lanes) * 2^-24 * sum |x| |w|.
#pragma once

#include "float_rows.h"

namespace lowbit {
namespace {

struct FloatLinear {
  const void* weights;
  const float* bias;
  const float* x;
  float* y;
  // For each thread, a tile of weights in f32.
  float* copies;
  uint32_t m, n, k, columns_per_tile;
  FloatType type;

  bool copies_weights() const { return m >= kManyRows && type != FloatType::kF32; }
};
static_assert(sizeof(FloatLinear) <= kArgsMax);

// scalars: m, n, k, type, 1 with a bias; buffers: x, weights, bias, y, scratch.
static inline FloatLinear read_float_linear(const Call& call) {
  constexpr uint32_t kTileBytes = 128u << 10;
  FloatLinear args{};
  args.m = static_cast<uint32_t>(call.scalars[0]);
  args.n = static_cast<uint32_t>(call.scalars[1]);
  args.k = static_cast<uint32_t>(call.scalars[2]);
  args.type = static_cast<FloatType>(static_cast<uint32_t>(call.scalars[3]));
  args.x = static_cast<const float*>(call.buffers[0]);
  args.weights = call.buffers[1];
  args.bias = call.scalars[4] != 0 ? static_cast<const float*>(call.buffers[2]) : nullptr;
  args.y = static_cast<float*>(call.buffers[3]);
  args.copies = static_cast<float*>(call.buffers[4]);
  const uint32_t by_size = kTileBytes / (4 * args.k) + 1, by_share = args.n / (8 * call.threads) + 1;
  args.columns_per_tile = static_cast<uint32_t>(round_up(std::min(by_size, by_share), kDotColumns));
  return args;
}

static inline size_t float_linear_scratch(const Call& call) {
  const FloatLinear args = read_float_linear(call);
  return args.copies_weights() ? size_t{4} * args.columns_per_tile * args.k * call.threads : 0;
}

template <class Isa, FloatType Type>
void copy_weights(const typename FloatWeight<Type>::Element* w, size_t count, float* copy) {
  size_t i = 0;
  for (; i + Isa::kLanes <= count; i += Isa::kLanes) Isa::store(copy + i, load_weights<Isa, Type>(w + i));
  const uint32_t rest = static_cast<uint32_t>(count - i);
  if (rest > 0) Isa::store_some(copy + i, load_some_weights<Isa, Type>(w + i, rest), rest);
}

template <class Isa, FloatType Type>
void float_linear_run(const Step& step, uint32_t, uint32_t tile, uint32_t thread) {
  const FloatLinear& args = step.as<FloatLinear>();
  const uint32_t first = tile * args.columns_per_tile;
  const uint32_t count = std::min(args.columns_per_tile, args.n - first);
  const auto* w = static_cast<const typename FloatWeight<Type>::Element*>(args.weights) + size_t{first} * args.k;
  const float* bias = args.bias ? args.bias + first : nullptr;
  if (args.m < kManyRows) {
    dot_rows<Isa, Type, true>({args.x, w, args.y + first, bias, args.k, args.k, args.n, args.m, count, args.k, false});
    return;
  }
  const float* values;
  if constexpr (Type == FloatType::kF32) {
    values = w;
  } else {
    float* copy = args.copies + size_t{thread} * args.columns_per_tile * args.k;
    copy_weights<Isa, Type>(w, size_t{count} * args.k, copy);
    values = copy;
  }
  dot_many_rows<Isa>({args.x, values, args.y + first, bias, args.k, args.k, args.n, args.m, count, args.k, false});
}

template <class Isa>
void float_linear_prepare(Step& step, const Call& call) {
  FloatLinear& args = step.init<FloatLinear>();
  args = read_float_linear(call);
  step.phases = 1;
  step.tiles[0] = ceil_div(args.n, args.columns_per_tile);
  switch (args.type) {
    case FloatType::kF32: step.run = float_linear_run<Isa, FloatType::kF32>; return;
    case FloatType::kF16: step.run = float_linear_run<Isa, FloatType::kF16>; return;
    case FloatType::kBf16: step.run = float_linear_run<Isa, FloatType::kBf16>; return;
  }
}

}  // namespace
}  // namespace lowbit
