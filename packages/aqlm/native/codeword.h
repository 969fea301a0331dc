// AQLM with whole vectors of the codebooks: exact in f32, for weights of any form. An `Isa` supplies eight floats,
// `Outputs` the vectors of several outputs side by side.
#pragma once

#include "codes.h"

namespace lowbit {
namespace aqlm {
namespace {

// Rows of x that share one decoding of the weights.
constexpr uint32_t kRowsAtOnce = 8;

template <class Isa, uint32_t Rows, class Code, class Vector>
inline void codeword_rows(const Product& p, const Item& item, uint32_t row) {
  using F8 = typename Isa::F8;
  const Codes& w = p.codes;
  const Vector* vectors = static_cast<const Vector*>(p.table);
  const uint32_t vector_length = w.out_group * w.in_group;
  const size_t codebook_length = static_cast<size_t>(w.entries()) * vector_length;
  for (uint32_t tile = item.first_tile; tile < item.last_tile; tile++) {
    for (uint32_t place = 0; place < kTile; place++) {
      const uint32_t output = tile * kTile + place;
      if (output * w.out_group >= w.n) break;
      const uint32_t lane = lane_of(place);
      for (uint32_t r = 0; r < w.out_group; r++) {
        F8 sums[Rows];
        for (uint32_t i = 0; i < Rows; i++) sums[i] = Isa::zero();
        for (uint32_t block = item.first_block; block < item.last_block; block++) {
          const Code* codes = reinterpret_cast<const Code*>(w.tile(block, tile)) + lane;
          const float* x = p.x + static_cast<size_t>(row) * w.k + static_cast<size_t>(block) * kBlock * w.in_group;
          for (uint32_t g = w.block_groups(block); g > 0; g--, x += w.in_group, codes += w.codebooks * kTile) {
            for (uint32_t j = 0; j < w.in_group; j += 8) {
              F8 value = Isa::zero();
              for (uint32_t c = 0; c < w.codebooks; c++) {
                const uint32_t code = codes[c * kTile] & w.mask;
                value = Isa::add(value,
                                 Isa::load(vectors + c * codebook_length + code * vector_length + r * w.in_group + j));
              }
              for (uint32_t i = 0; i < Rows; i++)
                sums[i] = Isa::multiply_add(value, Isa::load(x + static_cast<size_t>(i) * w.k + j), sums[i]);
            }
          }
        }
        for (uint32_t i = 0; i < Rows; i++)
          p.slice_sums(item.slice, row + i)[output * w.out_group + r] = Isa::sum(sums[i]);
      }
    }
  }
}

// Vectors of one output at a time.
template <class Isa>
struct SingleOutputs {
  static constexpr uint32_t kOutputs = 1;
  using V = typename Isa::F8;
  static V zero() { return Isa::zero(); }
  template <class Vector>
  static V load(const Vector* vectors, const uint32_t* offsets) {
    return Isa::load(vectors + offsets[0]);
  }
  static V load_x(const float* x) { return Isa::load(x); }
  static V multiply_add(V a, V b, V c) { return Isa::multiply_add(a, b, c); }
  static void store_sums(V sums, float* to) { to[0] = Isa::sum(sums); }
};

// Offsets of the vectors of a block's codes, [groups][lanes]. Prefetches the codes of the next tile.
template <class Code>
inline void vector_offsets(const Codes& w, uint32_t block, uint32_t tile, uint32_t (*offsets)[kTile]) {
  const Code* codes = reinterpret_cast<const Code*>(w.tile(block, tile));
  const uint32_t groups = w.block_groups(block);
  for (uint32_t g = 0; g < groups; g++, codes += kTile) {
    for (uint32_t lane = 0; lane < kTile; lane++) offsets[g][lane] = (codes[lane] & w.mask) * 8;
    for (uint32_t at = 0; at < kTile * sizeof(Code); at += 64)
      __builtin_prefetch(reinterpret_cast<const char*>(codes + groups * kTile) + at);
  }
}

// For one codebook of vectors of 8 inputs and one output. Offsets are computed ahead of the loads of vectors, which
// come from the second-level cache, so that many loads are outstanding at once.
template <class Outputs, uint32_t Rows, class Code, class Vector>
inline void single_vector_rows(const Product& p, const Item& item, uint32_t row) {
  using V = typename Outputs::V;
  constexpr uint32_t kSteps = kTile / Outputs::kOutputs;
  const Codes& w = p.codes;
  const Vector* vectors = static_cast<const Vector*>(p.table);
  uint32_t offsets[kBlock][kTile];
  for (uint32_t tile = item.first_tile; tile < item.last_tile; tile++) {
    V sums[kSteps][Rows];
    for (auto& step : sums)
      for (auto& sum : step) sum = Outputs::zero();
    for (uint32_t block = item.first_block; block < item.last_block; block++) {
      vector_offsets<Code>(w, block, tile, offsets);
      const uint32_t groups = w.block_groups(block);
      const float* x = p.x + static_cast<size_t>(row) * w.k + static_cast<size_t>(block) * kBlock * 8;
      for (uint32_t step = 0; step < kSteps; step++) {
        V own[Rows];
        for (uint32_t i = 0; i < Rows; i++) own[i] = sums[step][i];
        for (uint32_t g = 0; g < groups; g++) {
          const V value = Outputs::load(vectors, offsets[g] + step * Outputs::kOutputs);
          for (uint32_t i = 0; i < Rows; i++)
            own[i] = Outputs::multiply_add(value, Outputs::load_x(x + static_cast<size_t>(i) * w.k + 8 * g), own[i]);
        }
        for (uint32_t i = 0; i < Rows; i++) sums[step][i] = own[i];
      }
    }
    for (uint32_t i = 0; i < Rows; i++) {
      float totals[kTile];
      for (uint32_t step = 0; step < kSteps; step++)
        Outputs::store_sums(sums[step][i], totals + step * Outputs::kOutputs);
      float* y = p.slice_sums(item.slice, row + i) + tile * kTile;
      for (uint32_t place = 0; place < kTile; place++) y[place] = totals[lane_of(place)];
    }
  }
}

template <class Isa, class Outputs, uint32_t Rows, class Code, class Vector>
inline void rows_at_once(const Product& p, const Item& item, uint32_t row) {
  const Codes& w = p.codes;
  if (w.codebooks == 1 && w.in_group == 8 && w.out_group == 1)
    single_vector_rows<Outputs, Rows, Code, Vector>(p, item, row);
  else codeword_rows<Isa, Rows, Code, Vector>(p, item, row);
}

template <class Isa, class Outputs, class Code, class Vector>
void codeword_item(const Product& p, const Item& item) {
  uint32_t row = 0;
  for (; row + kRowsAtOnce <= p.m; row += kRowsAtOnce)
    rows_at_once<Isa, Outputs, kRowsAtOnce, Code, Vector>(p, item, row);
  for (; row + 4 <= p.m; row += 4) rows_at_once<Isa, Outputs, 4, Code, Vector>(p, item, row);
  for (; row < p.m; row++) rows_at_once<Isa, Outputs, 1, Code, Vector>(p, item, row);
}

constexpr size_t kConvertAtOnce = 1 << 16;

// Converts codebooks to f32 where the instruction set cannot convert as it loads.
static inline void convert_vectors(const Product& p, uint32_t tile) {
  const size_t first = tile * kConvertAtOnce, last = std::min(p.codes.vector_values(), first + kConvertAtOnce);
  float* target = reinterpret_cast<float*>(p.prepared);
  for (size_t i = first; i < last; i++) target[i] = float_at(p.vectors, true, i);
}

template <class Isa, class Outputs, class Code, class Vector>
void codeword_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t) {
  const Product& p = step.as<Product>();
  if (phase == 0) convert_vectors(p, tile);
  else if (phase == 1) codeword_item<Isa, Outputs, Code, Vector>(p, item_at(p, tile));
  else add_slices(p, tile, step.tiles[2]);
}

template <class Isa>
bool converts_first(const Call& call) {
  const auto given = arguments_of<AqlmArguments>(call);
  return !Isa::kConverts && given.vectors_are_half;
}

template <class Isa>
Memory codeword_memory(const Call& call) {
  const auto given = arguments_of<AqlmArguments>(call);
  return {converts_first<Isa>(call) ? 4 * read_codes(given.codes).vector_values() : 0, 0};
}

template <class Isa>
size_t codeword_scratch(const Call& call) {
  const auto given = arguments_of<AqlmArguments>(call);
  return product_bytes(read_codes(given.codes), given.m, call.threads, codeword_memory<Isa>(call));
}

template <class Isa, class Outputs = SingleOutputs<Isa>>
void codeword_prepare(Step& step, const Call& call) {
  Product& p = init_product(step, call, codeword_memory<Isa>(call));
  split_product(step, p, call.threads, 1);
  const bool first = converts_first<Isa>(call);
  step.tiles[0] = first ? static_cast<uint32_t>((p.codes.vector_values() + kConvertAtOnce - 1) / kConvertAtOnce) : 0;
  if (first) p.table = p.prepared;
  const bool halves = p.half_vectors && !first;
  if (p.codes.code_bytes == 1)
    step.run = halves ? codeword_run<Isa, Outputs, uint8_t, uint16_t> : codeword_run<Isa, Outputs, uint8_t, float>;
  else step.run = halves ? codeword_run<Isa, Outputs, uint16_t, uint16_t> : codeword_run<Isa, Outputs, uint16_t, float>;
}

}  // namespace
}  // namespace aqlm
}  // namespace lowbit
