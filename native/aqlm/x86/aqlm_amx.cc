// AQLM for many rows of x on AMX: weights are decoded to bf16 tiles, once for up to 512 rows, while tiles that are ready
// multiply. Weights are left factors, their outputs the rows, so that a group of inputs stays together; x is turned.
//
// Rounding both factors to bf16 makes 3e-3 of a result. These rows are for 128 rows of x and more, where products take
// longer than decoding, for they need two thirds of the tile instructions of aqlm_digits_amx.cc.
#include <algorithm>

#include "../rows.h"
#include "floats8.h"
#include "tiles.h"

namespace lowbit {
namespace aqlm {
namespace {

// Values of k of a product of tiles; such steps that are worked on before the next outputs: their weights stay in the
// first-level cache, their part of x in the second.
constexpr uint32_t kStep = 32, kChunkSteps = 16;
// Of a step: tiles of 32 outputs or rows of x.
constexpr uint32_t kStepBytes = 2 * kTileBytes;
// Outputs of a panel, and panels of a work item at most.
constexpr uint32_t kPanel = 32, kPanelsMax = 8;
// Rows of x that share decoded weights; more are worked on one after the other.
constexpr uint32_t kRowsMax = 512;
// Results of more bytes bypass the caches.
constexpr size_t kStreamBytes = 1u << 17;
constexpr size_t kPanelBytes = kChunkSteps * kStepBytes, kPairBytes = 4 * kTileBytes;

struct AmxProduct : Arguments {
  // Codebooks as f32, or as they are stored.
  const void* table;
  uint8_t* prepared;
  // x as tiles: [chunks][pairs of 16 rows][kChunkSteps][2][16 pairs of k][16 rows], as what is worked on at once lies
  // together: pairs whose distance is a power of two would push each other out of caches.
  uint8_t* rows;
  // For each thread: two panels of weights, sums [panels][pairs][4 tiles].
  uint8_t* local;
  size_t local_bytes;
  uint32_t steps, panels, item_panels;
  // Whether codebooks are converted to f32 first, and whether results bypass the caches.
  bool converts, stream;

  uint32_t pairs() const { return ceil_div(m, 32); }
  uint32_t chunks() const { return ceil_div(steps, kChunkSteps); }
  uint8_t* tiles(uint32_t chunk, uint32_t pair) const {
    return rows + (size_t{chunk} * pairs() + pair) * kPanelBytes;
  }
};
static_assert(sizeof(AmxProduct) <= kArgsMax);

void convert_vectors(const AmxProduct& p) {
  float* target = reinterpret_cast<float*>(p.prepared);
  const size_t count = p.codes.vector_values();
  for (size_t i = 0; i < count; i += 8)
    _mm256_storeu_ps(target + i, Avx2::load(static_cast<const uint16_t*>(p.vectors) + i));
}

// Values of a, then of b.
ALWAYS_INLINE __m512i bf16_row(__m512 a, __m512 b) { return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(b, a)); }

// 32 values of a row of x from value c on; those beyond k are 0.
inline __m512i load_row(const AmxProduct& p, uint32_t row, uint32_t c) {
  if (row >= p.m) return _mm512_setzero_si512();
  const float* x = p.x + size_t{row} * p.codes.k + c;
  const uint32_t count = p.codes.k - c;
  const __m512 a = _mm512_maskz_loadu_ps(first16(count), x);
  const __m512 b = count > 16 ? _mm512_maskz_loadu_ps(first16(count - 16), x + 16) : _mm512_setzero_ps();
  return bf16_row(a, b);
}

// 16 rows of x.
void turn_rows(const AmxProduct& p, uint32_t block) {
  for (uint32_t step = 0; step < p.steps; step++) {
    uint8_t* tile = p.tiles(step / kChunkSteps, block / 2) + step % kChunkSteps * kStepBytes + block % 2 * kTileBytes;
    __m512i rows[16];
    for (uint32_t i = 0; i < 16; i++) rows[i] = load_row(p, 16 * block + i, kStep * step);
    store_turned(rows, tile);
  }
}

// Four times eight values, in order.
ALWAYS_INLINE __m512i rounded(const __m256* sums) {
  const __m512 a = _mm512_insertf32x8(_mm512_castps256_ps512(sums[0]), sums[1], 1);
  const __m512 b = _mm512_insertf32x8(_mm512_castps256_ps512(sums[2]), sums[3], 1);
  return bf16_row(a, b);
}

// Sums of vectors of 8 inputs and one output, of `Books` codebooks.
template <class Code, class Vector, uint32_t Books>
struct ShortGroups {
  const Vector* vectors;
  size_t book_length;

  ALWAYS_INLINE __m256 sum8(const Code* codes) const {
    __m256 sum = Avx2::load(vectors + size_t{codes[0]} * 8);
    for (uint32_t c = 1; c < Books; c++)
      sum = _mm256_add_ps(sum, Avx2::load(vectors + c * book_length + size_t{codes[c * kTile]} * 8));
    return sum;
  }
};

// Decodes a chunk of a panel, step by step and output by output: for each step two tiles of 16 outputs. `Books` is the
// number of codebooks when groups have 8 inputs, or 0 for every form.
template <class Code, class Vector, uint32_t Books>
class PanelDecoder {
 public:
  // Past the last chunk there is nothing to decode.
  PanelDecoder(const AmxProduct& p, uint32_t panel, uint32_t chunk, uint8_t* target)
      : w_(p.codes), vectors_(static_cast<const Vector*>(p.table)), target_(target), panel_(panel),
        step_(chunk * kChunkSteps) {
    left_ = std::min(kChunkSteps, p.steps - std::min(p.steps, step_)) * kPanel;
    vector_length_ = w_.out_group * w_.in_group;
    book_length_ = static_cast<size_t>(w_.entries()) * vector_length_;
  }

  // Decodes the next row of tiles, if there is one.
  ALWAYS_INLINE void row() {
    if (left_ == 0) return;
    if (left_ % kPanel == 0) begin_step();
    __m512i row;
    if constexpr (Books == 0) {
      row = any_groups(step_ - 1, kPanel - 1 - (left_ - 1) % kPanel);
    } else {
      _mm_prefetch(reinterpret_cast<const char*>(ahead_), _MM_HINT_T0);
      ahead_ += 64 / sizeof(Code);
      row = whole_ ? short_groups<4>(codes_) : last_groups(codes_);
      codes_ += 2;
    }
    _mm512_store_si512(target_, row);
    target_ += 64;
    left_--;
  }
  ALWAYS_INLINE void rest() {
    while (left_ > 0) row();
  }

 private:
  // Of a block.
  static constexpr uint32_t kBlockSteps = kBlock / 4;
  static_assert(kChunkSteps % kBlockSteps == 0);
  static constexpr uint32_t kStepCodes = 4 * Books * kTile;

  ALWAYS_INLINE void begin_step() {
    if constexpr (Books > 0) {
      const uint32_t place = panel_ * kPanel, block = step_ / kBlockSteps;
      codes_ = reinterpret_cast<const Code*>(w_.tile(block, place / kTile)) + step_ % kBlockSteps * kStepCodes +
               lane_of(place % kTile);
      // The same of the next tile, and more.
      ahead_ = codes_ + kBlockSteps * kStepCodes;
      whole_ = step_ < w_.groups / 4;
    }
    step_++;
  }

  // Four groups; those beyond the last `Groups` are 0.
  template <uint32_t Groups>
  ALWAYS_INLINE __m512i short_groups(const Code* codes) const {
    const ShortGroups<Code, Vector, Books> vectors = {vectors_, book_length_};
    __m256 sums[4];
    for (uint32_t g = 0; g < 4; g++)
      sums[g] = g < Groups ? vectors.sum8(codes + g * Books * kTile) : _mm256_setzero_ps();
    return rounded(sums);
  }
  ALWAYS_INLINE __m512i last_groups(const Code* codes) const {
    const uint32_t groups = w_.groups % 4;
    return groups == 1 ? short_groups<1>(codes) : groups == 2 ? short_groups<2>(codes) : short_groups<3>(codes);
  }

  __m512i any_groups(uint32_t step, uint32_t output) const {
    const Codes& w = w_;
    __m256 sums[4];
    const uint32_t row = panel_ * kPanel + output, place = row / w.out_group, tile = place / kTile;
    for (uint32_t i = 0; i < 4; i++) {
      sums[i] = _mm256_setzero_ps();
      const uint32_t c = kStep * step + 8 * i;
      if (c >= w.k || tile >= w.tiles) continue;
      const uint32_t group = c / w.in_group, block = group / kBlock;
      const Code* codes = reinterpret_cast<const Code*>(w.tile(block, tile)) +
                          group % kBlock * w.codebooks * kTile + lane_of(place % kTile);
      const size_t at = row % w.out_group * w.in_group + c % w.in_group;
      for (uint32_t book = 0; book < w.codebooks; book++) {
        const uint32_t code = codes[book * kTile] & w.mask;
        sums[i] = _mm256_add_ps(sums[i], Avx2::load(vectors_ + book * book_length_ + code * vector_length_ + at));
      }
    }
    return rounded(sums);
  }

  const Codes& w_;
  const Vector* vectors_;
  uint8_t* target_;
  // Of an output at a step; what will be read later.
  const Code* codes_ = nullptr;
  const Code* ahead_ = nullptr;
  size_t book_length_;
  // The step that comes next; rows of tiles that are left.
  uint32_t panel_, step_, left_, vector_length_;
  bool whole_ = false;
};

// Adds a chunk to the four tiles of sums of 32 outputs and 32 rows of x, or the two of 16 rows, decoding a row of tiles
// behind each instruction: CPUs look only a few tile instructions ahead, fewer where a second thread of the core uses
// tiles, too. Tiles pass by the first-level cache, which codebooks need.
template <class Decoder>
ALWAYS_INLINE void multiply_pair(const uint8_t* weights, const uint8_t* rows, uint32_t steps, uint8_t* sums, bool first,
                                 bool two, Decoder& decoder) {
  begin_sums(sums, 2 * kTileBytes, first);
  auto decode = [&]() __attribute__((always_inline)) {
    tile_fence();
    decoder.row();
    tile_fence();
  };
  for (uint32_t step = 0; step < steps; step++, weights += kStepBytes, rows += kStepBytes) {
    _tile_stream_loadd(4, weights, 64);
    decode();
    _tile_stream_loadd(6, rows, 64);
    decode();
    if (two) _tile_stream_loadd(7, rows + kTileBytes, 64);
    decode();
    _tile_dpbf16ps(0, 4, 6);
    decode();
    if (two) _tile_dpbf16ps(1, 4, 7);
    decode();
    _tile_stream_loadd(5, weights + kTileBytes, 64);
    decode();
    _tile_dpbf16ps(2, 5, 6);
    decode();
    if (two) _tile_dpbf16ps(3, 5, 7);
    decode();
  }
  end_sums(sums, 2 * kTileBytes);
}

// All of k for panels begin .. end and rows of x from pair `first` to `last`.
template <class Decoder>
void multiply_panels(const AmxProduct& p, uint8_t* local, uint32_t begin, uint32_t end, uint32_t first, uint32_t last) {
  const uint32_t chunks = p.chunks(), pairs = last - first;
  uint8_t* sums = local + 2 * kPanelBytes;
  Decoder start(p, begin, 0, local);
  start.rest();
  tile_fence();
  uint32_t turn = 0;
  for (uint32_t chunk = 0; chunk < chunks; chunk++) {
    const uint32_t steps = std::min(kChunkSteps, p.steps - chunk * kChunkSteps);
    for (uint32_t panel = begin; panel < end; panel++, turn ^= 1) {
      const bool same = panel + 1 < end;
      uint8_t* next = local + (turn ^ 1) * kPanelBytes;
      Decoder decoder(p, same ? panel + 1 : begin, same ? chunk : chunk + 1, next);
      for (uint32_t pair = 0; pair < pairs; pair++) {
        uint8_t* at = sums + (size_t{panel - begin} * pairs + pair) * kPairBytes;
        const uint8_t* rows = p.tiles(chunk, first + pair);
        const bool two = (first + pair) * 32 + 16 < p.m;
        multiply_pair(local + turn * kPanelBytes, rows, steps, at, chunk == 0, two, decoder);
        if (chunk + 1 < chunks) continue;
        for (uint32_t tile = 0; tile < 4; tile += two ? 1 : 2)
          write_sums(p, p.stream, panel * kPanel + tile / 2 * 16, (first + pair) * 32 + tile % 2 * 16,
                     reinterpret_cast<const float*>(at + tile * kTileBytes));
      }
      // The last chunk may have fewer steps than the next panel's.
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
  p.item_panels = std::min(kPanelsMax, std::max(1u, p.panels / (8 * call.threads)));
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
  return kAlignment + prepared_bytes(p) + size_t{p.chunks()} * p.pairs() * kPanelBytes + call.threads * p.local_bytes;
}

template <class Vector>
void choose_run(Step& step, const Codes& w) {
  const bool short_groups = w.in_group == 8 && w.out_group == 1;
  const uint32_t books = short_groups && w.mask == (w.code_bytes == 1 ? 0xff : 0xffff) ? w.codebooks : 0;
  if (w.code_bytes == 2) step.run = books == 1 ? amx_run<uint16_t, Vector, 1> : amx_run<uint16_t, Vector, 0>;
  else if (books == 2) step.run = amx_run<uint8_t, Vector, 2>;
  else step.run = books == 1 ? amx_run<uint8_t, Vector, 1> : amx_run<uint8_t, Vector, 0>;
}

void amx_prepare(Step& step, const Call& call) {
  AmxProduct& p = step.init<AmxProduct>();
  p = read_amx_product(call);
  p.prepared = reinterpret_cast<uint8_t*>(round_up(reinterpret_cast<uintptr_t>(call.buffers[6]), kAlignment));
  p.rows = p.prepared + prepared_bytes(p);
  p.local = p.tiles(p.chunks(), 0);
  p.stream = bypasses_caches(p.y, p.m, p.codes.n, kStreamBytes);
  p.table = p.converts ? p.prepared : p.vectors;
  step.phases = 2;
  step.tiles[0] = 2 * p.pairs() + (p.converts ? 1 : 0);
  step.tiles[1] = ceil_div(p.panels, p.item_panels);
  if (p.half_vectors && !p.converts) choose_run<uint16_t>(step, p.codes);
  else choose_run<float>(step, p.codes);
}

constexpr uint32_t kNeeds = kAvx2 | kAvx512 | kAvx512Bf16 | kAmxBf16;

constexpr KernelRow kRows[] = {
    {"aqlm_bf16_c8_128x32x32_amx_bf16", "aqlm", "aqlm_tiles8", 0, kNeeds, 128, 32, amx_scratch, amx_prepare},
    {"aqlm_bf16_cx_128x32x32_amx_bf16", "aqlm", "aqlm_tiles", 0, kNeeds, 128, 32, amx_scratch, amx_prepare},
};

}  // namespace
}  // namespace aqlm

KernelRows aqlm_amx_rows() { return {aqlm::kRows, sizeof aqlm::kRows / sizeof *aqlm::kRows}; }

}  // namespace lowbit
