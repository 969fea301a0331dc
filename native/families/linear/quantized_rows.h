// Layout in scratch of activations quantized for panel16 weights.
#pragma once

#include "../../panels.h"

namespace lowbit {

// Activations have a scale and a zero point per row, or a scale per block of columns.
enum class Granularity { kRow, kBlock };

// Most columns of a block of activations.
constexpr uint32_t kBlockColumns = 32;

// Numbers of a block of activations. sum: what the integer sums of products start with; where zero points are part of
// these, the sum of the activations. factor: the block's scale, which multiplies the scales of weights, or 1 where rows
// have scales.
struct BlockNumbers {
  int32_t sum;
  float factor;
};

// int8 activations: rows of `stride` values, groups padded with zeros. Numbers are [row][block]. With a scale per row,
// a block is a group of weights that share a scale; otherwise such a group has one block or more.
struct QuantizedRows {
  int8_t* values;
  BlockNumbers* numbers;
  // Minus the sum of the values, times the factor; only for weights with zero points or minima.
  float* offsets;
  // BlockNumbers::sum for weights whose zero point is that of odd scales; only where there is one.
  int32_t* odd_sums;
  // Scales and zero points [row]; only with a scale per row.
  float* scales;
  int32_t* zeros;
  // Stored columns of a block, blocks per group that shares a scale of weights, and blocks per row.
  uint32_t block_length, blocks, block_count;
  bool in_blocks;

  // Bytes of a row: the weights' padded columns, and more where groups are no whole blocks, as in TorchAO's layout.
  size_t stride() const { return size_t{block_count} * block_length; }

  // Sets all sizes.
  void size(const Panel16& w, Granularity granularity) {
    in_blocks = granularity == Granularity::kBlock;
    const uint32_t length = w.part_length();
    block_length = in_blocks && length > kBlockColumns ? kBlockColumns : length;
    blocks = (length + block_length - 1) / block_length;
    block_count = blocks * w.part_count();
  }

  // Places the arrays for m rows from an address on, and returns their bytes.
  size_t place(uint8_t* start, uint32_t m, const Panel16& w) {
    uint8_t* at = start;
    auto take = [&](size_t bytes) { return (at += round_up(bytes, 64)) - round_up(bytes, 64); };
    const size_t count = static_cast<size_t>(m) * block_count;
    values = reinterpret_cast<int8_t*>(take(m * stride()));
    numbers = reinterpret_cast<BlockNumbers*>(take(count * sizeof(BlockNumbers)));
    offsets = reinterpret_cast<float*>(take(w.has_offsets ? 4 * count : 0));
    odd_sums = reinterpret_cast<int32_t*>(take(w.odd_zero != 0 ? 4 * count : 0));
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
