// AQLM for 8-bit codes by lookup tables in f32: vector . x is computed once per vector and looked up for each output.
// Plain loops that every compiler vectorizes.
#pragma once

#include "codes.h"

namespace lowbit {
namespace aqlm {
namespace {

// Transposes codebooks to f32 [codebooks][in_group][256], so that tables are built a vector of entries at a time.
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

// Tables that fit the first-level cache, and tiles by which codes are prefetched ahead.
constexpr uint32_t kTablesAtOnce = 16, kTilesAhead = 2;

// Builds tables first .. first + count - 1 of a block's [groups][codebooks][256].
static inline void build_tables(const Product& p, const float* x, uint32_t first, uint32_t count, float* tables) {
  const uint32_t length = p.codes.in_group;
  for (uint32_t row = first; row < first + count; row++, tables += kEntries) {
    const float* from =
        reinterpret_cast<const float*>(p.prepared) + size_t{row % p.codes.codebooks} * length * kEntries;
    for (uint32_t e = 0; e < kEntries; e += kEntriesAtOnce)
      build_entries(from + e, x + row / p.codes.codebooks * length, length, tables + e);
  }
}

// Keeps compilers from making a value a lane of a vector, which they would gather lane by lane.
static inline void keep_apart(float& value) {
#if defined(__aarch64__)
  asm("" : "+w"(value));
#else
  asm("" : "+x"(value));
#endif
}

// Adds the entries of a tile's codes to y. Sums of eight outputs, alternating between the halves of the tile, stay in
// registers.
static inline void look_up(const uint8_t* codes, const float* tables, uint32_t rows, float* y) {
  for (uint32_t lane = 0; lane < kTile; lane += 8, y += 4) {
    float sums[8];
    for (uint32_t i = 0; i < 8; i++) sums[i] = y[i % 2 * kTile / 2 + i / 2];
    const uint8_t* from = codes + lane;
    const float* table = tables;
    for (uint32_t row = 0; row < rows; row++, from += kTile, table += kEntries) {
      uint64_t eight;
      memcpy(&eight, from, 8);
      for (uint32_t i = 0; i < 8; i++) {
        sums[i] += table[eight >> 8 * i & 255];
        keep_apart(sums[i]);
      }
    }
    for (uint32_t i = 0; i < 8; i++) y[i % 2 * kTile / 2 + i / 2] = sums[i];
  }
}

static inline void table_item(const Product& p, const Item& item, float* tables) {
  for (uint32_t row = 0; row < p.m; row++) {
    float* y = p.slice_sums(item.slice, row);
    memset(y + item.first_tile * kTile, 0, sizeof(float) * (item.last_tile - item.first_tile) * kTile);
    for (uint32_t block = item.first_block; block < item.last_block; block++) {
      const float* x = p.x + size_t{row} * p.codes.k + size_t{block} * kBlock * p.codes.in_group;
      const uint32_t rows = p.codes.block_groups(block) * p.codes.codebooks;
      for (uint32_t first = 0; first < rows; first += kTablesAtOnce) {
        const uint32_t count = std::min(kTablesAtOnce, rows - first);
        build_tables(p, x, first, count, tables);
        for (uint32_t tile = item.first_tile; tile < item.last_tile; tile++) {
          const uint8_t* codes = p.codes.tile(block, tile) + first * kTile;
          for (uint32_t i = 0; i < count; i++) __builtin_prefetch(codes + (kTilesAhead * rows + i) * kTile);
          look_up(codes, tables, count, y + tile * kTile);
        }
      }
    }
  }
}

static inline Memory table_memory(const Codes& codes) {
  return {4 * static_cast<size_t>(codes.codebooks) * codes.in_group * kEntries, 4 * size_t{kTablesAtOnce} * kEntries};
}

static inline size_t table_scratch(const Call& call) {
  const auto given = arguments_of<AqlmArguments>(call);
  const Codes codes = read_codes(given.codes);
  return product_bytes(codes, given.m, call.threads, table_memory(codes));
}

static inline void table_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread) {
  const Product& p = step.as<Product>();
  if (phase == 0) transpose_vectors(p, tile);
  else if (phase == 1) table_item(p, item_at(p, tile), reinterpret_cast<float*>(p.own + thread * p.own_bytes));
  else add_slices(p, tile, step.tiles[2]);
}

static inline void table_prepare(Step& step, const Call& call) {
  const auto given = arguments_of<AqlmArguments>(call);
  Product& p = init_product(step, call, table_memory(read_codes(given.codes)));
  split_product(step, p, call.threads, 1);
  step.tiles[0] = p.codes.codebooks;
  step.run = table_run;
}

}  // namespace
}  // namespace aqlm
}  // namespace lowbit
