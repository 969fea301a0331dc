// GEMM over panel16 weights on AMX, y = x . w^T + bias, where smaller batches quantize activations to int8 in blocks.
// Here activations and weights are rounded to bf16, which is closer to floats and no slower. Sums are in f32, along k.
//
// y is off by at most 2^-7 * sum |x| |w|, besides the rounding of sums. Magnitudes under 2^-126 count as 0.
#include "../families/gate/activations.h"
#include "../families/linear/arguments.h"
#include "../families/linear/panel16_gemm.h"
#include "floats_avx512.h"
#include "isa_avx512.h"
#include "tiles_amx.h"

namespace lowbit {
namespace {

constexpr uint32_t kRows = 16, kPairRows = 32;
// Columns of k per tile.
constexpr uint32_t kStep = 32;
// Most rows that share weights as bf16: further rows convert them again. And most steps of k whose weights are
// converted at once: they fit the second-level cache. With 24 steps, sums are loaded and stored more often: 512 rows of
// 2,048 columns took 5 to 10 % longer while the core was fast, and as long while it was slow.
constexpr uint32_t kRowsMax = 256, kStepsMax = 64;
// Most panels of a tile of work. They are multiplied in pairs.
constexpr uint32_t kPanelsMax = 8;
// Bytes of the tiles of a pair of panels in one step of k, and of four accumulators.
constexpr size_t kPairBytes = 2 * kTileBytes, kSumBytes = 4 * kTileBytes;

// Unpacks weights to signed bytes, [k][16 rows of a panel].
struct BytesOfColumns : Avx512Vnni {
  template <int Bits>
  static Bytes weight(Bytes u) {
    return _mm512_sub_epi8(u, _mm512_set1_epi8(static_cast<char>(1 << (Bits - 1))));
  }
  static Bytes load_levels(const int8_t* levels, int) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(levels)));
  }
  static void store_bytes(uint8_t* p, Bytes u) {
    const __m512i lanes = _mm512_shuffle_epi8(
        u, _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15)));
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    _mm512_storeu_si512(p, _mm512_permutexvar_epi32(order, lanes));
  }
  template <int Bits>
  static void prefetch(const uint8_t* p) {
    for (uint32_t line = 0; line <= Bits; line++)
      _mm_prefetch(reinterpret_cast<const char*>(p + 64 * line), _MM_HINT_T1);
  }
};

// Unpacks runs (32 columns) first .. last of a panel to bytes, and prefetches the same place of the next panel.
using Unpack = void (*)(const Panel16& w, uint32_t panel, uint32_t first, uint32_t last, uint8_t* out);
template <int Bits, bool Levels>
void unpack_bytes(const Panel16& w, uint32_t panel, uint32_t first, uint32_t last, uint8_t* out) {
  unpack_panel<BytesOfColumns, Bits, Levels>(w, panel, first, last, out, w.panel_bytes);
}
template <int Bits = 1>
Unpack unpack_of(const Panel16& w) {
  if constexpr (Bits < 8)
    if (w.bits != Bits) return unpack_of<Bits + 1>(w);
  if constexpr (Bits <= 4)
    if (w.has_levels) return unpack_bytes<Bits, true>;
  return unpack_bytes<Bits, false>;
}

struct Bf16Linear {
  Panel16 weights;
  Unpack unpack;
  const float* x;
  float* y;
  // Activations [chunks][rows / 16][chunk_steps][16][32]: those used together are contiguous.
  uint8_t* tiles;
  uint8_t* scratch;
  size_t scratch_bytes;
  uint32_t m, steps, chunk_steps;
  uint16_t panels_per_tile, rows_per_tile;
  // Whether the first half of the columns gates the second, so that y has half the columns.
  bool gated;

  uint32_t row_blocks() const { return ceil_div(m, kRows); }
  uint32_t chunks() const { return ceil_div(steps, chunk_steps); }
  size_t block_bytes() const { return size_t{chunk_steps} * kTileBytes; }
  size_t chunk_bytes() const { return row_blocks() * block_bytes(); }
  size_t tiles_bytes() const { return chunks() * chunk_bytes(); }
  uint32_t columns() const { return gated ? weights.n / 2 : weights.n; }
  // Pairs of panels: neighbours, or a gate and what it gates.
  uint32_t pair_count() const { return ceil_div(weights.panel_count, 2); }
  uint32_t panel_of(uint32_t pair, uint32_t side) const {
    if (gated) return pair + side * pair_count();
    return std::min(2 * pair + side, weights.panel_count - 1);
  }
};
static_assert(sizeof(Bf16Linear) <= kArgsMax);

// Scratch of one thread.
struct Bf16Workspace {
  // A chunk of two panels: weights as bytes and as tiles, two buffers of each.
  uint8_t* bytes[2];
  uint8_t* tiles[2];
  // [pairs of panels][pairs of rows], and one more that is being finished.
  float* sums;
  size_t size;

  Bf16Workspace(const Bf16Linear& a, uint8_t* start) {
    uint8_t* at = start;
    auto take = [&](size_t bytes) { return (at += bytes) - bytes; };
    for (auto& panel : bytes) panel = take(size_t{16} * kStep * a.chunk_steps);
    for (auto& buffer : tiles) buffer = take(a.chunk_steps * kPairBytes);
    const uint32_t rows = ceil_div(std::min(a.m, kRowsMax), kPairRows);
    sums = reinterpret_cast<float*>(take((size_t{a.panels_per_tile} / 2 * rows + 1) * kSumBytes));
    size = static_cast<size_t>(at - start);
  }
};

Bf16Linear plan_call(const Call& call, bool gated) {
  const auto given = arguments_of<PackedLinearArguments>(call);
  Bf16Linear a{};
  a.gated = gated;
  a.m = given.m;
  a.weights = read_panel16(given.weights, given.n);
  a.steps = a.weights.padded_k() / kStep;
  a.chunk_steps = ceil_div(a.steps, ceil_div(a.steps, kStepsMax));
  const uint32_t share = a.weights.panel_count / (8 * call.threads);
  a.panels_per_tile = static_cast<uint16_t>(std::max(2u, std::min(share, kPanelsMax) & ~1u));
  a.rows_per_tile = static_cast<uint16_t>(std::min(ceil_div(a.m, 4 * call.threads), 65535u));
  a.scratch_bytes = Bf16Workspace(a, nullptr).size;
  return a;
}

// Rounds rows of activations to bf16, groups padded with zeros.
void round_rows(const Bf16Linear& a, uint32_t tile) {
  const Panel16& w = a.weights;
  const uint32_t first = tile * a.rows_per_tile, last = std::min(a.m, first + a.rows_per_tile);
  for (uint32_t row = first; row < last; row++) {
    const float* x = a.x + size_t{row} * w.k;
    uint8_t* const block = a.tiles + row / kRows * a.block_bytes() + row % kRows * 64;
    for (uint32_t step = 0, run = 0, left = std::min(w.group_size, w.k), rest = w.k; step < a.steps; step++) {
      const int count = static_cast<int>(std::min(left, kStep));
      const __m512 low = _mm512_maskz_loadu_ps(first_lanes(count), x);
      const __m512 high = _mm512_maskz_loadu_ps(first_lanes(count - 16), x + 16);
      uint8_t* to = block + step / a.chunk_steps * a.chunk_bytes() + step % a.chunk_steps * kTileBytes;
      _mm512_store_si512(to, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
      x += count;
      left -= static_cast<uint32_t>(count);
      rest -= static_cast<uint32_t>(count);
      if (++run == w.group_length / kStep) {
        run = 0;
        left = std::min(w.group_size, rest);
      }
    }
  }
}

// Converts a chunk of two panels to tiles, four columns of a panel a call. `rest` calls are left.
struct Rounder {
  const Panel16* w;
  const uint8_t* panels[2];
  const uint8_t* bytes[2];
  uint8_t* to;
  uint32_t next, end, first_step;
  // Scale and offset of the current group: weight = integer * scale - offset.
  __m512 scale, minus_offset;

  static constexpr uint32_t kOfStep = 16;

  inline LOWBIT_INLINE void load_group(uint32_t side, uint32_t step, int set) {
    const uint32_t runs = w->group_length / kStep, g = step / runs;
    const GroupPlace<Avx512Vnni> place{panels[side] + size_t{g} * w->group_bytes, g, 0, set};
    scale = group_scales<Avx512Vnni>(*w, place);
    minus_offset = _mm512_setzero_ps();
    if (w->has_offsets)
      minus_offset = _mm512_sub_ps(minus_offset, offsets_of<Avx512Vnni>(*w, place, scale, static_cast<int>(w->bits)));
  }

  inline LOWBIT_INLINE void one() {
    if (next == end) return;
    const uint32_t side = next / 8 % 2, quad = next % 8, step = next / kOfStep;
    if (quad == 0) load_group(side, first_step + step, 0);
    else if (quad == 4 && w->parts == 2) load_group(side, first_step + step, 1);
    const uint8_t* from = bytes[side] + 16 * (kStep * step + 4 * quad);
    uint8_t* at = to + step * kPairBytes + side * kTileBytes + 128 * quad;
    const __m512i half = _mm512_set1_epi32(0x8000), upper = _mm512_set1_epi32(static_cast<int>(0xffff0000));
    constexpr int kAAndBOrC = 0xea;
    __m512i words[4];
    for (int i = 0; i < 4; i++) {
      const __m512i integers = _mm512_cvtepi8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(from + 16 * i)));
      const __m512 value = _mm512_fmadd_ps(_mm512_cvtepi32_ps(integers), scale, minus_offset);
      words[i] = _mm512_add_epi32(_mm512_castps_si512(value), half);
    }
    for (int i = 0; i < 2; i++) {
      const __m512i pair =
          _mm512_ternarylogic_epi32(words[2 * i + 1], upper, _mm512_srli_epi32(words[2 * i], 16), kAAndBOrC);
      _mm512_store_si512(at + 64 * i, pair);
    }
    next++;
  }
};

// Turns finished sums of up to 32 rows of a pair of panels into results, one row at a time.
struct Finisher {
  const Bf16Linear* a;
  const float* sums;
  float* y;
  __m512 bias[2];
  __mmask16 columns[2];
  uint32_t rows;

  inline LOWBIT_INLINE void one() {
    if (rows == 0) return;
    const __m512 first = _mm512_add_ps(_mm512_load_ps(sums), bias[0]);
    const __m512 second = _mm512_add_ps(_mm512_load_ps(sums + 256), bias[1]);
    if (a->gated) {
      _mm512_mask_storeu_ps(y, columns[0], Silu::times<FloatsAvx512>(first, second));
    } else {
      _mm512_mask_storeu_ps(y, columns[0], first);
      _mm512_mask_storeu_ps(y + 16, columns[1], second);
    }
    y += a->columns();
    sums += 16;
    rows--;
    // The sums of the first 16 rows are followed by the other panel's.
    if (rows == second_rows) sums += 256;
  }
  uint32_t second_rows;
};

// One step: 32 rows of activations times two panels.
inline LOWBIT_INLINE void multiply_step(const uint8_t* a0, const uint8_t* a1, const uint8_t* b,
                                                        bool two) {
  _tile_stream_loadd(4, a0, 64);
  _tile_loadd(6, b, 64);
  _tile_dpbf16ps(0, 4, 6);
  _tile_loadd(7, b + kTileBytes, 64);
  _tile_dpbf16ps(1, 4, 7);
  if (!two) return;
  _tile_stream_loadd(5, a1, 64);
  _tile_dpbf16ps(2, 5, 6);
  _tile_dpbf16ps(3, 5, 7);
}

class Bf16Multiplier {
 public:
  Bf16Multiplier(const Bf16Linear& a, uint8_t* scratch, uint32_t first, uint32_t last)
      : a_(a),
        work_(a, scratch),
        first_(first),
        last_(last) {
    finisher_.rows = 0;
  }

  // One chunk of k of the pairs of panels begin .. end.
  inline LOWBIT_INLINE void chunk(uint32_t index, uint32_t begin, uint32_t end) {
    const uint32_t row_pairs = ceil_div(last_ - first_, kPairRows);
    chunk_ = index;
    steps_ = std::min(a_.chunk_steps, a_.steps - index * a_.chunk_steps);
    unpack(begin);
    Rounder rounder = rounder_for(begin, 0);
    for (uint32_t i = 0; i < Rounder::kOfStep * steps_; i++) rounder.one();
    for (uint32_t pair = begin; pair < end; pair++) {
      const uint32_t buffer = (pair - begin) % 2;
      if (pair + 1 < end) unpack(pair + 1);
      rounder = rounder_for(std::min(pair + 1, end - 1), 1 - buffer);
      if (pair + 1 == end) rounder.next = rounder.end;
      tile_fence();
      for (uint32_t rows = 0; rows < row_pairs; rows++)
        multiply(pair, (pair - begin) * row_pairs + rows, rows, buffer, ceil_div(Rounder::kOfStep, row_pairs), rounder);
      while (rounder.next < rounder.end) rounder.one();
    }
  }

  inline LOWBIT_INLINE void finish() {
    while (finisher_.rows > 0) finisher_.one();
  }

 private:
  void unpack(uint32_t pair) {
    const uint32_t first = chunk_ * a_.chunk_steps;
    for (uint32_t side = 0; side < 2; side++)
      a_.unpack(a_.weights, a_.panel_of(pair, side), first, first + steps_, work_.bytes[side]);
  }

  inline LOWBIT_INLINE Rounder rounder_for(uint32_t pair, uint32_t buffer) const {
    Rounder rounder;
    rounder.w = &a_.weights;
    for (uint32_t side = 0; side < 2; side++) {
      rounder.panels[side] = a_.weights.panel(a_.panel_of(pair, side));
      rounder.bytes[side] = work_.bytes[side];
    }
    rounder.to = work_.tiles[buffer];
    rounder.next = 0;
    rounder.end = Rounder::kOfStep * steps_;
    rounder.first_step = chunk_ * a_.chunk_steps;
    rounder.scale = rounder.minus_offset = _mm512_setzero_ps();
    return rounder;
  }

  // Multiplies 32 rows, pair number pair_of_rows, while vectors finish the rows before and convert the next weights.
  // Calls nothing: functions that use vectors end with vzeroupper, which waits for the tiles.
  inline LOWBIT_INLINE void multiply(uint32_t pair, uint32_t place, uint32_t pair_of_rows,
                                                     uint32_t buffer, uint32_t rounds, Rounder& rounder) {
    const bool alone = a_.chunks() == 1;
    // With a single chunk, two places take turns: one is finished while the other is summed.
    float* sums = work_.sums + (alone ? turn_++ % 2 : place) * (kSumBytes / 4);
    const uint32_t row = first_ + kPairRows * pair_of_rows;
    const bool two = row + kRows < last_;
    begin_sums(reinterpret_cast<const uint8_t*>(sums), 2 * kTileBytes, chunk_ == 0);
    const uint8_t* a0 = a_.tiles + chunk_ * a_.chunk_bytes() + row / kRows * a_.block_bytes();
    const uint8_t* a1 = two ? a0 + a_.block_bytes() : a0;
    const uint8_t* b = work_.tiles[buffer];
    const uint32_t finished = ceil_div(kPairRows, steps_);
    for (uint32_t s = 0; s < steps_; s++, a0 += kTileBytes, a1 += kTileBytes, b += kPairBytes) {
      multiply_step(a0, a1, b, two);
      for (uint32_t i = 0; i < rounds; i++) rounder.one();
      for (uint32_t i = 0; i < finished; i++) finisher_.one();
    }
    finish();
    end_sums(reinterpret_cast<uint8_t*>(sums), 2 * kTileBytes);
    if (chunk_ + 1 == a_.chunks()) begin_finish(pair, row, sums);
  }

  inline LOWBIT_INLINE void begin_finish(uint32_t pair, uint32_t row, const float* sums) {
    const Panel16& w = a_.weights;
    finisher_.a = &a_;
    finisher_.sums = sums;
    const uint32_t column = (a_.gated ? 16 : 32) * pair;
    finisher_.y = a_.y + size_t{row} * a_.columns() + column;
    finisher_.rows = std::min(kPairRows, last_ - row);
    finisher_.second_rows = finisher_.rows > kRows ? finisher_.rows - kRows : 0;
    for (uint32_t side = 0; side < 2; side++) {
      const uint8_t* bytes = w.panel(a_.panel_of(pair, side));
      finisher_.bias[side] = w.has_bias ? _mm512_loadu_ps(bytes + w.bias_offset) : _mm512_setzero_ps();
      finisher_.columns[side] = first_lanes(static_cast<int>(a_.columns()) - static_cast<int>(column + 16 * side));
    }
  }

  const Bf16Linear& a_;
  const Bf16Workspace work_;
  Finisher finisher_;
  uint32_t first_, last_, chunk_ = 0, steps_ = 0, turn_ = 0;
};

void bf16_linear_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread) {
  const Bf16Linear& a = step.as<Bf16Linear>();
  if (phase == 0) return round_rows(a, tile);
  const uint32_t pairs = a.panels_per_tile / 2, tiles = ceil_div(a.pair_count(), pairs);
  const uint32_t first = tile / tiles * kRowsMax, begin = tile % tiles * pairs;
  Bf16Multiplier multiplier(a, a.scratch + thread * a.scratch_bytes, first, std::min(a.m, first + kRowsMax));
  const TileScope scope;
  for (uint32_t chunk = 0; chunk < a.chunks(); chunk++)
    multiplier.chunk(chunk, begin, std::min(a.pair_count(), begin + pairs));
  multiplier.finish();
}

template <bool Gated>
size_t bf16_linear_scratch(const Call& call) {
  const Bf16Linear a = plan_call(call, Gated);
  return a.tiles_bytes() + call.threads * a.scratch_bytes;
}

template <bool Gated>
void bf16_linear_prepare(Step& step, const Call& call) {
  const auto given = arguments_of<PackedLinearArguments>(call);
  Bf16Linear& a = step.init<Bf16Linear>();
  a = plan_call(call, Gated);
  a.x = given.x;
  a.y = given.y;
  a.tiles = static_cast<uint8_t*>(given.scratch);
  a.scratch = a.tiles + a.tiles_bytes();
  step.phases = 2;
  step.tiles[0] = ceil_div(a.m, a.rows_per_tile);
  step.tiles[1] = ceil_div(a.m, kRowsMax) * ceil_div(a.pair_count(), a.panels_per_tile / 2);
  a.unpack = unpack_of(a.weights);
  step.run = bf16_linear_run;
}

constexpr uint32_t kNeeds = kAvx2 | kAvx512 | kAvx512Vnni | kAvx512Bf16 | kAmxBf16;

constexpr KernelRow kTable[] = {
    {"linear_a8b32_wx_32x32x32_amx_bf16", "linear_a8b32", "panel16", kBits1To8 | kReadsMinima, kNeeds, 32, 32,
     bf16_linear_scratch<false>, bf16_linear_prepare<false>},
    {"linear_a8b32_swiglu_wx_32x32x32_amx_bf16", "linear_a8b32_swiglu", "panel16", kBits1To8 | kReadsMinima, kNeeds, 32,
     32, bf16_linear_scratch<true>, bf16_linear_prepare<true>},
};

}  // namespace

KernelRows linear_bf16_amx_rows() { return {kTable, sizeof kTable / sizeof *kTable}; }

}  // namespace lowbit
