// Products of many rows of floats with panels of weights: two vectors of columns for each k, copied in that order from
// rows of weights. Nothing is summed across lanes, and what a block reads fits the caches nearby.
#pragma once

#include "float_rows.h"

namespace lowbit {
namespace {

template <class Isa>
constexpr uint32_t kPanelColumns = 2 * Isa::kLanes;

// Rows of vectors to columns, in place: zipping halves log2(lanes) times.
template <class Isa>
inline void transpose(typename Isa::V* v) {
  constexpr int kLanes = Isa::kLanes;
  for (int step = 1; step < kLanes; step *= 2) {
    typename Isa::V zipped[kLanes];
    for (int i = 0; i < kLanes / 2; i++) {
      zipped[2 * i] = Isa::zip_low(v[i], v[i + kLanes / 2]);
      zipped[2 * i + 1] = Isa::zip_high(v[i], v[i + kLanes / 2]);
    }
    for (int i = 0; i < kLanes; i++) v[i] = zipped[i];
  }
}

// Rows `first` .. `first + columns` of weights [n, k] as a panel [k][kPanelColumns]; columns beyond n are zeros.
template <class Isa, FloatType Type>
void copy_panel(const typename FloatWeight<Type>::Element* w, uint32_t columns, uint32_t k, float* panel) {
  constexpr uint32_t kLanes = Isa::kLanes;
  for (uint32_t half = 0; half < 2; half++) {
    for (uint32_t c = 0; c < k; c += kLanes) {
      const uint32_t count = std::min(kLanes, k - c);
      typename Isa::V v[kLanes];
      for (uint32_t i = 0; i < kLanes; i++) {
        const uint32_t row = half * kLanes + i;
        const auto* from = w + size_t{row} * k + c;
        if (row >= columns) v[i] = Isa::set(0);
        else v[i] = count == kLanes ? load_weights<Isa, Type>(from) : load_some_weights<Isa, Type>(from, count);
      }
      transpose<Isa>(v);
      for (uint32_t i = 0; i < count; i++)
        Isa::store(panel + (size_t{c} + i) * kPanelColumns<Isa> + half * kLanes, v[i]);
    }
  }
}

struct PanelProduct {
  const float* x;
  size_t x_stride;
  const float* panel;
  // [columns], or null.
  const float* bias;
  float* y;
  size_t y_stride;
  uint32_t m, k, columns;
};

// `Rows` rows of y from `row`.
template <class Isa, int Rows>
inline void panel_rows(const PanelProduct& args, uint32_t row) {
  using V = typename Isa::V;
  constexpr uint32_t kLanes = Isa::kLanes;
  const float* x = args.x + row * args.x_stride;
  const float* panel = args.panel;
  V sum[Rows][2];
  for (int i = 0; i < 2 * Rows; i++) sum[i / 2][i % 2] = Isa::set(0);
  for (uint32_t c = 0; c < args.k; c++, panel += kPanelColumns<Isa>) {
    const V low = Isa::load(panel), high = Isa::load(panel + kLanes);
    each_index<Rows>([&](auto i) LOWBIT_INLINE {
      const V value = Isa::set(x[i * args.x_stride + c]);
      sum[i][0] = Isa::multiply_add(value, low, sum[i][0]);
      sum[i][1] = Isa::multiply_add(value, high, sum[i][1]);
    });
  }
  for (uint32_t half = 0; half < 2 && half * kLanes < args.columns; half++) {
    const uint32_t count = std::min(kLanes, args.columns - half * kLanes);
    const V bias = args.bias ? Isa::load_some(args.bias + half * kLanes, count) : Isa::set(0);
    for (int i = 0; i < Rows; i++) {
      float* y = args.y + (row + i) * args.y_stride + half * kLanes;
      if (count == kLanes) Isa::store(y, sum[i][half] + bias);
      else Isa::store_some(y, sum[i][half] + bias, count);
    }
  }
}

template <class Isa>
void multiply_panel(const PanelProduct& args) {
  uint32_t row = 0;
  for (; row + Isa::kOuterRows <= args.m; row += Isa::kOuterRows) panel_rows<Isa, Isa::kOuterRows>(args, row);
  for (; row + 4 <= args.m; row += 4) panel_rows<Isa, 4>(args, row);
  if (row + 2 <= args.m) {
    panel_rows<Isa, 2>(args, row);
    row += 2;
  }
  if (row < args.m) panel_rows<Isa, 1>(args, row);
}

}  // namespace
}  // namespace lowbit
