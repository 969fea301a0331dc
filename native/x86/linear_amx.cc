// Linear layers over panel16 weights on AMX: int8 activations times weights as signed bytes. panel16_linear.h has the
// formula. Tiles sum each group exactly, in 32 bits. Vectors scale the sums of some groups and add them to the totals
// while tiles multiply the next groups.
#include "../families/linear/arguments.h"
#include "../families/linear/panel16_gemm.h"
#include "isa_avx512.h"
#include "tiles_amx.h"

namespace lowbit {
namespace {

constexpr uint32_t kRows = 16;
// Most rows that share unpacked weights. Further rows unpack them again.
constexpr uint32_t kRowsMax = 512;
// Segments of a group that are summed at the same time, an accumulator each; and most steps of a segment.
constexpr uint32_t kChains = 2, kSegmentSteps = 4;
// Turns that finished accumulators wait in memory: cores cannot forward stores of tiles to loads of vectors.
constexpr uint32_t kTurns = 4;
// Columns of k that are unpacked at once: 16 KiB of weights, which stay in the first-level cache.
constexpr uint32_t kChunkColumns = 1024;
// Most panels of a tile of work: all but the first find a chunk's activations in the second-level cache.
constexpr uint32_t kPanelsMax = 8;
// Results larger than this do not fit caches and are written with non-temporal stores.
constexpr size_t kStreamBytes = 1u << 20;

// Unpacks weights as signed bytes.
struct SignedAvx512 : Avx512Vnni {
  template <int Bits>
  static Bytes weight(Bytes u) {
    return _mm512_sub_epi8(u, _mm512_set1_epi8(static_cast<char>(1 << (Bits - 1))));
  }
  template <int Bits>
  static void prefetch(const uint8_t* p) {
    for (uint32_t line = 0; line <= Bits; line++)
      _mm_prefetch(reinterpret_cast<const char*>(p + 64 * line), _MM_HINT_T1);
  }
  static Bytes load_levels(const int8_t* levels, int) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(levels)));
  }
};

struct AmxLinear {
  Panel16 weights;
  const float* x;
  float* y;
  // Activations [rows / 16][segments][steps of a segment][16][width]: each AMX tile is contiguous.
  int8_t* tiles;
  // [rows / 16][segments][16]: minus the sums of groups, as split_sum gives them; only for weights with zero points.
  int32_t* sums;
  float* scales;
  float* zeros;
  uint8_t* scratch;
  // Bytes of one thread's scratch.
  size_t scratch_bytes;
  uint32_t m;
  // A segment is `steps` steps of `width` columns within a group. Segments past the last group add 0.
  uint16_t width, steps, panels_per_tile, rows_per_tile;
  uint32_t segments, chunk_segments;

  bool one_chunk() const { return chunk_segments == segments; }
  uint32_t row_blocks() const { return ceil_div(m, kRows); }
  uint32_t segment_columns() const { return steps * width; }
  size_t segment_bytes() const { return kRows * segment_columns(); }
  size_t tiles_bytes() const { return row_blocks() * segments * segment_bytes(); }
  size_t sums_bytes() const { return weights.has_zeros ? 4 * static_cast<size_t>(kRows) * row_blocks() * segments : 0; }
  size_t row_bytes() const { return round_up(4 * static_cast<size_t>(m), 64); }
};
static_assert(sizeof(AmxLinear) <= kArgsMax);

// Scratch of one thread.
struct Workspace {
  // A chunk of one panel: weights [k / 4][16][4]; scales and zero points of segments, [16] each.
  int8_t* weights;
  float* scales;
  int32_t* zeros;
  // Accumulators of the last kTurns turns.
  int32_t* sums;
  // Totals between chunks: [panels][rows / 16][16][16].
  float* totals;
  size_t bytes;

  Workspace(const AmxLinear& a, uint8_t* start) {
    uint8_t* at = start;
    auto take = [&](size_t size) { return (at += size) - size; };
    weights = reinterpret_cast<int8_t*>(take(a.chunk_segments * a.segment_bytes()));
    scales = reinterpret_cast<float*>(take(64 * a.chunk_segments));
    zeros = reinterpret_cast<int32_t*>(take(64 * a.chunk_segments));
    sums = reinterpret_cast<int32_t*>(take(kTurns * kChains * kTileBytes));
    const uint32_t blocks = ceil_div(std::min(a.m, kRowsMax), kRows);
    totals = reinterpret_cast<float*>(take((a.one_chunk() ? 1 : a.panels_per_tile * blocks) * kTileBytes));
    bytes = static_cast<size_t>(at - start);
  }
};

// Sets all sizes. Without memory, pointers stay null.
AmxLinear plan_call(const Call& call) {
  const auto given = arguments_of<PackedLinearArguments>(call);
  AmxLinear a{};
  a.m = given.m;
  a.weights = read_panel16(given.weights, given.n);
  const Panel16& w = a.weights;
  a.width = w.group_length % 64 == 0 ? 64 : 32;
  const uint32_t group_steps = w.group_length / a.width;
  a.steps = std::min(group_steps, kSegmentSteps);
  while (group_steps % a.steps != 0) a.steps--;
  a.segments = static_cast<uint32_t>(round_up(w.groups * (group_steps / a.steps), kChains));
  a.chunk_segments = std::min<uint32_t>(a.segments, round_up(kChunkColumns / a.segment_columns(), kChains));
  const uint32_t share = std::max(1u, w.panel_count / (8 * call.threads));
  a.panels_per_tile = static_cast<uint16_t>(std::min(share, kPanelsMax));
  a.rows_per_tile = static_cast<uint16_t>(std::min(ceil_div(a.m, 4 * call.threads), 65535u));
  a.scratch_bytes = Workspace(a, nullptr).bytes;
  return a;
}

size_t amx_linear_scratch(const Call& call) {
  const AmxLinear a = plan_call(call);
  return a.tiles_bytes() + a.sums_bytes() + 2 * a.row_bytes() + call.threads * a.scratch_bytes;
}

// Successive places of a row's integers in the tiles of its 16 rows.
struct TileTarget {
  int8_t* at;
  uint32_t width, half;

  int8_t* next() {
    int8_t* here = at;
    at += width == 64 && half++ % 2 == 0 ? 32 : kRows * width - (width - 32);
    return here;
  }
};

// Splits a number under 2^23, such as a sum of 2^16 activations, into two of 16 bits: n = low + 256 * high. A zero
// point is stored as the pair z, 256 * z: one product of pairs then multiplies it by a sum.
inline int32_t split_sum(int32_t n) {
  const int32_t low = static_cast<int8_t>(n), high = (n - low) / 256;
  return static_cast<int32_t>(static_cast<uint32_t>(high) << 16 | static_cast<uint16_t>(low));
}

void quantize_tiles(const AmxLinear& a, uint32_t tile) {
  const uint32_t first = tile * a.rows_per_tile, last = std::min(a.m, first + a.rows_per_tile);
  const Panel16& w = a.weights;
  const uint32_t group_segments = w.group_length / a.segment_columns();
  for (uint32_t row = first; row < last; row++) {
    const float* x = a.x + static_cast<size_t>(row) * w.k;
    const size_t block = static_cast<size_t>(row / kRows) * a.segments;
    const TileTarget target = {a.tiles + block * a.segment_bytes() + row % kRows * a.width, a.width, 0};
    int32_t* sums = a.sums + block * kRows + row % kRows;
    auto keep_sum = [&](uint32_t group, int32_t sum) {
      for (uint32_t i = 0; i < group_segments; i++) sums[(group * group_segments + i) * kRows] = split_sum(-sum);
    };
    const ActivationScale scale =
        w.has_zeros ? quantize_row(x, w, target, keep_sum) : quantize_row(x, w, target, nullptr);
    a.scales[row] = scale.scale;
    a.zeros[row] = static_cast<float>(scale.zero);
  }
}

// Loads the scales of the segments from `first` on, 0 past the last group, and zero points for the first segment of
// each group.
void load_factors(const AmxLinear& a, uint32_t panel, uint32_t first, uint32_t last, const Workspace& to) {
  const Panel16& w = a.weights;
  const uint32_t group_segments = w.group_length / a.segment_columns();
  for (uint32_t s = first; s < last; s++) {
    const uint32_t group = s / group_segments;
    const uint8_t* bytes = w.panel(panel) + static_cast<size_t>(group) * w.group_bytes;
    const bool exists = group < w.groups;
    __m512 scale = _mm512_setzero_ps();
    if (exists) scale = w.f16_scales ? Avx512Vnni::load_halves(bytes) : Avx512Vnni::load_floats(bytes);
    _mm512_store_ps(to.scales + kRows * (s - first), scale);
    if (!w.has_zeros) continue;
    __m512i zero = _mm512_setzero_si512();
    if (exists && s % group_segments == 0)
      zero = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + w.zeros_offset)));
    const __m512i low = _mm512_and_si512(zero, _mm512_set1_epi32(0xffff));
    _mm512_store_si512(to.zeros + kRows * (s - first), _mm512_or_si512(low, _mm512_slli_epi32(zero, 24)));
  }
}

// A chunk of 16 rows and a panel, as tiles.
struct Block {
  const int8_t* activations;
  const int8_t* weights;
  const int32_t* sums;
  const float* scales;
  const int32_t* zeros;
  uint32_t segments, steps, width;
};

// Computes the sums of two segments in two accumulators and stores them, one after the other. behind(0) to behind(7)
// do other work after the instructions of the first step and of the end. Loads of activations bypass the first-level
// cache, which unpacking needs.
constexpr int kPlaces = 8;
template <class Behind>
inline LOWBIT_INLINE void multiply_segments(const int8_t* a, const int8_t* b, uint32_t steps,
                                                            uint32_t width, int32_t* sums, Behind&& behind) {
  const size_t step = kRows * width, stride = steps * step;
  const auto place = [&](auto index) LOWBIT_INLINE {
    tile_fence();
    behind(index);
    tile_fence();
  };
  _tile_zero(0);
  _tile_zero(1);
  _tile_stream_loadd(4, a, width);
  place(Place<0>{});
  _tile_stream_loadd(6, b, 64);
  place(Place<1>{});
  _tile_dpbssd(0, 4, 6);
  place(Place<2>{});
  _tile_stream_loadd(5, a + stride, width);
  place(Place<3>{});
  _tile_stream_loadd(7, b + stride, 64);
  place(Place<4>{});
  _tile_dpbssd(1, 5, 7);
  place(Place<5>{});
  for (uint32_t s = 1; s < steps; s++) {
    a += step;
    b += step;
    _tile_stream_loadd(4, a, width);
    _tile_stream_loadd(6, b, 64);
    _tile_dpbssd(0, 4, 6);
    _tile_stream_loadd(5, a + stride, width);
    _tile_stream_loadd(7, b + stride, 64);
    _tile_dpbssd(1, 5, 7);
  }
  _tile_stored(0, sums, 64);
  place(Place<6>{});
  _tile_stored(1, sums + 256, 64);
  place(Place<7>{});
}

// Adds an eighth of the finished sums of two segments, from `segment` on, to the totals.
template <bool Zeros, int Index>
inline LOWBIT_INLINE void add_part(const Block& block, uint32_t segment, const int32_t* sums,
                                                   __m512* total) {
  constexpr int kChain = Index / (kPlaces / kChains), kCount = kRows * kChains / kPlaces;
  constexpr int kFirst = Index % (kPlaces / kChains) * kCount;
  const uint32_t c = segment + kChain;
  const __m512 scale = _mm512_load_ps(block.scales + kRows * c);
  each_index<kCount>([&](auto i) LOWBIT_INLINE {
    constexpr int kRow = kFirst + i;
    __m512i sum = _mm512_load_si512(sums + 256 * kChain + 16 * kRow);
    if (Zeros) {
      const __m512i row = _mm512_set1_epi32(block.sums[kRows * c + kRow]);
      sum = _mm512_dpwssd_epi32(sum, _mm512_load_si512(block.zeros + kRows * c), row);
    }
    total[kRow] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scale, total[kRow]);
  });
}

// Adds a chunk of k to the totals of a block.
template <bool Zeros>
inline LOWBIT_INLINE void add_chunk(const Block& block, int32_t* sums, __m512* total) {
  const size_t stride = static_cast<size_t>(kChains) * block.steps * block.width * kRows;
  const int8_t* a = block.activations;
  const int8_t* b = block.weights;
  auto turn = [&](uint32_t segment) LOWBIT_INLINE { return sums + segment / kChains % kTurns * (kChains * 256); };
  constexpr uint32_t kBehind = kChains * (kTurns - 1);
  uint32_t s = 0;
  for (; s < std::min(kBehind, block.segments); s += kChains, a += stride, b += stride)
    multiply_segments(a, b, block.steps, block.width, turn(s), [](auto) LOWBIT_INLINE { tile_gap(); });
  uint32_t added = 0;
  for (; s < block.segments; s += kChains, added += kChains, a += stride, b += stride) {
    const int32_t* ready = turn(added);
    multiply_segments(a, b, block.steps, block.width, turn(s), [&](auto place) LOWBIT_INLINE {
      add_part<Zeros, place>(block, added, ready, total);
    });
  }
  for (; added < block.segments; added += kChains)
    each_index<kPlaces>(
        [&](auto place) LOWBIT_INLINE { add_part<Zeros, place>(block, added, turn(added), total); });
}

// Computes and stores the results of 16 rows of a panel from their totals.
inline LOWBIT_INLINE void store_rows(const AmxLinear& a, uint32_t panel, uint32_t row,
                                                     const float* totals, bool stream) {
  const Panel16& w = a.weights;
  const uint8_t* bytes = w.panel(panel);
  const __m512 correction = _mm512_loadu_ps(bytes + w.correction_offset);
  const __m512 bias = w.has_bias ? _mm512_loadu_ps(bytes + w.bias_offset) : _mm512_setzero_ps();
  const __mmask16 columns = first_lanes(static_cast<int>(w.n - 16 * panel));
  float* y = a.y + static_cast<size_t>(row) * w.n + 16 * panel;
  for (uint32_t r = row; r < std::min(a.m, row + kRows); r++, y += w.n, totals += 16) {
    __m512 value = _mm512_fnmadd_ps(correction, _mm512_set1_ps(a.zeros[r]), _mm512_load_ps(totals));
    value = _mm512_fmadd_ps(value, _mm512_set1_ps(a.scales[r]), bias);
    if (stream) _mm512_stream_ps(y, value);
    else _mm512_mask_storeu_ps(y, columns, value);
  }
}

// Multiplies a chunk of k of a panel, from `segment` on, by rows first .. last - 1. `totals` [rows / 16][16][16] has
// the sums between chunks.
template <bool Zeros>
void multiply_panel(const AmxLinear& a, const Workspace& work, uint32_t panel, uint32_t segment, uint32_t first,
                    uint32_t last, float* totals, bool stream) {
  const uint32_t end = std::min(a.segments, segment + a.chunk_segments);
  for (uint32_t row = first; row < last; row += kRows, totals += a.one_chunk() ? 0 : 256) {
    const size_t at = static_cast<size_t>(row / kRows) * a.segments + segment;
    const Block block = {a.tiles + at * a.segment_bytes(),
                         work.weights,
                         a.sums + at * kRows,
                         work.scales,
                         work.zeros,
                         end - segment,
                         a.steps,
                         a.width};
    __m512 total[kRows];
    const bool starts = segment == 0;
    each_index<kRows>([&](auto r) LOWBIT_INLINE {
      total[r] = starts ? _mm512_setzero_ps() : _mm512_load_ps(totals + 16 * r);
    });
    add_chunk<Zeros>(block, work.sums, total);
    each_index<kRows>([&](auto r) LOWBIT_INLINE { _mm512_store_ps(totals + 16 * r, total[r]); });
    if (end == a.segments) store_rows(a, panel, row, totals, stream);
  }
}

template <int Bits, bool Levels>
void amx_linear_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread) {
  const AmxLinear& a = step.as<AmxLinear>();
  if (phase == 0) return quantize_tiles(a, tile);
  const Panel16& w = a.weights;
  const bool stream = bypasses_caches(a.y, a.m, w.n, kStreamBytes);
  const Workspace work(a, a.scratch + thread * a.scratch_bytes);
  const uint32_t begin = tile * a.panels_per_tile, end = std::min(w.panel_count, begin + a.panels_per_tile);
  const TileScope scope(a.width);
  for (uint32_t row = 0; row < a.m; row += kRowsMax)
    for (uint32_t s = 0; s < a.segments; s += a.chunk_segments)
      for (uint32_t p = begin; p < end; p++) {
        const uint32_t last = std::min(a.m, row + kRowsMax), last_segment = std::min(a.segments, s + a.chunk_segments);
        const uint32_t runs = a.segment_columns() / 32, padded_runs = w.padded_k() / 32;
        unpack_panel<SignedAvx512, Bits, Levels>(w, p, runs * s, std::min(padded_runs, runs * last_segment),
                                                 reinterpret_cast<uint8_t*>(work.weights), w.panel_bytes);
        load_factors(a, p, s, last_segment, work);
        tile_fence();
        const uint32_t blocks = a.one_chunk() ? 0 : ceil_div(std::min(a.m, kRowsMax), kRows);
        float* totals = work.totals + static_cast<size_t>(p - begin) * blocks * 256;
        (w.has_zeros ? multiply_panel<true> : multiply_panel<false>)(a, work, p, s, row, last, totals, stream);
      }
  if (stream) _mm_sfence();
}

struct AmxCode {
  template <int Bits, bool Levels>
  static constexpr RunFunction run() {
    return amx_linear_run<Bits, Levels>;
  }
};

void amx_linear_prepare(Step& step, const Call& call) {
  const auto given = arguments_of<PackedLinearArguments>(call);
  AmxLinear& a = step.init<AmxLinear>();
  a = plan_call(call);
  a.x = given.x;
  a.y = given.y;
  uint8_t* at = static_cast<uint8_t*>(given.scratch);
  auto take = [&](size_t size) { return (at += size) - size; };
  a.tiles = reinterpret_cast<int8_t*>(take(a.tiles_bytes()));
  a.sums = reinterpret_cast<int32_t*>(take(a.sums_bytes()));
  a.scales = reinterpret_cast<float*>(take(a.row_bytes()));
  a.zeros = reinterpret_cast<float*>(take(a.row_bytes()));
  a.scratch = at;
  step.phases = 2;
  step.tiles[0] = ceil_div(a.m, a.rows_per_tile);
  step.tiles[1] = ceil_div(a.weights.panel_count, a.panels_per_tile);
  step.run = run_for_bits<AmxCode>(a.weights);
}

constexpr KernelRow kTable[] = {
    {"linear_a8_wx_16x16x64_amx_int8", "linear_a8", "panel16", kBits1To8, kAvx2 | kAvx512 | kAvx512Vnni | kAmxInt8, 16,
     16, amx_linear_scratch, amx_linear_prepare},
};

}  // namespace

KernelRows linear_amx_rows() { return {kTable, sizeof kTable / sizeof *kTable}; }

}  // namespace lowbit
