// AQLM GEMM in f32 for weights of any form: panels of weights are decoded once, then multiplied like those of float
// linear layers. An `Isa` is one of families/linear/float_rows.h.
#pragma once

#include "codes.h"
#include "families/linear/float_panels.h"

namespace lowbit {
namespace aqlm {
namespace {

struct FloatGemm : Arguments {
  // spaced: rows of x with a stride that is no power of two. table: codebooks as f32. panels: one per thread.
  float* spaced;
  float* table;
  float* panels;
  size_t stride;
  uint32_t rows_per_tile, x_tiles;
};
static_assert(sizeof(FloatGemm) <= kArgsMax);

// Decodes a group of a row of weights from its codes. `Books`: codebooks of 256 vectors of 8 inputs; 0 for any form.
template <class Code, uint32_t Books>
inline void decode_group(const FloatGemm& p, const Code* codes, const float* vectors, float scale, float* to) {
  const Codes& w = p.codes;
  const bool any = Books == 0;
  const uint32_t books = any ? w.codebooks : Books, inputs = any ? w.in_group : 8, mask = any ? w.mask : 255;
  const size_t length = any ? static_cast<size_t>(w.out_group) * w.in_group : 8, next = (size_t{mask} + 1) * length;
  for (uint32_t c = 0; c < inputs; c += 8) {
    float sums[8] = {};
    const float* from = vectors + c;
    for (uint32_t book = 0; book < books; book++, from += next) {
      const float* vector = from + (codes[book * kTile] & mask) * length;
      for (uint32_t j = 0; j < 8; j++) sums[j] += vector[j];
    }
    for (uint32_t j = 0; j < 8; j++) to[c + j] = scale * sums[j];
  }
}

// Decodes rows `first` .. `first + count - 1` of the weights to a panel [k][kPanelColumns]; further columns are zeros.
template <class Isa, class Code, uint32_t Books>
void decode_panel(const FloatGemm& p, uint32_t first, uint32_t count, float* panel) {
  constexpr uint32_t kLanes = Isa::kLanes, kGroupsAtOnce = kLanes > 8 ? kLanes / 8 : 1;
  const Codes& w = p.codes;
  float values[kLanes][kGroupsAtOnce * kInGroupMax] = {};
  for (uint32_t half = 0; half < 2; half++)
    for (uint32_t g = 0; g < w.groups; g += kGroupsAtOnce) {
      const uint32_t groups = std::min(kGroupsAtOnce, w.groups - g), block = g / kBlock, length = groups * w.in_group;
      for (uint32_t i = 0; i < kLanes && half * kLanes + i < count; i++) {
        const uint32_t row = first + half * kLanes + i, output = row / w.out_group;
        const Code* codes = reinterpret_cast<const Code*>(w.tile(block, output / kTile)) +
                            g % kBlock * w.codebooks * kTile + lane_of(output % kTile);
        const float* vectors = p.table + row % w.out_group * w.in_group;
        const float scale = float_at(p.scales, p.half_scales, output);
        for (uint32_t part = 0; part < groups; part++, codes += w.codebooks * kTile)
          decode_group<Code, Books>(p, codes, vectors, scale, values[i] + part * w.in_group);
      }
      for (uint32_t c = 0; c < length; c += kLanes) {
        typename Isa::V v[kLanes];
        for (uint32_t i = 0; i < kLanes; i++) v[i] = Isa::load(values[i] + c);
        transpose<Isa>(v);
        float* target = panel + (static_cast<size_t>(g) * w.in_group + c) * kPanelColumns<Isa> + half * kLanes;
        for (uint32_t i = 0; i < std::min(kLanes, length - c); i++) Isa::store(target + i * kPanelColumns<Isa>, v[i]);
      }
    }
}

static inline void copy_inputs(const FloatGemm& p, uint32_t tile) {
  const uint32_t last = std::min(p.m, (tile + 1) * p.rows_per_tile);
  for (uint32_t row = tile * p.rows_per_tile; row < last; row++)
    memcpy(p.spaced + row * p.stride, p.x + static_cast<size_t>(row) * p.codes.k, 4 * static_cast<size_t>(p.codes.k));
}

static inline void copy_codebooks(const FloatGemm& p, uint32_t tile) {
  const size_t first = tile * kValuesAtOnce, last = std::min(p.codes.vector_values(), first + kValuesAtOnce);
  for (size_t i = first; i < last; i++) p.table[i] = float_at(p.vectors, p.half_vectors, i);
}

template <class Isa>
void float_gemm_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread) {
  const FloatGemm& p = step.as<FloatGemm>();
  if (phase == 0) {
    if (tile < p.x_tiles) copy_inputs(p, tile);
    else copy_codebooks(p, tile - p.x_tiles);
    return;
  }
  const Codes& w = p.codes;
  const uint32_t first = tile * kPanelColumns<Isa>, count = std::min(kPanelColumns<Isa>, w.n - first);
  float* panel = p.panels + static_cast<size_t>(thread) * kPanelColumns<Isa> * w.k;
  const bool is_2x8 = w.codebooks == 2 && w.mask == 255 && w.in_group == 8 && w.out_group == 1;
  if (is_2x8) decode_panel<Isa, uint8_t, 2>(p, first, count, panel);
  else if (w.code_bytes == 1) decode_panel<Isa, uint8_t, 0>(p, first, count, panel);
  else decode_panel<Isa, uint16_t, 0>(p, first, count, panel);
  multiply_panel<Isa, OneSum<Isa>>(
      {p.spaced, p.stride, panel, p.bias ? p.bias + first : nullptr, p.y + first, w.n, p.m, w.k, count, nullptr, 0});
}

static inline FloatGemm read_float_gemm(const Call& call) {
  FloatGemm p{read_arguments(call)};
  p.stride = static_cast<size_t>(p.codes.k) + 16;
  p.rows_per_tile = ceil_div(p.m, 4 * call.threads);
  p.x_tiles = ceil_div(p.m, p.rows_per_tile);
  return p;
}

template <class Isa>
size_t float_gemm_scratch(const Call& call) {
  const FloatGemm p = read_float_gemm(call);
  const size_t panels = static_cast<size_t>(call.threads) * kPanelColumns<Isa> * p.codes.k;
  return 4 * (p.m * p.stride + p.codes.vector_values() + panels);
}

template <class Isa>
void float_gemm_prepare(Step& step, const Call& call) {
  const auto given = arguments_of<AqlmArguments>(call);
  FloatGemm& p = step.init<FloatGemm>();
  p = read_float_gemm(call);
  p.spaced = static_cast<float*>(given.scratch);
  p.table = p.spaced + p.m * p.stride;
  p.panels = p.table + p.codes.vector_values();
  step.phases = 2;
  step.tiles[0] = p.x_tiles + p.codes.vector_tiles();
  step.tiles[1] = ceil_div(p.codes.n, kPanelColumns<Isa>);
  step.run = float_gemm_run<Isa>;
}

}  // namespace
}  // namespace aqlm
}  // namespace lowbit
