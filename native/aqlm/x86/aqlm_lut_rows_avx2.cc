// AQLM on AVX2 for codes of 8 bits and several rows of x: an entry of a table is a vector of sums, of 8 or 16 rows, and a
// code's vector is loaded and added to those of its output. Flags: see scripts/native-sources.js.
//
// Entries are rounded to a step that is the same for a run of groups and such that sums of 16 bits hold those of a run: both
// roundings make some 4e-4 of a result.
#include <immintrin.h>

#include "../../linear/float_panels.h"
#include "../../x86/floats_avx2.h"
#include "../codes.h"
#include "../rows.h"
#include "vector_pairs.h"

namespace lowbit {
namespace aqlm {
namespace {

// Tables of a run with groups of 8 inputs, at most, and pairs of inputs of a run.
constexpr uint32_t kRunTables = 12, kRunPairs = 128;
// Codebooks whose tables lie in the nearest cache at a time.
constexpr uint32_t kBooks = 2;
// Tiles whose sums lie in the caches, at most; work items that there are at least, where blocks are many enough.
constexpr uint32_t kChunkTiles = 128, kItems = 16;
// Tiles whose codes are fetched ahead.
constexpr uint32_t kTilesAhead = 2;
constexpr float kVectorMax = 4095;
// What lengths of groups times lengths of vectors of a run may sum up to, of the upper halves of words that 16 bits hold.
// The rest is for rounding: 1/2 of each table, 1/32 of each input of one, 1/250 of vectors.
constexpr float kRunMax = 0x7f00 * 0x1p16f;

// Sums of 8 rows of x, and of 16.
struct Sums8 {
  static constexpr uint32_t kRows = 8;
  using V = __m128i;
  static V add(V a, V b) { return _mm_add_epi16(a, b); }
  // Upper halves of words.
  static V join(const __m256i* words) {
    const __m256i sums = _mm256_srai_epi32(words[0], 16);
    return _mm_packs_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
  }
  // The sums of 8 rows as upper halves of words.
  static __m256i words(V sums, uint32_t) { return _mm256_slli_epi32(_mm256_cvtepi16_epi32(sums), 16); }
};

struct Sums16 {
  static constexpr uint32_t kRows = 16;
  using V = __m256i;
  static V add(V a, V b) { return _mm256_add_epi16(a, b); }
  static V join(const __m256i* words) { return _mm256_blend_epi16(_mm256_srli_epi32(words[0], 16), words[1], 0xaa); }
  static __m256i words(V sums, uint32_t index) {
    return index == 0 ? _mm256_slli_epi32(sums, 16) : _mm256_and_si256(sums, _mm256_set1_epi32(static_cast<int>(0xffff0000)));
  }
};

struct Batches : Arguments {
  // Rows of x of a batch.
  uint32_t rows;
  // Of rows, of tiles, of blocks; a work item is one of each.
  uint32_t batches, chunk_tiles, chunks, slice_blocks, slices;
  // Groups and codebooks of a run.
  uint32_t run_groups, run_books;
  uint32_t own_bytes;
  // Scratch: prepared codebooks, sums [slices][batches][tiles][64 codes][rows], memory of each thread.
  uint8_t* prepared;
  float* sums;
  uint8_t* own;

  size_t sums_count() const { return size_t{slices} * batches * codes.tiles * kTile * rows; }
  float* tile_sums(uint32_t slice, uint32_t batch, uint32_t tile) const {
    return sums + ((size_t{slice} * batches + batch) * codes.tiles + tile) * kTile * rows;
  }
};

// Memory of a thread: sums of a run [tiles][64 codes], tables [kBooks][256].
template <class Sums>
struct RunMemory {
  typename Sums::V* sums;
  typename Sums::V* tables;
};

// Pairs of inputs of a run as words [pairs][rows]; the steps of the rows' sums.
template <class Sums>
struct RunInputs {
  alignas(32) int32_t pairs[kRunPairs][Sums::kRows];
  alignas(32) float steps[Sums::kRows];
};

template <class Sums>
void quantize_row(const Batches& p, const float* x, uint32_t groups, uint32_t row, RunInputs<Sums>* run) {
  const uint32_t length = p.codes.in_group;
  const PreparedVectors vectors = prepared_vectors(p.prepared);
  Magnitudes all;
  for (uint32_t i = 0; i < groups * length; i += 8) all.add(_mm256_loadu_ps(x + i));
  const float largest = all.largest();
  float lengths = 0;
  for (uint32_t g = 0; g < groups; g++)
    lengths += std::sqrt(longest_square(length, length, _mm256_set1_ps(1 / largest),
                                        [&](size_t i) { return _mm256_loadu_ps(x + g * length + i); }));
  lengths *= std::min(*vectors.lengths, *vectors.longest * static_cast<float>(p.run_books));
  const float step = largest * std::max(1 / kWordMax, lengths / kRunMax) + all.zero();
  const __m256 inverse = _mm256_set1_ps(1 / step);
  for (uint32_t i = 0; i < groups * length; i += 8) {
    alignas(16) int32_t four[4];
    _mm_store_si128(reinterpret_cast<__m128i*>(four), round8(_mm256_loadu_ps(x + i), inverse));
    for (uint32_t q = 0; q < 4; q++) run->pairs[i / 2 + q][row] = four[q];
  }
  run->steps[row] = step * *vectors.step;
}

// A table of a group's `count` pairs, `Pairs` unless that is 0.
template <class Sums, uint32_t Pairs>
void build_table(const int32_t* vectors, const int32_t (*x)[Sums::kRows], uint32_t count, typename Sums::V* table) {
  constexpr uint32_t kWords = Sums::kRows / 8;
  const uint32_t pairs = Pairs == 0 ? count : Pairs;
  // Few enough pairs stay in registers.
  __m256i rows[Pairs == 0 ? kInGroupMax / 2 : Pairs][kWords];
  for (uint32_t q = 0; q < pairs; q++)
    for (uint32_t w = 0; w < kWords; w++) rows[q][w] = _mm256_load_si256(reinterpret_cast<const __m256i*>(x[q]) + w);
  for (uint32_t e = 0; e < kEntries; e++, vectors += pairs) {
    __m256i words[kWords];
    // Rounds.
    for (auto& word : words) word = _mm256_set1_epi32(0x8000);
    for (uint32_t q = 0; q < pairs; q++) {
      const __m256i both = _mm256_set1_epi32(vectors[q]);
      for (uint32_t w = 0; w < kWords; w++) words[w] = _mm256_add_epi32(words[w], _mm256_madd_epi16(both, rows[q][w]));
    }
    table[e] = Sums::join(words);
  }
}

// Adds to a run's sums, or begins them.
template <class Sums, bool Begins>
struct AddToSums {
  using V = typename Sums::V;
  V* sums;

  void operator()(size_t i, V found) const { sums[i] = Begins ? found : Sums::add(sums[i], found); }
};

// Ends a run: adds its sums as floats to those of the slice's earlier runs.
template <class Sums, bool Begins>
struct AddToTotals {
  using V = typename Sums::V;
  V* sums;
  const float* steps;
  float* totals;
  bool first_run;

  void operator()(size_t i, V found) const {
    const V sum = Begins ? found : Sums::add(sums[i], found);
    for (uint32_t row = 0; row < Sums::kRows; row += 8) {
      float* to = totals + i * Sums::kRows + row;
      const __m256 floats = _mm256_cvtepi32_ps(Sums::words(sum, row / 8));
      const __m256 before = first_run ? _mm256_setzero_ps() : _mm256_load_ps(to);
      _mm256_store_ps(to, _mm256_fmadd_ps(floats, _mm256_load_ps(steps + row), before));
    }
  }
};

// Gives `add` what is found for a group and `Books` codebooks in tiles, whose codes are `stride` apart. Meanwhile those of
// tiles ahead, and of the next block, `next` on, are fetched.
template <class Sums, uint32_t Books, class Add>
void add_group(const uint8_t* codes, size_t stride, size_t next, uint32_t tiles, const typename Sums::V* tables, Add add) {
  for (uint32_t tile = 0; tile < tiles; tile++, codes += stride) {
    for (uint32_t b = 0; b < Books; b++) {
      _mm_prefetch(reinterpret_cast<const char*>(codes + next + b * kTile), _MM_HINT_T1);
      _mm_prefetch(reinterpret_cast<const char*>(codes + kTilesAhead * stride + b * kTile), _MM_HINT_T0);
    }
    for (uint32_t lane = 0; lane < kTile; lane += 8) {
      uint64_t eight[Books];
      for (uint32_t b = 0; b < Books; b++) memcpy(eight + b, codes + b * kTile + lane, 8);
#pragma GCC unroll 8
      for (uint32_t i = 0; i < 8; i++) {
        typename Sums::V found = tables[eight[0] >> 8 * i & 255];
        if (Books > 1) found = Sums::add(found, tables[kEntries + (eight[Books - 1] >> 8 * i & 255)]);
        add(size_t{tile} * kTile + lane + i, found);
      }
    }
  }
}

// The tiles of a chunk.
struct Chunk {
  uint32_t tile, tiles;
};

// The runs of `groups` groups of a block from `first` on.
template <class Sums>
void sum_runs(const Batches& p, uint32_t block, uint32_t first, uint32_t groups, Chunk chunk, const RunInputs<Sums>& run,
              const RunMemory<Sums>& own, float* totals, bool first_run) {
  const uint32_t books = p.codes.codebooks, pairs = p.codes.in_group / 2;
  const int32_t* vectors = prepared_vectors(p.prepared).pairs;
  const size_t stride = size_t{p.codes.block_groups(block)} * books * kTile;
  const auto build = pairs == 4 ? build_table<Sums, 4> : build_table<Sums, 0>;
  for (uint32_t i = 0; i < ceil_div(books, p.run_books) * groups; i++) {
    const uint32_t g = i % groups, first_book = i / groups * p.run_books, last = std::min(books, first_book + p.run_books);
    for (uint32_t book = first_book; book < last; book += kBooks) {
      const uint32_t count = std::min(kBooks, last - book);
      for (uint32_t b = 0; b < count; b++)
        build(vectors + size_t{book + b} * kEntries * pairs, run.pairs + g * pairs, pairs, own.tables + b * kEntries);
      const uint8_t* codes = p.codes.tile(block, chunk.tile) + ((first + g) * books + book) * kTile;
      auto add = [&](auto target) {
        const auto add_count = count == 1 ? add_group<Sums, 1, decltype(target)>
                                          : add_group<Sums, 2, decltype(target)>;
        add_count(codes, stride, stride * p.codes.tiles, chunk.tiles, own.tables, target);
      };
      const bool begins = g == 0 && book == first_book, ends = g + 1 == groups && book + count == last;
      if (begins && ends) add(AddToTotals<Sums, true>{own.sums, run.steps, totals, first_run});
      else if (ends) add(AddToTotals<Sums, false>{own.sums, run.steps, totals, first_run});
      else if (begins) add(AddToSums<Sums, true>{own.sums});
      else add(AddToSums<Sums, false>{own.sums});
      first_run = first_run && !ends;
    }
  }
}

template <class Sums>
void batch_item(const Batches& p, uint32_t index, const RunMemory<Sums>& own) {
  constexpr uint32_t kRows = Sums::kRows;
  const uint32_t slice = index % p.slices, batch = index / p.slices / p.chunks;
  const uint32_t first_block = slice * p.slice_blocks, last_block = std::min(p.codes.blocks, first_block + p.slice_blocks);
  const uint32_t tile = index / p.slices % p.chunks * p.chunk_tiles;
  const Chunk chunk = {tile, std::min(p.chunk_tiles, p.codes.tiles - tile)};
  const uint32_t rows = std::min(kRows, p.m - batch * kRows);
  RunInputs<Sums> run{};
  float* totals = p.tile_sums(slice, batch, tile);
  for (uint32_t block = first_block; block < last_block; block++)
    for (uint32_t first = 0; first < p.codes.block_groups(block); first += p.run_groups) {
      const uint32_t groups = std::min(p.run_groups, p.codes.block_groups(block) - first);
      const float* x = p.x + size_t{batch} * kRows * p.codes.k + (size_t{block} * kBlock + first) * p.codes.in_group;
      for (uint32_t row = 0; row < rows; row++, x += p.codes.k) quantize_row<Sums>(p, x, groups, row, &run);
      sum_runs<Sums>(p, block, first, groups, chunk, run, own, totals, block == first_block && first == 0);
    }
}

// y of 8 outputs from `output` on, at `place` of a tile, and a batch of rows: adds the slices.
static inline void write_outputs(const Batches& p, uint32_t tile, uint32_t place, uint32_t batch) {
  const uint32_t output = tile * kTile + place, count = std::min(8u, p.codes.n - output);
  alignas(32) float scales[8] = {};
  for (uint32_t i = 0; i < count; i++) scales[i] = float_at(p.scales, p.half_scales, output + i);
  const __m256 bias = p.bias ? FloatsAvx2::load_some(p.bias + output, count) : _mm256_setzero_ps();
  for (uint32_t first = 0; first < p.rows && batch * p.rows + first < p.m; first += 8) {
    __m256 v[8];
    for (uint32_t i = 0; i < 8; i++) {
      v[i] = _mm256_setzero_ps();
      for (uint32_t slice = 0; slice < p.slices; slice++)
        v[i] = _mm256_add_ps(v[i], _mm256_load_ps(p.tile_sums(slice, batch, tile) + lane_of(place + i) * p.rows + first));
    }
    transpose<FloatsAvx2>(v);
    const uint32_t row = batch * p.rows + first;
    for (uint32_t i = 0; i < std::min(8u, p.m - row); i++) {
      const __m256 y = _mm256_add_ps(_mm256_mul_ps(v[i], _mm256_load_ps(scales)), bias);
      float* to = p.y + size_t{row + i} * p.codes.n + output;
      // Masked stores take long.
      if (count == 8) FloatsAvx2::store(to, y);
      else FloatsAvx2::store_some(to, y, count);
    }
  }
}

template <class Sums>
void batches_run(const Step& step, uint32_t phase, uint32_t index, uint32_t thread) {
  const Batches& p = step.as<Batches>();
  if (phase == 0) return prepare_vectors<false>(p, kVectorMax, prepared_vectors(p.prepared));
  if (phase == 1) {
    auto* own = reinterpret_cast<typename Sums::V*>(p.own + size_t{thread} * p.own_bytes);
    return batch_item<Sums>(p, index, {own, own + size_t{p.chunk_tiles} * kTile});
  }
  for (uint32_t batch = 0; batch < p.batches; batch++)
    for (uint32_t place = 0; place < kTile && index * kTile + place < p.codes.n; place += 8)
      write_outputs(p, index, place, batch);
}

// How a product is split, which depends on its sizes only; `memory` begins anywhere.
static inline Batches split_batches(const Call& call, void* memory) {
  Batches p{read_arguments(call)};
  p.rows = p.m <= Sums8::kRows ? Sums8::kRows : Sums16::kRows;
  p.batches = ceil_div(p.m, p.rows);
  p.chunks = ceil_div(p.codes.tiles, kChunkTiles);
  p.chunk_tiles = ceil_div(p.codes.tiles, p.chunks);
  // Entries of tables grow with the root of a group's inputs, bounds with the inputs.
  const uint32_t tables = static_cast<uint32_t>(kRunTables * std::sqrt(8.0f / static_cast<float>(p.codes.in_group)));
  p.run_books = std::min(p.codes.codebooks, tables);
  // No run is longer than as many runs of a block need.
  p.run_groups = ceil_div(kBlock, ceil_div(kBlock, std::max(1u, tables / p.codes.codebooks)));
  p.slice_blocks = ceil_div(p.codes.blocks, std::min(kSlices, ceil_div(kItems, p.batches * p.chunks)));
  p.slices = ceil_div(p.codes.blocks, p.slice_blocks);
  p.own_bytes = 2 * p.rows * (p.chunk_tiles * kTile + kBooks * kEntries);
  p.prepared = reinterpret_cast<uint8_t*>(round_up(reinterpret_cast<uintptr_t>(memory), kAlignment));
  p.sums = reinterpret_cast<float*>(p.prepared + round_up(prepared_bytes(p.codes), kAlignment));
  p.own = reinterpret_cast<uint8_t*>(p.sums + p.sums_count());
  return p;
}

size_t batches_scratch(const Call& call) {
  const Batches p = split_batches(call, nullptr);
  return kAlignment + reinterpret_cast<uintptr_t>(p.own) + size_t{call.threads} * p.own_bytes;
}

void batches_prepare(Step& step, const Call& call) {
  Batches& p = step.init<Batches>();
  p = split_batches(call, call.buffers[6]);
  step.phases = 3;
  step.tiles[0] = 1;
  step.tiles[1] = p.batches * p.chunks * p.slices;
  step.tiles[2] = p.codes.tiles;
  step.run = p.rows == Sums8::kRows ? batches_run<Sums8> : batches_run<Sums16>;
}

constexpr KernelRow kRowTable[] = {
    {"aqlm_lut16_c8_4x64x48_avx2", "aqlm", "aqlm_tiles8", 0, kAvx2, 4, 64, batches_scratch, batches_prepare},
    // The same code, ahead of rows for many rows of x of other files.
    {"aqlm_lut16_c8_16x64x48_avx2", "aqlm", "aqlm_tiles8", 0, kAvx2, 16, 64, batches_scratch, batches_prepare},
};

}  // namespace
}  // namespace aqlm

KernelRows aqlm_lut_rows_avx2_rows() { return {aqlm::kRowTable, sizeof aqlm::kRowTable / sizeof *aqlm::kRowTable}; }

}  // namespace lowbit
