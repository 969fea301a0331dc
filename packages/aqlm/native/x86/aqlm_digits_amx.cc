// AQLM on AMX in int8, for a medium number of rows of x. Both factors are fixed point of two bytes, 256 * high + low;
// three of their four products are added, in 32-bit integers over chunks of 256 values of k. Weights are decoded once
// for up to 512 rows of x, while finished tiles multiply. Weights are left factors, with outputs as rows, so that a
// group of inputs stays together; x is transposed.
//
// The roundings and the products of low bytes, which are left out, make some 5e-5 of a result; 3e-4 where a few inputs
// are a hundred times as large as the others of their chunk.
#include <algorithm>

#include "digit_decoder.h"
#include "kernel.h"

namespace lowbit {
namespace aqlm {
namespace {

// Most panels of a work item.
constexpr uint32_t kPanelsMax = 8;
// Blocks of rows of x that share decoded weights; further blocks decode them again.
constexpr uint32_t kBlocksMax = 512 / kRows;
// Results larger than this are written with non-temporal stores.
constexpr size_t kStreamBytes = 1u << 17;
// Bytes of a panel's and a block of rows' integer sums (high with high bytes, then high with low ones), and of their
// sums as floats.
constexpr size_t kIntegerBytes = 4 * kTileBytes, kSumBytes = 2 * kTileBytes;

struct DigitProduct : Arguments {
  // Prepared codebooks: the step, followed by the entries.
  uint8_t* prepared;
  // x as tiles: [chunks][blocks of 16 rows][steps][high, low][16 times four of k][16 rows]; and factors
  // [chunks][blocks].
  uint8_t* rows;
  RowFactors* factors;
  // Per thread: two panels of weights, offsets, integer sums, and sums [panels][blocks][32 outputs][16 rows].
  uint8_t* local;
  size_t local_bytes;
  uint16_t item_panels, turn_parts;
  // entries: vectors are converted to entries first. stream: results bypass the caches.
  bool entries, stream;

  uint32_t blocks() const { return ceil_div(m, kRows); }
  uint32_t chunks() const { return ceil_div(codes.k, kChunk); }
  uint32_t panels() const { return ceil_div(codes.n, kPanel); }
  uint32_t steps(uint32_t chunk) const { return std::min(kChunkSteps, ceil_div(codes.k - chunk * kChunk, kStep)); }
  float* step() const { return reinterpret_cast<float*>(prepared); }
  const uint8_t* tiles(uint32_t chunk, uint32_t block) const {
    return rows + (size_t{chunk} * blocks() + block) * kRowsChunkBytes;
  }
  const RowFactors& row_factors(uint32_t chunk, uint32_t block) const { return factors[chunk * blocks() + block]; }
  size_t prepared_bytes() const { return kAlignment + (entries ? round_up(2 * codes.vector_values(), kAlignment) : 0); }
  size_t rows_bytes() const { return chunks() * blocks() * (kRowsChunkBytes + sizeof(RowFactors)); }
};
static_assert(sizeof(DigitProduct) <= kArgsMax);

// Adds a chunk's integer sums, below 2^24, as floats to the sums of earlier chunks, output by output while tiles
// multiply.
struct Adder {
  const uint8_t* integers = nullptr;
  float* sums = nullptr;
  __m512 factors{};
  uint32_t outputs = 0;

  inline LOWBIT_INLINE void add(uint32_t count) {
    for (; count > 0 && outputs > 0; count--, outputs--, integers += 64, sums += kRows) {
      const __m512 high = _mm512_cvtepi32_ps(_mm512_load_si512(integers));
      const __m512 middle = _mm512_cvtepi32_ps(_mm512_load_si512(integers + 2 * kTileBytes));
      const __m512 value = _mm512_fmadd_ps(high, _mm512_set1_ps(256), middle);
      _mm512_store_ps(sums, _mm512_fmadd_ps(value, factors, _mm512_load_ps(sums)));
    }
  }
};

// Multiplies a chunk of a panel with a chunk of 16 rows of x. Accumulators 0 and 2 sum the products of high bytes, 1
// and 3 those of high with low ones; each of 1 and 3 takes every third product. Other work follows the instructions,
// evenly: `decode(0)` .. `decode(7)` and four times `add`. CPUs look only a few tile instructions ahead, fewer where a
// second thread of the core uses tiles, too. Tile loads bypass the first-level cache, which the codebooks need.
template <class Decode, class Add>
inline LOWBIT_INLINE void multiply(const uint8_t* weights, const uint8_t* rows, const int32_t* starts,
                                                   uint32_t steps, Decode decode, Add add) {
  tile_fence();
  _tile_zero(0);
  _tile_zero(2);
  _tile_loadd(1, starts, 0);
  _tile_loadd(3, starts, 0);
  for (uint32_t s = 0; s < steps; s++, weights += kStepBytes, rows += kRowsStepBytes) {
    const uint8_t* high = weights + kPanelBytes / 2;
    _tile_stream_loadd(4, weights, 64);
    decode(0);
    _tile_stream_loadd(6, rows, 64);
    add();
    _tile_dpbusd(1, 4, 6);
    decode(1);
    _tile_stream_loadd(5, weights + kTileBytes, 64);
    decode(2);
    _tile_dpbusd(3, 5, 6);
    add();
    _tile_stream_loadd(4, high, 64);
    decode(3);
    _tile_dpbssd(0, 4, 6);
    decode(4);
    _tile_stream_loadd(7, rows + kTileBytes, 64);
    add();
    _tile_dpbssd(1, 4, 7);
    decode(5);
    _tile_stream_loadd(5, high + kTileBytes, 64);
    decode(6);
    _tile_dpbssd(3, 5, 7);
    add();
    _tile_dpbssd(2, 5, 6);
    decode(7);
  }
}

inline LOWBIT_INLINE void store_integers(uint8_t* to) {
  tile_fence();
  _tile_stored(0, to, 64);
  _tile_stored(2, to + kTileBytes, 64);
  _tile_stored(1, to + 2 * kTileBytes, 64);
  _tile_stored(3, to + 3 * kTileBytes, 64);
  tile_fence();
}

// Share of a step's decoding in the slots of `multiply`: the number of slots that decode, and of rows in each.
struct Share {
  uint32_t slots, rows;
};

Share share_of(uint32_t rows) {
  if (rows == 0) return {0, 0};
  return {rows == 1 ? 0x01u : rows == 2 ? 0x11u : rows <= 4 ? 0x55u : 0xffu, ceil_div(rows, 8)};
}

// Multiplies panels begin .. end with blocks of rows first .. last, over all of k.
template <class Source>
void multiply_panels(const DigitProduct& p, uint8_t* local, uint32_t begin, uint32_t end, uint32_t first,
                     uint32_t last) {
  const uint32_t chunks = p.chunks(), blocks = last - first;
  // Step of the sums of products of low with high bytes.
  const __m512 step = _mm512_set1_ps(256 * *p.step());
  uint8_t* offsets = local + 2 * kPanelBytes;
  uint8_t* integers = offsets + kOffsetBytes;
  float* sums = reinterpret_cast<float*>(integers + kIntegerBytes);
  const DecoderInput input = {p.codes, p.entries ? p.prepared + kAlignment : p.vectors, 1 / *p.step(), offsets};
  auto decoder_for = [&](uint32_t panel, uint32_t chunk, uint32_t turn) LOWBIT_INLINE {
    return PanelDecoder<Source>(input, panel, chunk, p.steps(chunk), local + turn * kPanelBytes);
  };
  PanelDecoder<Source> start = decoder_for(begin, 0, 0);
  start.rows(kTileRows);
  memset(sums, 0, (end - begin) * blocks * kSumBytes);
  Adder adder;
  uint32_t turn = 0;
  for (uint32_t chunk = 0; chunk < chunks; chunk++) {
    const uint32_t steps = p.steps(chunk), outputs = ceil_div(kPanel, 4 * steps);
    for (uint32_t panel = begin; panel < end; panel++, turn ^= 1) {
      const bool same = panel + 1 < end, more = same || chunk + 1 < chunks;
      PanelDecoder<Source> decoder = start;
      if (more) decoder = decoder_for(same ? panel + 1 : begin, same ? chunk : chunk + 1, turn ^ 1);
      const Share share = share_of(more ? ceil_div(kTileRows, steps * blocks) : 0);
      for (uint32_t block = 0; block < blocks; block++) {
        const RowFactors& factors = p.row_factors(chunk, first + block);
        multiply(
            local + turn * kPanelBytes, p.tiles(chunk, first + block), factors.starts, steps,
            [&](uint32_t slot) LOWBIT_INLINE {
              tile_fence();
              if (share.slots >> slot & 1) decoder.rows(share.rows);
              tile_fence();
            },
            [&]() LOWBIT_INLINE {
              tile_fence();
              adder.add(outputs);
              tile_fence();
            });
        adder.add(kPanel);
        store_integers(integers);
        float* at = sums + ((panel - begin) * blocks + block) * (kSumBytes / 4);
        adder = {integers, at, _mm512_mul_ps(_mm512_load_ps(factors.scales), step), kPanel};
      }
      if (more) decoder.rows(kTileRows);
    }
  }
  adder.add(kPanel);
  for (uint32_t panel = begin; panel < end; panel++)
    for (uint32_t block = 0; block < blocks; block++, sums += kSumBytes / 4)
      for (uint32_t half = 0; half < 2; half++)
        write_sums(p, p.stream, panel * kPanel + 16 * half, (first + block) * kRows, sums + half * 16 * kRows);
}

void prepare_codebooks(const DigitProduct& p) {
  const float step = codebook_step(p);
  *p.step() = step;
  if (p.entries) prepare_entries(p, step, p.prepared + kAlignment);
}

// Transposes part of the chunks of a block of rows.
void turn_item(const DigitProduct& p, uint32_t item) {
  const uint32_t block = item / p.turn_parts, part = item % p.turn_parts;
  const uint32_t chunks = p.chunks(), each = ceil_div(chunks, p.turn_parts);
  for (uint32_t chunk = part * each; chunk < std::min(chunks, (part + 1) * each); chunk++) {
    const size_t at = size_t{chunk} * p.blocks() + block;
    turn_rows(p, block * kRows, chunk * kChunk, p.rows + at * kRowsChunkBytes, p.factors + at);
  }
}

template <class Source>
void digits_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread) {
  const DigitProduct& p = step.as<DigitProduct>();
  if (phase == 0) {
    if (tile == 0) prepare_codebooks(p);
    else turn_item(p, tile - 1);
    return;
  }
  const TileScope scope;
  const uint32_t begin = tile * p.item_panels, end = std::min(p.panels(), begin + p.item_panels);
  for (uint32_t block = 0; block < p.blocks(); block += kBlocksMax)
    multiply_panels<Source>(p, p.local + thread * p.local_bytes, begin, end, block,
                            std::min(p.blocks(), block + kBlocksMax));
  if (p.stream) _mm_sfence();
}

DigitProduct read_digit_product(const Call& call) {
  DigitProduct p{read_arguments(call)};
  const Codes& w = p.codes;
  const bool whole_codes = w.mask == (w.code_bytes == 1 ? 0xff : 0xffff);
  p.entries = w.in_group == 8 && w.out_group == 1 && whole_codes && w.codebooks <= (w.code_bytes == 1 ? 2 : 1);
  const uint32_t share = p.panels() / (8 * call.threads);
  p.item_panels = static_cast<uint16_t>(std::min(kPanelsMax, std::max(2u, share)));
  p.turn_parts = static_cast<uint16_t>(std::min(p.chunks(), 4u));
  const size_t blocks = std::min(p.blocks(), kBlocksMax);
  p.local_bytes = 2 * kPanelBytes + kOffsetBytes + kIntegerBytes + p.item_panels * blocks * kSumBytes;
  return p;
}

size_t digits_scratch(const Call& call) {
  const DigitProduct p = read_digit_product(call);
  return p.prepared_bytes() + p.rows_bytes() + call.threads * p.local_bytes;
}

decltype(Step::run) digits_run_for(const DigitProduct& p) {
  const bool bytes = p.codes.code_bytes == 1;
  if (p.entries && !bytes) return digits_run<Entries<uint16_t, 1>>;
  if (p.entries) return p.codes.codebooks == 2 ? digits_run<Entries<uint8_t, 2>> : digits_run<Entries<uint8_t, 1>>;
  if (bytes) return p.half_vectors ? digits_run<Vectors<uint8_t, uint16_t>> : digits_run<Vectors<uint8_t, float>>;
  return p.half_vectors ? digits_run<Vectors<uint16_t, uint16_t>> : digits_run<Vectors<uint16_t, float>>;
}

void digits_prepare(Step& step, const Call& call) {
  const auto given = arguments_of<AqlmArguments>(call);
  DigitProduct& p = step.init<DigitProduct>();
  p = read_digit_product(call);
  p.prepared = static_cast<uint8_t*>(given.scratch);
  p.rows = p.prepared + p.prepared_bytes();
  p.factors = reinterpret_cast<RowFactors*>(p.rows + size_t{p.chunks()} * p.blocks() * kRowsChunkBytes);
  p.local = p.rows + p.rows_bytes();
  p.stream = bypasses_caches(p.y, p.m, p.codes.n, kStreamBytes);
  step.phases = 2;
  step.tiles[0] = 1 + p.blocks() * p.turn_parts;
  step.tiles[1] = ceil_div(p.panels(), p.item_panels);
  step.run = digits_run_for(p);
}

constexpr uint32_t kNeeds = kAvx2 | kAvx512 | kAvx512Vnni | kAmxInt8;

constexpr KernelRow kTable[] = {
    {"aqlm_i16_c8_13x32x64_amx_int8", "aqlm", "aqlm_tiles8", 0, kNeeds, 13, 32, digits_scratch, digits_prepare},
    {"aqlm_i16_cx_4x32x64_amx_int8", "aqlm", "aqlm_tiles", 0, kNeeds, 4, 32, digits_scratch, digits_prepare},
};

}  // namespace
}  // namespace aqlm

KernelRows aqlm_digits_amx_rows() { return {aqlm::kTable, sizeof aqlm::kTable / sizeof *aqlm::kTable}; }

}  // namespace lowbit
