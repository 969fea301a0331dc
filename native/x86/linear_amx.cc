// panel16 linear layers on AMX: 8-bit activations in tiles times weights in two planes of bytes.
//
// All of k is summed in 32-bit integers, so neither group size nor zero points cost anything in the inner loop: two
// byte products a weight. What is rounded are the weights, once, see weight_planes_avx512.h.
#include "../rows.h"
#include "tiles_amx.h"
#include "weight_planes_avx512.h"

namespace lowbit {
namespace {

constexpr uint32_t kRows = 16, kPairRows = 32;
// Columns of k in one tile.
constexpr uint32_t kStep = 64;
// Rows that share split weights; more are worked on one after the other.
constexpr uint32_t kRowsMax = 512;
// Activations of a chunk of k stay in the second-level cache.
constexpr size_t kChunkBytes = 1u << 20;
// Steps of split weights that stay in the first-level cache.
constexpr uint32_t kRingSteps = 4;
// Results of this size do not fit caches: they are written past them.
constexpr size_t kStreamBytes = 1u << 20;
// Both planes of a step; four accumulators.
constexpr size_t kPlaneStepBytes = 2 * kTileBytes, kSumBytes = 4 * kTileBytes;

struct AmxLinear {
  Panel16 weights;
  const float* x;
  float* y;
  // [chunks][rows / 16][chunk_steps][16][64]: what is worked on at once lies together.
  int8_t* tiles;
  float* scales;
  int32_t* zeros;
  uint8_t* scratch;
  size_t scratch_bytes;
  uint32_t m, steps, chunk_steps;
  uint16_t panels_per_tile, rows_per_tile;
  bool stream;
};
static_assert(sizeof(AmxLinear) <= kArgsMax);

uint32_t row_blocks(uint32_t m) { return ceil_div(m, kRows); }

// Fills in all sizes; pointers stay null without memory.
AmxLinear plan_call(const Call& call) {
  AmxLinear a{};
  a.m = static_cast<uint32_t>(call.scalars[0]);
  a.weights = read_panel16(call.buffers[1]);
  a.steps = ceil_div(a.weights.padded_k(), kStep);
  const size_t rows = kRows * row_blocks(std::min(a.m, kRowsMax));
  const uint32_t chunks = static_cast<uint32_t>((rows * kStep * a.steps + kChunkBytes - 1) / kChunkBytes);
  a.chunk_steps = ceil_div(a.steps, chunks);
  // Sums that wait for the next chunk take as much cache as the activations at most; short tiles balance threads.
  const uint32_t share = std::max(1u, a.weights.panel_count / (8 * call.threads));
  a.panels_per_tile = static_cast<uint16_t>(std::min(share, 8u));
  a.rows_per_tile = static_cast<uint16_t>(std::min(ceil_div(a.m, 4 * call.threads), 65535u));
  const size_t pairs = chunks > 1 ? a.panels_per_tile * ((rows + kRows) / kPairRows) : 1;
  a.scratch_bytes = std::max(a.chunk_steps, kRingSteps) * kPlaneStepBytes + pairs * kSumBytes;
  return a;
}

size_t block_bytes(const AmxLinear& a) { return static_cast<size_t>(a.chunk_steps) * kTileBytes; }
size_t chunk_bytes(const AmxLinear& a) { return row_blocks(a.m) * block_bytes(a); }
size_t tiles_bytes(const AmxLinear& a) { return ceil_div(a.steps, a.chunk_steps) * chunk_bytes(a); }
size_t row_bytes(const AmxLinear& a) { return round_up(4 * static_cast<size_t>(a.m), 64); }

size_t amx_linear_scratch(const Call& call) {
  const AmxLinear a = plan_call(call);
  return 64 + tiles_bytes(a) + 2 * row_bytes(a) + call.threads * a.scratch_bytes;
}

// Places of a row's integers among the tiles of its 16 rows.
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

void quantize_tiles(const AmxLinear& a, uint32_t tile) {
  const uint32_t first = tile * a.rows_per_tile, last = std::min(a.m, first + a.rows_per_tile);
  const Panel16& w = a.weights;
  for (uint32_t row = first; row < last; row++) {
    int8_t* start = a.tiles + row / kRows * block_bytes(a) + row % kRows * kStep;
    const TileTarget target = {start, chunk_bytes(a) - block_bytes(a), 2 * a.chunk_steps, 0};
    const RowScale scale = quantize_row(a.x + static_cast<size_t>(row) * w.k, w, target, nullptr);
    a.scales[row] = scale.scale;
    a.zeros[row] = scale.zero;
    if (w.padded_k() % kStep != 0) {
      const uint32_t end = a.steps - 1;
      int8_t* step = start + end / a.chunk_steps * chunk_bytes(a) + end % a.chunk_steps * kTileBytes;
      memset(step + kStep / 2, 0, kStep / 2);
    }
  }
}

// Activations and split weights at a step, and how far the next one is.
struct Operands {
  const int8_t* a0;
  const int8_t* a1;
  const uint8_t* planes;
  ptrdiff_t direction;

  void advance() {
    a0 += direction * kTileBytes;
    a1 += direction * kTileBytes;
    planes += direction * static_cast<ptrdiff_t>(kPlaneStepBytes);
  }
};

// Products of the first 16 rows and of the second. Activations pass by once for each panel: `stream` keeps them from
// pushing the weights out of the first-level cache.
inline __attribute__((always_inline)) void multiply_first(const int8_t* activations, const uint8_t* planes) {
  _tile_loadd(6, planes, 64);
  _tile_stream_loadd(4, activations, 64);
  _tile_dpbssd(0, 4, 6);
  _tile_loadd(7, planes + kTileBytes, 64);
  _tile_dpbsud(1, 4, 7);
}
inline __attribute__((always_inline)) void multiply_second(const int8_t* activations) {
  _tile_stream_loadd(5, activations, 64);
  _tile_dpbssd(2, 5, 6);
  _tile_dpbsud(3, 5, 7);
}

inline void load_sums(const int32_t* sums) {
  _tile_loadd(0, sums, 64);
  _tile_loadd(1, sums + 256, 64);
  _tile_loadd(2, sums + 512, 64);
  _tile_loadd(3, sums + 768, 64);
}

inline void clear_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

inline void store_sums(int32_t* sums) {
  _tile_stored(0, sums, 64);
  _tile_stored(1, sums + 256, 64);
  _tile_stored(2, sums + 512, 64);
  _tile_stored(3, sums + 768, 64);
  tile_fence();
}

// The panel's part of the result for up to 32 rows, of finished sums.
void finish_rows(const AmxLinear& a, uint32_t panel, const int32_t* sums, __m512 steps, uint32_t first, uint32_t last) {
  const Panel16& w = a.weights;
  const uint8_t* bytes = w.panel(panel);
  const uint32_t column = 16 * panel;
  const __mmask16 columns = first_lanes(static_cast<int>(w.n - column));
  const __m512 correction = _mm512_loadu_ps(bytes + w.correction_offset);
  const __m512 bias = w.has_bias ? _mm512_loadu_ps(bytes + w.bias_offset) : _mm512_setzero_ps();
  const __m512 shift = _mm512_set1_ps(256);
  for (uint32_t row = first; row < last; row++) {
    const int32_t* high = sums + (row - first) / kRows * 512 + (row - first) % kRows * 16;
    const __m512 low = _mm512_cvtepi32_ps(_mm512_load_si512(high + 256));
    __m512 value = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(high)), shift, low);
    value = _mm512_fmadd_ps(value, steps, _mm512_mul_ps(correction, _mm512_set1_ps(static_cast<float>(-a.zeros[row]))));
    value = _mm512_fmadd_ps(value, _mm512_set1_ps(a.scales[row]), bias);
    float* y = a.y + static_cast<size_t>(row) * w.n + column;
    if (a.stream) _mm512_stream_ps(y, value);
    else _mm512_mask_storeu_ps(y, columns, value);
  }
}

// One panel and one chunk of k for rows `first` .. `last` (512 at most).
struct PanelChunk {
  uint32_t panel, step, steps, first, last;
  uint8_t* planes;
  // Steps that `planes` has room for: all of them, or a few that go around when no other rows use them.
  uint32_t planes_steps;
  // [pairs] when there are more chunks, else one pair that is used again and again.
  int32_t* sums;
};

// Multiplies the first rows and splits the weights of the next step meanwhile; the two take turns, so that both units
// have work. Nothing here may be a call: functions that use vectors end with vzeroupper, which waits for the tiles.
template <int Bits, bool Levels, int Blocks>
__attribute__((noinline)) void multiply_and_split(const AmxLinear& a, const PanelChunk& c,
                                                  PanelSplitter<Bits, Levels> splitter, Operands at) {
  const uint32_t halves = a.weights.padded_k() / (kStep / 2);
  uint8_t* planes = c.planes;
  splitter.seek(2 * c.step);
  splitter.next(planes, planes + kTileBytes);
  if (2 * c.step + 1 < halves) splitter.next(planes + 512, planes + kTileBytes + 512);
  for (uint32_t s = 0; s < c.steps; s++, at.advance()) {
    const uint8_t* ready = planes;
    planes = c.planes + (s + 1) % c.planes_steps * kPlaneStepBytes;
    const bool more = s + 1 < c.steps;
    tile_fence();
    multiply_first(at.a0, ready);
    tile_fence();
    if (more) splitter.next(planes, planes + kTileBytes);
    tile_fence();
    if (Blocks == 2) multiply_second(at.a1);
    tile_fence();
    if (more && 2 * (c.step + s) + 3 < halves) splitter.next(planes + 512, planes + kTileBytes + 512);
  }
}

template <int Blocks>
void multiply(uint32_t steps, Operands at) {
  for (uint32_t s = 0; s < steps; s++, at.advance()) {
    multiply_first(at.a0, at.planes);
    if (Blocks == 2) multiply_second(at.a1);
  }
}

template <int Bits, bool Levels>
void panel_chunk(const AmxLinear& a, const PanelChunk& c, PanelSplitter<Bits, Levels>& splitter) {
  const bool alone = a.chunk_steps == a.steps, ends = c.step + c.steps == a.steps;
  const int8_t* chunk = a.tiles + c.step / a.chunk_steps * chunk_bytes(a);
  for (uint32_t row = c.first; row < c.last; row += kPairRows) {
    const uint32_t pair = (row - c.first) / kPairRows;
    int32_t* sums = c.sums + (alone ? 0 : pair * (kSumBytes / 4));
    if (c.step == 0) clear_sums();
    else load_sums(sums);
    const bool two = row + kRows < c.last;
    // Back and forth: the planes that were used last are still in the first-level cache.
    const ptrdiff_t direction = pair % 2 == 0 ? 1 : -1;
    const uint32_t start = direction > 0 ? 0 : c.steps - 1;
    const int8_t* a0 = chunk + row / kRows * block_bytes(a) + start * kTileBytes;
    const Operands at = {a0, a0 + block_bytes(a), c.planes + start * kPlaneStepBytes, direction};
    if (pair == 0 && two) multiply_and_split<Bits, Levels, 2>(a, c, splitter, at);
    else if (pair == 0) multiply_and_split<Bits, Levels, 1>(a, c, splitter, at);
    else if (two) multiply<2>(c.steps, at);
    else multiply<1>(c.steps, at);
    store_sums(sums);
    if (ends) finish_rows(a, c.panel, sums, splitter.steps(), row, std::min(row + kPairRows, c.last));
  }
}

template <int Bits, bool Levels>
void amx_linear_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread) {
  const AmxLinear& a = step.as<AmxLinear>();
  if (phase == 0) return quantize_tiles(a, tile);
  TileScope scope;
  uint8_t* planes = a.scratch + thread * a.scratch_bytes;
  int32_t* sums = reinterpret_cast<int32_t*>(planes + std::max(a.chunk_steps, kRingSteps) * kPlaneStepBytes);
  const uint32_t begin = tile * a.panels_per_tile, end = std::min(a.weights.panel_count, begin + a.panels_per_tile);
  for (uint32_t row = 0; row < a.m; row += kRowsMax) {
    const uint32_t last = std::min(a.m, row + kRowsMax), pairs = ceil_div(last - row, kPairRows);
    const uint32_t planes_steps = pairs == 1 ? kRingSteps : a.chunk_steps;
    for (uint32_t s = 0; s < a.steps; s += a.chunk_steps) {
      int32_t* panel_sums = sums;
      for (uint32_t p = begin; p < end; p++) {
        PanelSplitter<Bits, Levels> splitter(a.weights, p);
        const PanelChunk chunk = {p,      s,           std::min(a.chunk_steps, a.steps - s), row, last,
                                  planes, planes_steps, panel_sums};
        panel_chunk<Bits, Levels>(a, chunk, splitter);
        if (a.chunk_steps < a.steps) panel_sums += pairs * (kSumBytes / 4);
      }
    }
  }
  if (a.stream) _mm_sfence();
}

template <int Bits>
void choose_amx_run(Step& step, bool levels) {
  if constexpr (Bits <= 4) {
    if (levels) {
      step.run = amx_linear_run<Bits, true>;
      return;
    }
  }
  step.run = amx_linear_run<Bits, false>;
}

void amx_linear_prepare(Step& step, const Call& call) {
  AmxLinear& a = step.init<AmxLinear>();
  a = plan_call(call);
  a.x = static_cast<const float*>(call.buffers[0]);
  a.y = static_cast<float*>(call.buffers[2]);
  const bool aligned = reinterpret_cast<size_t>(a.y) % 64 == 0 && a.weights.n % 16 == 0;
  a.stream = aligned && 4 * static_cast<size_t>(a.m) * a.weights.n > kStreamBytes;
  uint8_t* at = reinterpret_cast<uint8_t*>(round_up(reinterpret_cast<size_t>(call.buffers[3]), 64));
  a.tiles = reinterpret_cast<int8_t*>(at);
  at += tiles_bytes(a);
  a.scales = reinterpret_cast<float*>(at);
  at += row_bytes(a);
  a.zeros = reinterpret_cast<int32_t*>(at);
  a.scratch = at + row_bytes(a);
  step.phases = 2;
  step.tiles[0] = ceil_div(a.m, a.rows_per_tile);
  step.tiles[1] = ceil_div(a.weights.panel_count, a.panels_per_tile);
  const bool levels = a.weights.has_levels;
  switch (a.weights.bits) {
    case 1: return choose_amx_run<1>(step, levels);
    case 2: return choose_amx_run<2>(step, levels);
    case 3: return choose_amx_run<3>(step, levels);
    case 4: return choose_amx_run<4>(step, levels);
    case 5: return choose_amx_run<5>(step, levels);
    case 6: return choose_amx_run<6>(step, levels);
    case 7: return choose_amx_run<7>(step, levels);
    default: return choose_amx_run<8>(step, levels);
  }
}

constexpr KernelRow kTable[] = {
    {"linear_a8_wx_16x16x64_amx_int8", "linear_a8", "panel16", 0x1fe,
     kAvx2 | kAvx512 | kAvx512Vnni | kAmxInt8, 16, 16, amx_linear_scratch, amx_linear_prepare},
};

}  // namespace

KernelRows linear_amx_rows() { return {kTable, sizeof kTable / sizeof *kTable}; }

}  // namespace lowbit
