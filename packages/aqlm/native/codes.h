// Geometry of packed AQLM codes (Egiazarian et al. 2024), described in packages/aqlm/src/layout.ts, and how a product
// is split among threads.
//
// y[o] = scale[o] * sum over groups g, codebooks c of vector[c][code[o][g][c]] . x[g] + bias[o]
//
// Inputs are split into slices, by the sizes only. Each slice has its own sums, which are added in order: the result is
// the same for any number of threads, and no two threads write to the same place.
#pragma once

#include <algorithm>
#include <cstring>

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "arguments.h"
#include "half.h"

namespace lowbit {
namespace aqlm {
// Anonymous namespace: each file that includes this needs its own copy, since a shared one would be compiled for just
// one of their instruction sets.
namespace {

// Outputs of a tile and input groups of a block, as TILE and BLOCK in packages/aqlm/src/layout.ts.
constexpr uint32_t kTile = 64, kBlock = 16;
constexpr uint32_t kHeaderBytes = 64;
// Alignment of each part of the scratch.
constexpr size_t kAlignment = kScratchAlignment;
// Most inputs of a group, as GROUP_MAX in packages/aqlm/src/form.ts; and vectors of a codebook with 8-bit codes.
constexpr uint32_t kInGroupMax = 64, kEntries = 256;
// Codebook values converted per work item.
constexpr size_t kValuesAtOnce = 1 << 16;
// Most slices of the inputs. bench/aqlm-split.cc compares with one slice, where threads share the outputs.
#if defined(LOWBIT_AQLM_SLICES)
constexpr uint32_t kSlices = LOWBIT_AQLM_SLICES;
#else
constexpr uint32_t kSlices = 8;
#endif

struct Codes {
  const uint8_t* codes;
  // Sizes of the weights; a code stands for a vector of `in_group` inputs by `out_group` outputs.
  uint32_t n, k, code_bytes, codebooks, in_group, out_group, mask;
  // Numbers of input groups, of blocks of them, and of tiles of outputs.
  uint32_t groups, blocks, tiles;

  uint32_t entries() const { return mask + 1; }
  // Values of all codebooks.
  size_t vector_values() const { return size_t{codebooks} * entries() * out_group * in_group; }
  uint32_t vector_tiles() const { return static_cast<uint32_t>((vector_values() + kValuesAtOnce - 1) / kValuesAtOnce); }
  uint32_t block_groups(uint32_t block) const { return std::min(kBlock, groups - block * kBlock); }
  // Codes of a tile in a block: rows of kTile codes, one for each group and codebook.
  const uint8_t* tile(uint32_t block, uint32_t index) const {
    const size_t row = static_cast<size_t>(block) * kBlock * tiles + static_cast<size_t>(index) * block_groups(block);
    return codes + row * codebooks * kTile * code_bytes;
  }
};

// Reads the header of a buffer, which TypeScript has checked.
static inline Codes read_codes(const void* buffer) {
  const uint8_t* bytes = static_cast<const uint8_t*>(buffer);
  Codes codes{};
  codes.codes = bytes + kHeaderBytes;
  codes.code_bytes = bytes[6];
  codes.codebooks = bytes[7];
  codes.mask = (1u << bytes[8]) - 1;
  codes.in_group = bytes[9];
  codes.out_group = bytes[10];
  memcpy(&codes.n, bytes + 16, 4);
  memcpy(&codes.k, bytes + 20, 4);
  codes.groups = codes.k / codes.in_group;
  codes.blocks = ceil_div(codes.groups, kBlock);
  codes.tiles = ceil_div(codes.n / codes.out_group, kTile);
  return codes;
}

// Place of an output in a row of codes.
static inline uint32_t lane_of(uint32_t output) { return output < kTile / 2 ? 2 * output : 2 * output + 1 - kTile; }

// Arguments of all kernels.
struct Arguments {
  Codes codes;
  const float* x;
  const void* vectors;
  const void* scales;
  const float* bias;
  float* y;
  uint32_t m;
  bool half_vectors, half_scales;
};

static inline Arguments read_arguments(const Call& call) {
  const auto given = arguments_of<AqlmArguments>(call);
  Arguments a{};
  a.codes = read_codes(given.codes);
  a.x = given.x;
  a.vectors = given.vectors;
  a.scales = given.scales;
  a.bias = given.bias;
  a.y = given.y;
  a.m = given.m;
  a.half_vectors = given.vectors_are_half;
  a.half_scales = given.scales_are_half;
  return a;
}

struct Product : Arguments {
  // Blocks per slice and tiles per chunk of outputs; a work item is one slice of one chunk.
  uint32_t slice_blocks, slices, chunk_tiles, chunks;
  // The codebooks that work items read: as stored, or as prepared in the first phase.
  const void* table;
  // Scratch: prepared codebooks, sums [slices][m][outputs padded to tiles], memory of each thread.
  uint8_t* prepared;
  float* sums;
  uint8_t* own;
  size_t own_bytes;

  uint32_t padded_n() const { return codes.tiles * kTile * codes.out_group; }
  float* slice_sums(uint32_t slice, uint32_t row) const {
    return sums + (static_cast<size_t>(slice) * m + row) * padded_n();
  }
};

// Bytes that a kernel needs for prepared codebooks, and per thread.
struct Memory {
  size_t prepared, own;
};

static inline size_t sums_bytes(const Codes& codes, uint32_t m) {
  const uint32_t slices = ceil_div(codes.blocks, ceil_div(codes.blocks, kSlices));
  return round_up(static_cast<size_t>(4) * slices * m * codes.tiles * kTile * codes.out_group, kAlignment);
}

static inline size_t product_bytes(const Codes& codes, uint32_t m, uint32_t threads, Memory memory) {
  return round_up(memory.prepared, kAlignment) + sums_bytes(codes, m) + threads * round_up(memory.own, kAlignment);
}

static inline Product& init_product(Step& step, const Call& call, Memory memory) {
  const auto given = arguments_of<AqlmArguments>(call);
  Product& p = step.init<Product>();
  p = Product{read_arguments(call)};
  p.table = p.vectors;
  p.prepared = static_cast<uint8_t*>(given.scratch);
  p.sums = reinterpret_cast<float*>(p.prepared + round_up(memory.prepared, kAlignment));
  p.own = reinterpret_cast<uint8_t*>(p.sums) + sums_bytes(p.codes, p.m);
  p.own_bytes = round_up(memory.own, kAlignment);
  return p;
}

// Splits the product into slices and, where these are too few for the threads, into chunks of at least `chunk_step`
// tiles.
static inline void split_product(Step& step, Product& p, uint32_t threads, uint32_t chunk_step) {
  const Codes& codes = p.codes;
  p.slice_blocks = ceil_div(codes.blocks, kSlices);
  p.slices = ceil_div(codes.blocks, p.slice_blocks);
  const uint32_t wanted = ceil_div(threads > 1 ? 3 * threads : 1, p.slices);
  p.chunk_tiles = static_cast<uint32_t>(round_up(ceil_div(codes.tiles, wanted), chunk_step));
  p.chunks = ceil_div(codes.tiles, p.chunk_tiles);
  step.phases = 3;
  step.tiles[1] = p.slices * p.chunks;
  step.tiles[2] = std::min(codes.tiles, 4 * threads);
}

// Blocks and tiles of a work item.
struct Item {
  uint32_t slice, first_block, last_block, first_tile, last_tile;
};

static inline Item item_at(const Product& p, uint32_t index) {
  Item item;
  item.slice = index / p.chunks;
  item.first_block = item.slice * p.slice_blocks;
  item.last_block = std::min(p.codes.blocks, item.first_block + p.slice_blocks);
  item.first_tile = index % p.chunks * p.chunk_tiles;
  item.last_tile = std::min(p.codes.tiles, item.first_tile + p.chunk_tiles);
  return item;
}

static inline float float_at(const void* data, bool is_half, size_t index) {
  if (!is_half) return static_cast<const float*>(data)[index];
  return half_to_float(static_cast<const uint16_t*>(data)[index]);
}

static inline void halves_to_floats(const uint16_t* halves, uint32_t count, float* to) {
  uint32_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= count; i += 8)
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(halves + i))));
#endif
  for (; i < count; i++) to[i] = half_to_float(halves[i]);
}

// Last phase: adds the slices, multiplies by the scales and adds the bias, in loops that compilers vectorize.
static inline void add_slices(const Product& p, uint32_t part, uint32_t parts) {
  const uint32_t n = p.codes.n, out_group = p.codes.out_group;
  const uint32_t step = ceil_div(ceil_div(n, kTile), parts) * kTile;
  const uint32_t first = std::min(n, part * step), last = std::min(n, first + step);
  const size_t stride = static_cast<size_t>(p.m) * p.padded_n();
  for (uint32_t row = 0; row < p.m; row++) {
    const float* sums = p.slice_sums(0, row);
    for (uint32_t start = first; start < last; start += kTile) {
      const uint32_t count = std::min(kTile, last - start);
      float scales[kTile], totals[kTile] = {};
      for (uint32_t slice = 0; slice < p.slices; slice++) {
        const float* from = sums + slice * stride + start;
        for (uint32_t i = 0; i < kTile; i++) totals[i] += from[i];
      }
      if (out_group == 1 && p.half_scales)
        halves_to_floats(static_cast<const uint16_t*>(p.scales) + start, count, scales);
      else
        for (uint32_t i = 0; i < count; i++) scales[i] = float_at(p.scales, p.half_scales, (start + i) / out_group);
      float* y = p.y + static_cast<size_t>(row) * n + start;
      for (uint32_t i = 0; i < count; i++) y[i] = totals[i] * scales[i];
      if (p.bias)
        for (uint32_t i = 0; i < count; i++) y[i] += p.bias[start + i];
    }
  }
}

}  // namespace
}  // namespace aqlm
}  // namespace lowbit
