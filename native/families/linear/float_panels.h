// GEMM of rows of floats by panels of weights. A panel has two vectors of columns for each k, in the order in which
// sums take k. So nothing is summed across lanes, and the panels that a block reads stay in the near caches.
#pragma once

#include "float_rows.h"

namespace lowbit {
namespace {

template <class Isa>
constexpr uint32_t kPanelColumns = 2 * Isa::kLanes;

// Transposes kLanes vectors in place: log2(kLanes) rounds of zipping halves.
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

// Chain c of a row: the values of k with the same k % kLanes, one after the other. Its sum is that of lane c in
// dot_rows. All chains are padded with zeros to the longest one.
template <class Isa>
inline uint32_t chain_length(uint32_t k) {
  return ceil_div(k, Isa::kLanes);
}

// A row [k] as chains [kLanes][chain_length].
template <class Isa>
void copy_chains(const float* x, uint32_t k, float* out) {
  constexpr uint32_t kLanes = Isa::kLanes;
  const uint32_t length = chain_length<Isa>(k);
  for (uint32_t start = 0; start < length; start += kLanes) {
    const uint32_t count = std::min(kLanes, length - start);
    typename Isa::V v[kLanes];
    for (uint32_t i = 0; i < kLanes; i++) {
      const uint32_t c = (start + i) * kLanes;
      v[i] = c + kLanes <= k ? Isa::load(x + c) : c < k ? Isa::load_some(x + c, k - c) : Isa::set(0);
    }
    transpose<Isa>(v);
    for (uint32_t i = 0; i < kLanes; i++) {
      float* to = out + size_t{i} * length + start;
      if (count == kLanes) Isa::store(to, v[i]);
      else Isa::store_some(to, v[i], count);
    }
  }
}

// Places of a chain in a panel: one more than its length. Chains that are a power of two apart would map to the same
// cache sets.
inline uint32_t chain_places(uint32_t length) { return length + 1; }

// Copies `columns` rows of weights [n, k], from w on, to a panel of chains [kLanes][chain_places][kPanelColumns].
// Columns past `columns` are zeros.
template <class Isa, FloatType Type>
void copy_panel(const typename FloatWeight<Type>::Element* w, uint32_t columns, uint32_t k, float* panel) {
  constexpr uint32_t kLanes = Isa::kLanes;
  const uint32_t length = chain_length<Isa>(k);
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
      float* to = panel + size_t{c} / kLanes * kPanelColumns<Isa> + half * kLanes;
      for (uint32_t i = 0; i < kLanes; i++)
        Isa::store(to + size_t{i} * chain_places(length) * kPanelColumns<Isa>, v[i]);
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
  // Scales of groups of group_length values of k, [groups][kPanelColumns]; for GroupSums only.
  const float* scales;
  uint32_t group_length;
};

template <class Isa, int Rows>
using PanelSums = typename Isa::V[Rows][2];

template <int Rows, class Body>
inline LOWBIT_INLINE void each_total(Body&& body) {
  each_index<Rows>([&](auto i) LOWBIT_INLINE {
    each_index<2>([&](auto half) LOWBIT_INLINE { body(i, half); });
  });
}

// Sums `length` values of k of a panel times rows of x, in order.
template <class Isa, int Rows>
inline LOWBIT_INLINE void sum_in_order(const float* x, size_t x_stride, const float* panel,
                                                       uint32_t length, PanelSums<Isa, Rows>& sum) {
  using V = typename Isa::V;
  each_total<Rows>([&](auto i, auto half) LOWBIT_INLINE { sum[i][half] = Isa::set(0); });
  const auto add = [&]() LOWBIT_INLINE {
    const V low = Isa::load(panel), high = Isa::load(panel + Isa::kLanes);
    each_index<Rows>([&](auto i) LOWBIT_INLINE {
      const V value = Isa::set(x[i * x_stride]);
      sum[i][0] = Isa::multiply_add(value, low, sum[i][0]);
      sum[i][1] = Isa::multiply_add(value, high, sum[i][1]);
    });
    x++;
    panel += kPanelColumns<Isa>;
  };
  // Few iterations a turn: branch predictors foresee the end of so short a loop.
  constexpr uint32_t kTurn = 8;
  for (; length >= kTurn; length -= kTurn) each_index<kTurn>([&](auto) LOWBIT_INLINE { add(); });
  for (; length > 0; length--) add();
}

// Sums all values of k in order.
template <class Isa>
struct OneSum {
  template <int Rows>
  static LOWBIT_INLINE void sums(const PanelProduct& args, const float* x,
                                                 PanelSums<Isa, Rows>& total) {
    sum_in_order<Isa, Rows>(x, args.x_stride, args.panel, args.k, total);
  }
};

// Sums chains, then adds them as dot_rows adds its lanes: first pairs of neighbours in the order of `Isa::kLaneOrder`,
// then pairs of pairs, and so on. args.k is the length of a chain.
template <class Isa>
struct ChainSums {
  template <int Rows>
  static LOWBIT_INLINE void sums(const PanelProduct& args, const float* x,
                                                 PanelSums<Isa, Rows>& total) {
    constexpr uint32_t kLanes = Isa::kLanes, kLevels = kLanes == 4 ? 2 : kLanes == 8 ? 3 : 4;
    // Sums of 1, 2, 4, ... chains, each of which waits for the sum of as many others.
    PanelSums<Isa, Rows> held[kLevels];
    for (uint32_t i = 0; i < kLanes; i++) {
      const size_t chain = i / 4 * 4 + Isa::kLaneOrder[i % 4];
      const float* panel = args.panel + chain * chain_places(args.k) * kPanelColumns<Isa>;
      sum_in_order<Isa, Rows>(x + chain * args.k, args.x_stride, panel, args.k, total);
      uint32_t level = 0;
      for (; i >> level & 1; level++)
        each_total<Rows>([&](auto j, auto half) LOWBIT_INLINE {
          total[j][half] = held[level][j][half] + total[j][half];
        });
      if (i + 1 == kLanes) return;
      each_total<Rows>([&](auto j, auto half) LOWBIT_INLINE { held[level][j][half] = total[j][half]; });
    }
  }
};

// Sums each group, times its scale.
template <class Isa>
struct GroupSums {
  template <int Rows>
  static LOWBIT_INLINE void sums(const PanelProduct& args, const float* x,
                                                 PanelSums<Isa, Rows>& total) {
    using V = typename Isa::V;
    const float *panel = args.panel, *scales = args.scales;
    const uint32_t length = args.group_length;
    each_total<Rows>([&](auto i, auto half) LOWBIT_INLINE { total[i][half] = Isa::set(0); });
    for (uint32_t c = 0; c < args.k; c += length, scales += kPanelColumns<Isa>) {
      PanelSums<Isa, Rows> sum;
      sum_in_order<Isa, Rows>(x + c, args.x_stride, panel + size_t{c} * kPanelColumns<Isa>, length, sum);
      const V low = Isa::load(scales), high = Isa::load(scales + Isa::kLanes);
      each_index<Rows>([&](auto i) LOWBIT_INLINE {
        total[i][0] = Isa::multiply_add(sum[i][0], low, total[i][0]);
        total[i][1] = Isa::multiply_add(sum[i][1], high, total[i][1]);
      });
    }
  }
};

// Stores `Rows` rows of y from `row` on.
template <class Isa, class Sums, int Rows>
inline void panel_rows(const PanelProduct& args, uint32_t row) {
  using V = typename Isa::V;
  constexpr uint32_t kLanes = Isa::kLanes;
  PanelSums<Isa, Rows> sum;
  Sums::template sums<Rows>(args, args.x + row * args.x_stride, sum);
  each_index<2>([&](auto half) LOWBIT_INLINE {
    if (half * kLanes >= args.columns) return;
    const uint32_t count = std::min(kLanes, args.columns - half * kLanes);
    const V bias = args.bias ? Isa::load_some(args.bias + half * kLanes, count) : Isa::set(0);
    each_index<Rows>([&](auto i) LOWBIT_INLINE {
      float* y = args.y + (row + i) * args.y_stride + half * kLanes;
      if (count == kLanes) Isa::store(y, sum[i][half] + bias);
      else Isa::store_some(y, sum[i][half] + bias, count);
    });
  });
}

// Computes all rows of y. `Sums` is the order of the sums, and with it the layout of x and of the panel.
template <class Isa, class Sums>
void multiply_panel(const PanelProduct& args) {
  uint32_t row = 0;
  for (; row + Isa::kOuterRows <= args.m; row += Isa::kOuterRows) panel_rows<Isa, Sums, Isa::kOuterRows>(args, row);
  for (; row + 4 <= args.m; row += 4) panel_rows<Isa, Sums, 4>(args, row);
  if (row + 2 <= args.m) {
    panel_rows<Isa, Sums, 2>(args, row);
    row += 2;
  }
  if (row < args.m) panel_rows<Isa, Sums, 1>(args, row);
}

}  // namespace
}  // namespace lowbit
