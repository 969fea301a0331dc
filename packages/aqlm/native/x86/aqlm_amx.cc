// AQLM GEMM on AMX in bf16: weights are decoded to tiles, once for up to 512 rows of x, while finished tiles multiply.
// Weights are left factors, with outputs as rows, so that a group of inputs stays together; x is transposed.
//
// Rounding both factors to bf16 makes 3e-3 of a result. These kernels serve many rows of x, from 64 where groups have 8
// inputs, else from 128: there products take longer than decoding, and bf16 needs two thirds of the tile instructions
// of aqlm_digits_amx.cc.
#include <algorithm>

#include "bf16_decoder.h"
#include "kernel.h"

namespace lowbit {
namespace aqlm {
namespace {

// Steps of k per chunk: its weights and its part of x stay in the second-level cache.
constexpr uint32_t kChunkSteps = 16;
// Bytes of a step's tiles of 32 outputs or 32 rows of x.
constexpr uint32_t kStepBytes = 2 * kTileBytes;
// Most panels of a work item.
constexpr uint32_t kPanelsMax = 8;
// Rows of x that share decoded weights; further rows decode them again.
constexpr uint32_t kRowsMax = 512;
// Results larger than this are written with non-temporal stores.
constexpr size_t kStreamBytes = 1u << 17;
constexpr size_t kPanelBytes = kChunkSteps * kStepBytes, kPairBytes = 4 * kTileBytes;

struct AmxProduct : Arguments {
  // Codebooks as f32, or as stored.
  const void* table;
  uint8_t* prepared;
  // x as tiles: [chunks][pairs of 16 rows][kChunkSteps][2][16 pairs of k][16 rows]. Tiles used together are contiguous:
  // pairs a power of two apart would evict each other from caches.
  uint8_t* rows;
  // Per thread: two panels of weights, and sums [panels][pairs][4 tiles].
  uint8_t* local;
  size_t local_bytes;
  uint32_t steps, panels, item_panels;
  // converts: codebooks are converted to f32 first. stream: results bypass the caches.
  bool converts, stream;

  uint32_t pairs() const { return ceil_div(m, 32); }
  uint32_t chunks() const { return ceil_div(steps, kChunkSteps); }
  // 0 for chunks past the last.
  uint32_t chunk_steps(uint32_t chunk) const {
    return std::min(kChunkSteps, steps - std::min(steps, chunk * kChunkSteps));
  }
  uint8_t* tiles(uint32_t chunk, uint32_t pair) const { return rows + (size_t{chunk} * pairs() + pair) * kPanelBytes; }
};
static_assert(sizeof(AmxProduct) <= kArgsMax);

void convert_vectors(const AmxProduct& p) {
  float* target = reinterpret_cast<float*>(p.prepared);
  const size_t count = p.codes.vector_values();
  for (size_t i = 0; i < count; i += 8)
    _mm256_storeu_ps(target + i, Avx2::load(static_cast<const uint16_t*>(p.vectors) + i));
}

// 32 values of a row of x from value c on; those past k are 0.
inline __m512i load_row(const AmxProduct& p, uint32_t row, uint32_t c) {
  if (row >= p.m) return _mm512_setzero_si512();
  const float* x = p.x + size_t{row} * p.codes.k + c;
  const uint32_t count = p.codes.k - c;
  const __m512 a = _mm512_maskz_loadu_ps(first16(count), x);
  const __m512 b = count > 16 ? _mm512_maskz_loadu_ps(first16(count - 16), x + 16) : _mm512_setzero_ps();
  return bf16_row(a, b);
}

// Transposes 16 rows of x into tiles.
void turn_rows(const AmxProduct& p, uint32_t block) {
  for (uint32_t step = 0; step < p.steps; step++) {
    uint8_t* tile = p.tiles(step / kChunkSteps, block / 2) + step % kChunkSteps * kStepBytes + block % 2 * kTileBytes;
    __m512i rows[16];
    for (uint32_t i = 0; i < 16; i++) rows[i] = load_row(p, 16 * block + i, kStep * step);
    store_turned(rows, tile);
  }
}

// Adds a step to the four tiles of sums of 32 outputs and 32 rows of x, or to two of 16 rows. `behind(0)` to
// `behind(7)` do other work after each instruction: CPUs look only a few tile instructions ahead, fewer where a second
// thread of the core uses tiles, too. Tile loads bypass the first-level cache, which the codebooks need.
template <class Behind>
inline LOWBIT_INLINE void multiply_step(const uint8_t* weights, const uint8_t* rows, bool two,
                                                        Behind behind) {
  _tile_stream_loadd(4, weights, 64);
  behind(0);
  _tile_stream_loadd(6, rows, 64);
  behind(1);
  if (two) _tile_stream_loadd(7, rows + kTileBytes, 64);
  behind(2);
  _tile_dpbf16ps(0, 4, 6);
  behind(3);
  if (two) _tile_dpbf16ps(1, 4, 7);
  behind(4);
  _tile_stream_loadd(5, weights + kTileBytes, 64);
  behind(5);
  _tile_dpbf16ps(2, 5, 6);
  behind(6);
  if (two) _tile_dpbf16ps(3, 5, 7);
  behind(7);
}

// Lines of x that each step prefetches for the next chunk: with kPanelsMax panels, all of them.
constexpr uint32_t kLinesAhead = kStepBytes / 64 / kPanelsMax;

// Adds a chunk to the sums of a panel and a pair of 16 rows of x, while the decoder decodes the next panel.
template <class Decoder>
inline LOWBIT_INLINE void multiply_pair(const uint8_t* weights, const uint8_t* rows, uint32_t steps,
                                                        uint8_t* sums, bool first, bool two, Decoder& decoder,
                                                        const uint8_t*& ahead) {
  begin_sums(sums, 2 * kTileBytes, first);
  auto fetch = [&](uint32_t line) LOWBIT_INLINE {
    if (line < kLinesAhead) _mm_prefetch(reinterpret_cast<const char*>(ahead) + 64 * line, _MM_HINT_T1);
  };
  for (uint32_t step = 0; step < steps; step++, weights += kStepBytes, rows += kStepBytes, ahead += 64 * kLinesAhead) {
    static_assert(Decoder::kRows == 8 && kLinesAhead < 8);
    typename Decoder::Rows ready;
    if (decoder.next(ready)) {
      multiply_step(weights, rows, two, [&](uint32_t i) LOWBIT_INLINE {
        tile_fence();
        ready.decode(i);
        fetch(i);
        tile_fence();
      });
    } else {
      multiply_step(weights, rows, two, [&](uint32_t i) LOWBIT_INLINE {
        tile_gap();
        fetch(i);
      });
    }
  }
  end_sums(sums, 2 * kTileBytes);
}

// Multiplies panels begin .. end with rows of x from pair `first` to `last`, over all of k.
template <class Decoder>
void multiply_panels(const AmxProduct& p, uint8_t* local, uint32_t begin, uint32_t end, uint32_t first, uint32_t last) {
  const uint32_t chunks = p.chunks(), pairs = last - first;
  uint8_t* sums = local + 2 * kPanelBytes;
  auto decoder_of = [&](uint32_t panel, uint32_t chunk, uint8_t* target) {
    return Decoder(p.codes, p.table, panel, chunk * kChunkSteps, p.chunk_steps(chunk), target);
  };
  Decoder start = decoder_of(begin, 0, local);
  start.rest();
  tile_fence();
  uint32_t turn = 0;
  for (uint32_t chunk = 0; chunk < chunks; chunk++) {
    const uint32_t steps = p.chunk_steps(chunk);
    const uint8_t* ahead = p.tiles(chunk + 1, first);
    for (uint32_t panel = begin; panel < end; panel++, turn ^= 1) {
      const bool same = panel + 1 < end;
      uint8_t* next = local + (turn ^ 1) * kPanelBytes;
      Decoder decoder = decoder_of(same ? panel + 1 : begin, same ? chunk : chunk + 1, next);
      for (uint32_t pair = 0; pair < pairs; pair++) {
        uint8_t* at = sums + (size_t{panel - begin} * pairs + pair) * kPairBytes;
        const uint8_t* rows = p.tiles(chunk, first + pair);
        const bool two = (first + pair) * 32 + 16 < p.m;
        multiply_pair(local + turn * kPanelBytes, rows, steps, at, chunk == 0, two, decoder, ahead);
        if (chunk + 1 < chunks) continue;
        for (uint32_t tile = 0; tile < 4; tile += two ? 1 : 2)
          write_sums(p, p.stream, panel * kPanel + tile / 2 * 16, (first + pair) * 32 + tile % 2 * 16,
                     reinterpret_cast<const float*>(at + tile * kTileBytes));
      }
      // The last chunk may have fewer steps than the next panel's has.
      decoder.rest();
      tile_fence();
    }
  }
}

template <class Code, class Vector, uint32_t Books>
void amx_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread) {
  const AmxProduct& p = step.as<AmxProduct>();
  if (phase == 0) {
    if (tile < 2 * p.pairs()) turn_rows(p, tile);
    else convert_vectors(p);
    return;
  }
  const TileScope scope;
  const uint32_t begin = tile * p.item_panels, end = std::min(p.panels, begin + p.item_panels);
  for (uint32_t pair = 0; pair < p.pairs(); pair += kRowsMax / 32)
    multiply_panels<PanelDecoder<Code, Vector, Books>>(p, p.local + thread * p.local_bytes, begin, end, pair,
                                                       std::min(p.pairs(), pair + kRowsMax / 32));
  if (p.stream) _mm_sfence();
}

AmxProduct read_amx_product(const Call& call) {
  AmxProduct p{read_arguments(call)};
  p.steps = ceil_div(p.codes.k, kStep);
  p.panels = ceil_div(p.codes.n, kPanel);
  p.item_panels = std::min(kPanelsMax, std::max(1u, p.panels / (4 * call.threads)));
  p.converts = p.half_vectors && p.codes.code_bytes == 1;
  const size_t pairs = std::min(p.pairs(), kRowsMax / 32);
  p.local_bytes = 2 * kPanelBytes + p.item_panels * pairs * kPairBytes;
  return p;
}

size_t prepared_bytes(const AmxProduct& p) {
  return p.converts ? round_up(4 * p.codes.vector_values(), kAlignment) : 0;
}

size_t amx_scratch(const Call& call) {
  const AmxProduct p = read_amx_product(call);
  return prepared_bytes(p) + size_t{p.chunks()} * p.pairs() * kPanelBytes + call.threads * p.local_bytes;
}

template <class Code, class Vector, uint32_t BooksMax>
void choose_run(Step& step, const Codes& w) {
  const bool short_groups = w.in_group == 8 && w.out_group == 1 && w.mask == static_cast<Code>(~0u);
  step.run = amx_run<Code, Vector, 0>;
  if (short_groups && w.codebooks == 1) step.run = amx_run<Code, Vector, 1>;
  if (short_groups && w.codebooks == BooksMax) step.run = amx_run<Code, Vector, BooksMax>;
}

void amx_prepare(Step& step, const Call& call) {
  const auto given = arguments_of<AqlmArguments>(call);
  AmxProduct& p = step.init<AmxProduct>();
  p = read_amx_product(call);
  p.prepared = static_cast<uint8_t*>(given.scratch);
  p.rows = p.prepared + prepared_bytes(p);
  p.local = p.tiles(p.chunks(), 0);
  p.stream = bypasses_caches(p.y, p.m, p.codes.n, kStreamBytes);
  p.table = p.converts ? p.prepared : p.vectors;
  step.phases = 2;
  step.tiles[0] = 2 * p.pairs() + (p.converts ? 1 : 0);
  step.tiles[1] = ceil_div(p.panels, p.item_panels);
  if (p.codes.code_bytes == 1) choose_run<uint8_t, float, 2>(step, p.codes);
  else if (p.half_vectors) choose_run<uint16_t, uint16_t, 1>(step, p.codes);
  else choose_run<uint16_t, float, 1>(step, p.codes);
}

constexpr uint32_t kNeeds = kAvx2 | kAvx512 | kAvx512Bf16 | kAmxBf16;

constexpr KernelRow kRows[] = {
    {"aqlm_bf16_c8_64x32x32_amx_bf16", "aqlm", "aqlm_tiles8", 0, kNeeds, 64, 32, amx_scratch, amx_prepare},
    {"aqlm_bf16_cx_128x32x32_amx_bf16", "aqlm", "aqlm_tiles", 0, kNeeds, 128, 32, amx_scratch, amx_prepare},
};

}  // namespace
}  // namespace aqlm

KernelRows aqlm_amx_rows() { return {aqlm::kRows, sizeof aqlm::kRows / sizeof *aqlm::kRows}; }

}  // namespace lowbit
