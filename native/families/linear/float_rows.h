// Products of rows of floats with rows of weights, both along k: y[i][j] = x_i . w_j. Written once for all instruction
// sets; an `Isa` (x86/floats_avx512.h, x86/floats_avx2.h, generic/floats.h) supplies vectors and a few operations.
#pragma once

#include <algorithm>

#include "../../half.h"
#include "../../kernel.h"
#include "../../vectors.h"

namespace lowbit {
// Anonymous: each file needs its own copy. The linker would keep one for all, compiled for one file's instructions.
namespace {

template <FloatType Type>
struct FloatWeight {
  using Element = uint16_t;
};
template <>
struct FloatWeight<FloatType::kF32> {
  using Element = float;
};

// Loads a vector of weights as f32.
template <class Isa, FloatType Type>
inline typename Isa::V load_weights(const typename FloatWeight<Type>::Element* w) {
  if constexpr (Type == FloatType::kF32) return Isa::load(w);
  else if constexpr (Type == FloatType::kF16) return Isa::load_halves(w);
  else return Isa::load_bf16(w);
}

// Loads `count` weights, fewer than a vector; the other lanes are 0.
template <class Isa, FloatType Type>
inline typename Isa::V load_some_weights(const typename FloatWeight<Type>::Element* w, uint32_t count) {
  if constexpr (Type == FloatType::kF32) return Isa::load_some(w, count);
  uint16_t all[Isa::kLanes] = {};
  memcpy(all, w, 2 * count);
  if constexpr (Type == FloatType::kF16) return Isa::load_halves(all);
  else return Isa::load_bf16(all);
}

template <FloatType Type>
struct DotRows {
  const float* x;
  const typename FloatWeight<Type>::Element* w;
  float* y;
  // [n], or null.
  const float* bias;
  // Elements between rows.
  size_t x_stride, w_stride, y_stride;
  uint32_t m, n, k;
  // Whether to add to y, which holds the sums over earlier values of k.
  bool accumulate;
};

// Rows of weights multiplied side by side, each a stream from memory.
constexpr int kDotColumns = 4;

// Multiplies `Rows` rows of x from `row` on by `Columns` rows of weights, from `column` on and `apart` rows from each
// other. `Ahead` prefetches the rows of weights behind them.
template <class Isa, FloatType Type, bool Ahead, int Rows, int Columns>
inline void dot_block(const DotRows<Type>& args, uint32_t row, uint32_t column, uint32_t apart) {
  using V = typename Isa::V;
  constexpr int kLanes = Isa::kLanes;
  constexpr int kSums = (Rows * Columns + kLanes - 1) / kLanes * kLanes;
  const float* x = args.x + row * args.x_stride;
  const auto* w = args.w + column * args.w_stride;
  const size_t w_stride = apart * args.w_stride;
  V sum[kSums];
  each_index<kSums>([&](auto i) LOWBIT_INLINE { sum[i] = Isa::set(0); });
  uint32_t c = 0;
  for (; c + kLanes <= args.k; c += kLanes) {
    V values[Rows];
    each_index<Rows>([&](auto i) LOWBIT_INLINE { values[i] = Isa::load(x + i * args.x_stride + c); });
    each_index<Columns>([&](auto j) LOWBIT_INLINE {
      const auto* from = w + j * w_stride + c;
      if constexpr (Ahead) __builtin_prefetch(from + args.w_stride, 0, 2);
      const V weight = load_weights<Isa, Type>(from);
      each_index<Rows>([&](auto i) LOWBIT_INLINE {
        sum[i * Columns + j] = Isa::multiply_add(values[i], weight, sum[i * Columns + j]);
      });
    });
  }
  if (const uint32_t rest = args.k - c; rest > 0) {
    each_index<Columns>([&](auto j) LOWBIT_INLINE {
      const V weight = load_some_weights<Isa, Type>(w + j * w_stride + c, rest);
      each_index<Rows>([&](auto i) LOWBIT_INLINE {
        const V value = Isa::load_some(x + i * args.x_stride + c, rest);
        sum[i * Columns + j] = Isa::multiply_add(value, weight, sum[i * Columns + j]);
      });
    });
  }
  float totals[kSums];
  for (int i = 0; i < kSums; i += kLanes) Isa::store(totals + i, Isa::sums(sum + i));
  for (int i = 0; i < Rows; i++) {
    float* y = args.y + (row + i) * args.y_stride + column;
    for (int j = 0; j < Columns; j++) {
      const uint32_t at = j * apart;
      const float before = args.accumulate ? y[at] : args.bias ? args.bias[column + at] : 0;
      y[at] = before + totals[i * Columns + j];
    }
  }
}

// Multiplies `Rows` rows of x by all rows of weights. From memory (`Ahead`), weights are read as kDotColumns long
// streams of neighbouring rows: hardware prefetchers fetch little of short streams.
template <class Isa, FloatType Type, bool Ahead, int Rows>
inline void dot_columns(const DotRows<Type>& args, uint32_t row) {
  const uint32_t blocks = args.n / kDotColumns, apart = Ahead ? blocks : 1;
  for (uint32_t block = 0; block < blocks; block++)
    dot_block<Isa, Type, Ahead, Rows, kDotColumns>(args, row, Ahead ? block : kDotColumns * block, apart);
  for (uint32_t column = kDotColumns * blocks; column < args.n; column++)
    dot_block<Isa, Type, Ahead, Rows, 1>(args, row, column, 1);
}

// Computes all of y. `Isa::kDotRows` rows of x share the loads of weights.
template <class Isa, FloatType Type, bool Ahead>
void dot_rows(const DotRows<Type>& args) {
  uint32_t row = 0;
  for (; row + Isa::kDotRows <= args.m; row += Isa::kDotRows) dot_columns<Isa, Type, Ahead, Isa::kDotRows>(args, row);
  const uint32_t rest = args.m - row;
  each_index<Isa::kDotRows>([&](auto rows) LOWBIT_INLINE {
    if constexpr (rows > 0) {
      if (rest == rows) dot_columns<Isa, Type, Ahead, rows>(args, row);
    }
  });
}

// Values of k per pass: so much of a few rows stays in the first-level cache.
constexpr uint32_t kDotDepth = 1024;

// dot_rows for many rows of x and f32 weights that are in a near cache.
template <class Isa>
void dot_many_rows(DotRows<FloatType::kF32> args) {
  const uint32_t k = args.k;
  for (uint32_t start = 0; start < k; start += kDotDepth) {
    args.k = std::min(kDotDepth, k - start);
    dot_rows<Isa, FloatType::kF32, false>(args);
    args.x += args.k;
    args.w += args.k;
    args.accumulate = true;
  }
}

}  // namespace
}  // namespace lowbit
