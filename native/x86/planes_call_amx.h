// Binds calls of linear layers on AMX with weights in two planes of bytes: sizes, memory, and activations as tiles.
// Flags: see scripts/native/build.js.
#pragma once

#include "../families/linear/panel16_linear.h"
#include "tiles_amx.h"
#include "weight_planes_avx512.h"

namespace lowbit {
namespace {

constexpr uint32_t kRows = 16, kPairRows = 32;
// Columns of k per tile.
constexpr uint32_t kStep = 64;
// Most rows that share split weights. Further rows split them again.
constexpr uint32_t kRowsMax = 512;
// Most panels per tile of work.
constexpr uint32_t kPanelsMax = 8;
// Bytes of activations that stay in a core's second-level cache. Where there are more, they are multiplied in chunks of
// k, which leave room for sums and for the next chunk.
constexpr size_t kResidentBytes = 1u << 20, kChunkBytes = 1u << 19;
// Steps of split weights that stay in the first-level cache.
constexpr uint32_t kRingSteps = 4;
// Results larger than this do not fit caches and are written with non-temporal stores.
constexpr size_t kStreamBytes = 1u << 17;
// Bytes of both planes of a step, of four accumulators, and of a gate's results for all rows that share split weights.
constexpr size_t kPlaneStepBytes = 2 * kTileBytes, kSumBytes = 4 * kTileBytes, kGateBytes = 64 * kRowsMax;

inline uint32_t row_blocks(uint32_t m) { return ceil_div(m, kRows); }

// What turns the sums of a panel's 16 columns into results. `correction` is the sum of a row's rounded weights, which
// the zero point of activations multiplies.
struct alignas(64) PanelFactors {
  float high[16], low[16], correction[16], bias[16];
};

inline PanelFactors panel_factors(const Panel16& w, uint32_t panel, __m512 exponents) {
  PanelFactors f;
  const uint8_t* bytes = w.panel(panel);
  _mm512_store_ps(f.high, _mm512_scalef_ps(_mm512_set1_ps(256), exponents));
  _mm512_store_ps(f.low, _mm512_scalef_ps(_mm512_set1_ps(1), exponents));
  _mm512_store_ps(f.correction, _mm512_setzero_ps());
  _mm512_store_ps(f.bias, w.has_bias ? _mm512_loadu_ps(bytes + w.bias_offset) : _mm512_setzero_ps());
  return f;
}

struct PlanesLinear {
  Panel16 weights;
  const float* x;
  float* y;
  // Activations [chunks][rows / 16][chunk_steps][16][64]: those used together are contiguous.
  int8_t* tiles;
  float* scales;
  float* zeros;
  uint8_t* scratch;
  // For each thread, a copy of the activations of one block of rows, and behind it that block's number; or null. Cache
  // lines that several cores hold are slow to fetch again once evicted: with copies, tiles multiplied up to half again
  // as fast.
  int8_t* copies;
  // Bytes of one thread's scratch: split weights, sums, results of a gate, factors of panels.
  size_t scratch_bytes;
  uint32_t m, steps, chunk_steps;
  uint16_t panels_per_tile, rows_per_tile, threads;
  // Whether the first half of the columns gates the second, so that y has half the columns.
  bool gated;
  bool stream;

  size_t block_bytes() const { return static_cast<size_t>(chunk_steps) * kTileBytes; }
  size_t chunk_bytes() const { return row_blocks(m) * block_bytes(); }
  size_t tiles_bytes() const { return ceil_div(steps, chunk_steps) * chunk_bytes(); }
  size_t row_bytes() const { return round_up(4 * static_cast<size_t>(m), 64); }
  uint32_t panel_tiles() const { return ceil_div(weights.panel_count, panels_per_tile); }
  size_t copy_bytes() const { return row_blocks(std::min(m, kRowsMax)) * block_bytes(); }
  size_t copies_bytes() const { return threads > 1 && chunk_steps == steps ? threads * (copy_bytes() + 64) : 0; }
  int8_t* copy(uint32_t thread) const { return copies + thread * (copy_bytes() + 64); }
  uint32_t* copied_block(uint32_t thread) const { return reinterpret_cast<uint32_t*>(copy(thread) + copy_bytes()); }
  size_t planes_bytes() const { return std::max(chunk_steps, kRingSteps) * kPlaneStepBytes; }
  int32_t* sums(uint8_t* scratch) const { return reinterpret_cast<int32_t*>(scratch + planes_bytes()); }
  PanelFactors* factors(uint8_t* scratch) const {
    return reinterpret_cast<PanelFactors*>(scratch + scratch_bytes) - panels_per_tile;
  }
  float* gates(uint8_t* scratch) const {
    return reinterpret_cast<float*>(reinterpret_cast<uint8_t*>(factors(scratch)) - kGateBytes);
  }
  // The panel at a place in the order of work: a gate comes before what it gates.
  uint32_t panel_at(uint32_t place) const { return gated ? place / 2 + place % 2 * (weights.panel_count / 2) : place; }
};
static_assert(sizeof(PlanesLinear) <= kArgsMax);

// Sets all sizes. Without memory, pointers stay null.
inline PlanesLinear plan_call(const Call& call, bool gated) {
  const auto given = arguments_of<PackedLinearArguments>(call);
  PlanesLinear a{};
  a.gated = gated;
  a.m = given.m;
  a.threads = static_cast<uint16_t>(call.threads);
  a.weights = read_panel16(given.weights, given.n);
  a.steps = ceil_div(a.weights.padded_k(), kStep);
  const size_t rows = kRows * row_blocks(std::min(a.m, kRowsMax));
  const size_t bytes = rows * kStep * a.steps;
  const uint32_t chunks = bytes <= kResidentBytes ? 1 : static_cast<uint32_t>((bytes + kChunkBytes - 1) / kChunkBytes);
  a.chunk_steps = ceil_div(a.steps, chunks);
  // Sums that wait for the next chunk take at most as much cache as activations do. Small tiles of work let threads end
  // together.
  const uint32_t share = std::max(1u, a.weights.panel_count / (8 * call.threads));
  const uint32_t panels = std::min(share, kPanelsMax);
  a.panels_per_tile = static_cast<uint16_t>(gated ? std::max(2u, panels & ~1u) : panels);
  a.rows_per_tile = static_cast<uint16_t>(std::min(ceil_div(a.m, 4 * call.threads), 65535u));
  const size_t pairs = a.chunk_steps < a.steps ? a.panels_per_tile * ((rows + kRows) / kPairRows) : 2;
  a.scratch_bytes =
      a.planes_bytes() + pairs * kSumBytes + sizeof(PanelFactors) * a.panels_per_tile + (gated ? kGateBytes : 0);
  return a;
}

inline size_t planes_scratch(const Call& call, bool gated) {
  const PlanesLinear a = plan_call(call, gated);
  return a.tiles_bytes() + 2 * a.row_bytes() + a.copies_bytes() + call.threads * a.scratch_bytes;
}

constexpr uint32_t kNoBlock = ~0u;

// Marks all copies as stale, before activations change.
inline void forget_copies(const PlanesLinear& a) {
  for (uint32_t t = 0; a.copies && t < a.threads; t++) *a.copied_block(t) = kNoBlock;
}

// The activations of a block of kRowsMax rows: the thread's copy, which is made first, where threads have copies.
// Chunks of k are a.chunk_bytes() apart.
inline const int8_t* block_tiles(const PlanesLinear& a, uint32_t block, uint32_t thread) {
  const uint32_t first = block * (kRowsMax / kRows);
  const int8_t* tiles = a.tiles + first * a.block_bytes();
  if (!a.copies) return tiles;
  if (*a.copied_block(thread) != block) {
    memcpy(a.copy(thread), tiles, std::min(row_blocks(a.m) - first, kRowsMax / kRows) * a.block_bytes());
    *a.copied_block(thread) = block;
  }
  return a.copy(thread);
}

// Successive places of a row's integers in the tiles of its 16 rows.
struct TileTarget {
  int8_t* at;
  size_t chunk_jump;
  uint32_t chunk_halves, half;

  int8_t* next() {
    int8_t* here = at;
    at += half % 2 == 0 ? kStep / 2 : kTileBytes - kStep / 2;
    if (++half == chunk_halves) {
      half = 0;
      at += chunk_jump;
    }
    return here;
  }
};

inline void quantize_tiles(const PlanesLinear& a, uint32_t tile) {
  const uint32_t first = tile * a.rows_per_tile, last = std::min(a.m, first + a.rows_per_tile);
  const Panel16& w = a.weights;
  for (uint32_t row = first; row < last; row++) {
    int8_t* start = a.tiles + row / kRows * a.block_bytes() + row % kRows * kStep;
    const TileTarget target = {start, a.chunk_bytes() - a.block_bytes(), 2 * a.chunk_steps, 0};
    const ActivationScale scale = quantize_row(a.x + static_cast<size_t>(row) * w.k, w, target, nullptr);
    a.scales[row] = scale.scale;
    a.zeros[row] = static_cast<float>(scale.zero);
    if (w.padded_k() % kStep != 0) {
      const uint32_t end = a.steps - 1;
      int8_t* step = start + end / a.chunk_steps * a.chunk_bytes() + end % a.chunk_steps * kTileBytes;
      memset(step + kStep / 2, 0, kStep / 2);
    }
  }
}

}  // namespace
}  // namespace lowbit
