// Activations quantized for panel16 weights: where they lie in scratch.
#pragma once

#include "../../panels.h"

namespace lowbit {

// Whether activations have a scale and a zero point a row, or a scale for each block of columns.
enum class Granularity { kRow, kBlock };

// Columns that share a scale where activations have one a block, at most.
constexpr uint32_t kBlockColumns = 32;

// Of a block: what sums of products start from, or the sum of the values where zero points are part of those; and what
// the weights' scale is times, the scale of activations in blocks, else 1.
struct BlockNumbers {
  int32_t sum;
  float factor;
};

// Activations quantized to int8 for panel16 weights: rows of `stride` values (groups padded with zeros). What follows
// is of each row and block: groups that share a scale of weights are a block where activations have one scale a row,
// else one or more.
struct QuantizedRows {
  int8_t* values;
  BlockNumbers* numbers;
  // Minus the sum of the values, times the factor; only for weights with zero points or minima.
  float* offsets;
  // Of each row where they have one scale.
  float* scales;
  int32_t* zeros;
  // Columns of a block as they are stored, blocks of a group that shares a scale of weights, and of a row.
  uint32_t block_length, blocks, block_count;
  bool in_blocks;

  // Places of a row: those of the weights, but for groups of no whole blocks, which TorchAO's layout has.
  size_t stride() const { return size_t{block_count} * block_length; }

  // Fills in all sizes.
  void size(const Panel16& w, Granularity granularity) {
    in_blocks = granularity == Granularity::kBlock;
    const uint32_t length = w.part_length();
    block_length = in_blocks && length > kBlockColumns ? kBlockColumns : length;
    blocks = (length + block_length - 1) / block_length;
    block_count = blocks * w.part_count();
  }

  // Places the parts for m rows from an address on; gives their bytes.
  size_t place(uint8_t* start, uint32_t m, const Panel16& w) {
    uint8_t* at = start;
    auto take = [&](size_t bytes) { return (at += round_up(bytes, 64)) - round_up(bytes, 64); };
    const size_t count = static_cast<size_t>(m) * block_count;
    values = reinterpret_cast<int8_t*>(take(m * stride()));
    numbers = reinterpret_cast<BlockNumbers*>(take(count * sizeof(BlockNumbers)));
    offsets = reinterpret_cast<float*>(take(w.has_offsets ? 4 * count : 0));
    scales = reinterpret_cast<float*>(take(in_blocks ? 0 : 4 * static_cast<size_t>(m)));
    zeros = reinterpret_cast<int32_t*>(take(in_blocks ? 0 : 4 * static_cast<size_t>(m)));
    return static_cast<size_t>(at - start);
  }
};

static inline size_t quantized_bytes(uint32_t m, const Panel16& w, Granularity granularity) {
  QuantizedRows rows;
  rows.size(w, granularity);
  return rows.place(nullptr, m, w);
}

static inline QuantizedRows quantized_rows(void* scratch, uint32_t m, const Panel16& w, Granularity granularity) {
  QuantizedRows rows;
  rows.size(w, granularity);
  rows.place(static_cast<uint8_t*>(scratch), m, w);
  return rows;
}

}  // namespace lowbit
