// Activations quantized for panel16 weights: where they lie in scratch.
#pragma once

#include "../panels.h"

namespace lowbit {

// Activations quantized to int8 for panel16 weights: rows of `padded_k` values (groups padded with zeros), then for
// each row its scale, zero point and the sum of each group's values, of groups that share a scale.
struct QuantizedRows {
  int8_t* values;
  int32_t* sums;
  float* scales;
  int32_t* zeros;
};

static inline size_t quantized_bytes(uint32_t m, const Panel16& w) {
  return round_up(static_cast<size_t>(m) * w.padded_k(), 64) +
         round_up(4 * static_cast<size_t>(m) * w.part_count(), 64) + 2 * round_up(4 * static_cast<size_t>(m), 64);
}

static inline QuantizedRows quantized_rows(void* scratch, uint32_t m, const Panel16& w) {
  uint8_t* at = static_cast<uint8_t*>(scratch);
  QuantizedRows rows;
  rows.values = reinterpret_cast<int8_t*>(at);
  at += round_up(static_cast<size_t>(m) * w.padded_k(), 64);
  rows.sums = reinterpret_cast<int32_t*>(at);
  at += round_up(4 * static_cast<size_t>(m) * w.part_count(), 64);
  rows.scales = reinterpret_cast<float*>(at);
  at += round_up(4 * static_cast<size_t>(m), 64);
  rows.zeros = reinterpret_cast<int32_t*>(at);
  return rows;
}

}  // namespace lowbit
