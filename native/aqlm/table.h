// Products through tables of sums in float32, for codes of 8 bits: vector . x is computed once for each vector and
// looked up for each output. Plain loops that every compiler vectorises.
#pragma once

#include "codes.h"

namespace lowbit {
namespace aqlm {
namespace {

// Codebooks as f32 [codebooks][in_group][256], so that tables are built a vector of entries at a time.
static inline void transpose_vectors(const Product& p, uint32_t codebook) {
  const uint32_t length = p.codes.in_group;
  float* target = reinterpret_cast<float*>(p.prepared) + static_cast<size_t>(codebook) * length * kEntries;
  for (uint32_t e = 0; e < kEntries; e++)
    for (uint32_t j = 0; j < length; j++)
      target[j * kEntries + e] = float_at(p.vectors, p.half_vectors, (codebook * kEntries + e) * length + j);
}

// Entries whose sums stay in registers.
constexpr uint32_t kEntriesAtOnce = 32;

static inline void build_entries(const float* vectors, const float* x, uint32_t length, float* __restrict table) {
  float sums[kEntriesAtOnce] = {};
  for (uint32_t j = 0; j < length; j++)
    for (uint32_t e = 0; e < kEntriesAtOnce; e++) sums[e] += x[j] * vectors[j * kEntries + e];
  memcpy(table, sums, sizeof sums);
}

// Tables [groups][codebooks][256] of a block.
static inline void build_tables(const Product& p, uint32_t block, const float* x, float* tables) {
  const uint32_t length = p.codes.in_group;
  const float* vectors = reinterpret_cast<const float*>(p.prepared);
  for (uint32_t g = 0; g < p.codes.block_groups(block); g++, x += length) {
    for (uint32_t c = 0; c < p.codes.codebooks; c++, tables += kEntries) {
      const float* from = vectors + static_cast<size_t>(c) * length * kEntries;
      for (uint32_t e = 0; e < kEntries; e += kEntriesAtOnce) build_entries(from + e, x, length, tables + e);
    }
  }
}

// The sums of a tile, four rows of codes at a time.
static inline void look_up(const uint8_t* codes, const float* tables, uint32_t rows, float* sums) {
  uint32_t row = 0;
  for (; row + 4 <= rows; row += 4, codes += 4 * kTile, tables += 4 * kEntries)
    for (uint32_t lane = 0; lane < kTile; lane++)
      sums[lane] += (tables[codes[lane]] + tables[kEntries + codes[kTile + lane]]) +
                    (tables[2 * kEntries + codes[2 * kTile + lane]] + tables[3 * kEntries + codes[3 * kTile + lane]]);
  for (; row < rows; row++, codes += kTile, tables += kEntries)
    for (uint32_t lane = 0; lane < kTile; lane++) sums[lane] += tables[codes[lane]];
}

static inline void table_item(const Product& p, const Item& item, float* tables) {
  for (uint32_t row = 0; row < p.m; row++) {
    const float* x = p.x + static_cast<size_t>(row) * p.codes.k;
    float* target = p.slice_sums(item.slice, row);
    for (uint32_t block = item.first_block; block < item.last_block; block++) {
      build_tables(p, block, x + static_cast<size_t>(block) * kBlock * p.codes.in_group, tables);
      const uint32_t rows = p.codes.block_groups(block) * p.codes.codebooks;
      for (uint32_t tile = item.first_tile; tile < item.last_tile; tile++) {
        float sums[kTile] = {};
        look_up(p.codes.tile(block, tile), tables, rows, sums);
        float* y = target + tile * kTile;
        const bool first = block == item.first_block;
        for (uint32_t i = 0; i < kTile / 2; i++) {
          y[i] = (first ? 0 : y[i]) + sums[2 * i];
          y[kTile / 2 + i] = (first ? 0 : y[kTile / 2 + i]) + sums[2 * i + 1];
        }
      }
    }
  }
}

static inline Memory table_memory(const Codes& codes) {
  return {4 * static_cast<size_t>(codes.codebooks) * codes.in_group * kEntries,
          4 * static_cast<size_t>(kBlock) * codes.codebooks * kEntries};
}

static inline size_t table_scratch(const Call& call) {
  const Codes codes = read_codes(call.buffers[1]);
  return product_bytes(codes, static_cast<uint32_t>(call.scalars[0]), call.threads, table_memory(codes));
}

static inline void table_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread) {
  const Product& p = step.as<Product>();
  if (phase == 0) transpose_vectors(p, tile);
  else if (phase == 1) table_item(p, item_at(p, tile), reinterpret_cast<float*>(p.own + thread * p.own_bytes));
  else add_slices(p, tile, step.tiles[2]);
}

static inline void table_prepare(Step& step, const Call& call) {
  Product& p = init_product(step, call, table_memory(read_codes(call.buffers[1])));
  split_product(step, p, call.threads, 1);
  step.tiles[0] = p.codes.codebooks;
  step.run = table_run;
}

}  // namespace
}  // namespace aqlm
}  // namespace lowbit
