// AQLM on AVX2 for 8-bit codes by lookup tables of 12-bit sums: a plane of the upper 8 bits and one of the lower 4
// bits, two entries per byte. vpshufb looks up 32 outputs at a time. Flags: see scripts/native/sources.js.
//
// Entries are rounded to a step shared by 16 groups of inputs, 1/2047 of the largest entry, which makes some 8e-4 of a
// result; 8-bit activations make 5e-3. (16 bits took a quarter more time, 8 bits made 1.4e-2.)
#include <immintrin.h>

#include "../codes.h"
#include "kernel.h"
#include "vector_pairs.h"

namespace lowbit {
namespace aqlm {
namespace {

// Entries are -2047 .. 2047, stored with kZero added.
constexpr int kZero = 2048, kEntryMax = 2047;
// Entries that bits 0 to 5 of a code select from, and entries per shuffle.
constexpr uint32_t kChunk = 64, kShuffle = 16;
constexpr uint32_t kUpperPlane = kEntries, kTable = kUpperPlane + kEntries / 2;
// Rows of codes whose sums of 4-bit parts fit bytes.
constexpr uint32_t kByteRows = 16;

inline LOWBIT_INLINE __m256i load256(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}
inline LOWBIT_INLINE void store256(void* to, __m256i v) {
  _mm256_storeu_si256(static_cast<__m256i*>(to), v);
}

// x . vector of 8 entries, both in steps, in the upper half of words, rounded by the start in the lower half.
template <uint32_t Pairs>
inline LOWBIT_INLINE __m256i sum8(const int32_t* pairs, const int16_t* x, uint32_t count) {
  __m256i sum = _mm256_set1_epi32(0x8000);
  for (uint32_t q = 0; q < (Pairs == 0 ? count : Pairs); q++) {
    int32_t two;
    memcpy(&two, x + 2 * q, 4);
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_set1_epi32(two), load256(pairs + q * kEntries)));
  }
  return _mm256_srai_epi32(sum, 16);
}

// Computes 16-bit sums [groups][codebooks][256] of a block; in each 16 the middle two fours are swapped. Returns the
// largest magnitude.
template <uint32_t Pairs>
int32_t sum_entries(const Product& p, uint32_t groups, const int16_t* x, int16_t* sums) {
  const uint32_t pairs = p.codes.in_group / 2;
  __m256i peak = _mm256_setzero_si256();
  for (uint32_t g = 0; g < groups; g++, x += p.codes.in_group) {
    const int32_t* from = prepared_vectors<int32_t>(p.prepared).values;
    for (uint32_t c = 0; c < p.codes.codebooks; c++, from += pairs * kEntries)
      for (uint32_t e = 0; e < kEntries; e += 16, sums += 16) {
        const __m256i both = _mm256_packs_epi32(sum8<Pairs>(from + e, x, pairs), sum8<Pairs>(from + e + 8, x, pairs));
        peak = _mm256_max_epi16(peak, _mm256_abs_epi16(both));
        store256(sums, both);
      }
  }
  int16_t peaks[16];
  store256(peaks, peak);
  return *std::max_element(peaks, peaks + 16);
}

// Bytes of 32 entries, in the order before sum_entries.
inline LOWBIT_INLINE __m256i in_order(__m256i first, __m256i second) {
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  return _mm256_permutevar8x32_epi32(_mm256_packus_epi16(first, second), order);
}

// Stores a chunk, each 16 entries as exclusive or with the 16 before: the exclusive or of what the shuffles find is the
// entry.
inline LOWBIT_INLINE void store_chunk(__m256i first, __m256i second, uint8_t* chunk) {
  store256(chunk, _mm256_xor_si256(first, _mm256_permute2x128_si256(first, first, 0x08)));
  store256(chunk + 32, _mm256_xor_si256(second, _mm256_permute2x128_si256(first, second, 0x21)));
}

// Packs a table of sums times `factor` / 2^15.
static inline void pack_table(const int16_t* sums, __m256i factor, uint8_t* table) {
  __m256i lower[kEntries / 32];
  for (uint32_t chunk = 0; chunk < kEntries / kChunk; chunk++) {
    __m256i upper[2];
    for (uint32_t i = 0; i < 2; i++, sums += 32) {
      const __m256i zero = _mm256_set1_epi16(kZero), low4 = _mm256_set1_epi16(15);
      const __m256i first = _mm256_add_epi16(_mm256_mulhrs_epi16(load256(sums), factor), zero);
      const __m256i second = _mm256_add_epi16(_mm256_mulhrs_epi16(load256(sums + 16), factor), zero);
      upper[i] = in_order(_mm256_srli_epi16(first, 4), _mm256_srli_epi16(second, 4));
      lower[2 * chunk + i] = in_order(_mm256_and_si256(first, low4), _mm256_and_si256(second, low4));
    }
    store_chunk(upper[0], upper[1], table + chunk * kChunk);
  }
  // Entries of codes with bit 7 are in the upper halves of bytes.
  for (uint32_t i = 0; i < 4; i++) lower[i] = _mm256_or_si256(lower[i], _mm256_slli_epi16(lower[4 + i], 4));
  for (uint32_t i = 0; i < 4; i += 2) store_chunk(lower[i], lower[i + 1], table + kUpperPlane + i * 32);
}

// Memory of a thread: sums, then tables.
struct TableMemory {
  int16_t* sums;
  uint8_t* tables;
};

static inline size_t table_rows(const Codes& codes) { return static_cast<size_t>(kBlock) * codes.codebooks; }

// Builds the tables [groups][codebooks] of a block for a row of x; returns their step.
static inline float build_tables(const Product& p, uint32_t block, const float* x, const TableMemory& own) {
  const uint32_t length = p.codes.in_group, groups = p.codes.block_groups(block);
  const auto vectors = prepared_vectors<int32_t>(p.prepared);
  alignas(16) int16_t inputs[kBlock * kInGroupMax];
  const float step =
      quantize_inputs(x + static_cast<size_t>(block) * kBlock * length, groups, length, *vectors.longest, inputs);
  const int32_t largest = (length == 8 ? sum_entries<4> : sum_entries<0>)(p, groups, inputs, own.sums);
  const int32_t factor = std::min((kEntryMax << 15) / std::max(largest, 1), 0x7fff);
  for (uint32_t row = 0; row < groups * p.codes.codebooks; row++)
    pack_table(own.sums + row * kEntries, _mm256_set1_epi16(static_cast<int16_t>(factor)), own.tables + row * kTable);
  return step * *vectors.step * 0x1p31f / static_cast<float>(factor);
}

// Vectors of codes per reading of a table.
constexpr uint32_t kVectors = kTile / 32;

// Looks up, in each chunk, the codes whose bits 0 to 5 are in `index`; steps through the 16s of the chunks down and up
// in turn.
template <uint32_t Chunks, bool Down>
inline LOWBIT_INLINE void look_up_chunks(const uint8_t* plane, __m256i* index,
                                                         __m256i (*entries)[kVectors]) {
  const __m256i step = _mm256_set1_epi8(Down ? int{kShuffle} : -int{kShuffle});
  for (uint32_t i = 0; i < kChunk / kShuffle; i++) {
    const uint8_t* at = plane + (Down ? i * kShuffle : kChunk - (i + 1) * kShuffle);
    for (uint32_t v = 0; v < kVectors; v++) {
      // An index below 0 finds 0.
      __m256i next = i == 0 ? index[v] : _mm256_sub_epi8(index[v], step);
      // Here and below: keeps sums in registers, and tables out of them.
      __asm__("" : "+x"(next));
      index[v] = next;
    }
    for (uint32_t c = 0; c < Chunks; c++) {
      const __m128i* part = reinterpret_cast<const __m128i*>(at + c * kChunk);
      const __m256i table = _mm256_broadcastsi128_si256(_mm_load_si128(part));
      for (uint32_t v = 0; v < kVectors; v++) {
        const __m256i found = _mm256_shuffle_epi8(table, index[v]);
        __m256i sum = i == 0 ? found : _mm256_xor_si256(entries[c][v], found);
        __asm__("" : "+x"(sum));
        entries[c][v] = sum;
      }
    }
  }
}

// Bytes of `b` where bit 7 of `choice` is set, else of `a`. Assembly, since GCC adds a comparison to the intrinsic.
inline LOWBIT_INLINE __m256i choose(__m256i a, __m256i b, __m256i choice) {
  __asm__("vpblendvb %2, %1, %0, %0" : "+x"(a) : "x"(b), "x"(choice));
  return a;
}

// Sums of bytes in 16-bit lanes: `both` sums whole lanes, which the odd bytes spoil, `odd` the odd bytes alone.
struct ByteSums {
  __m256i both = _mm256_setzero_si256(), odd = _mm256_setzero_si256();
  void add(__m256i bytes) {
    both = _mm256_add_epi16(both, bytes);
    odd = _mm256_add_epi16(odd, _mm256_srli_epi16(bytes, 8));
  }
  __m256i even() const { return _mm256_sub_epi16(both, _mm256_slli_epi16(odd, 8)); }
};

// Looks up 64 codes; adds the upper parts to `upper`, the lower ones to the bytes of `lower`.
inline LOWBIT_INLINE void add_entries(const uint8_t* codes, const uint8_t* table, ByteSums* upper,
                                                      __m256i* lower) {
  const __m256i low6 = _mm256_set1_epi8(kChunk - 1), low4 = _mm256_set1_epi8(15);
  __m256i index[kVectors], found[4][kVectors];
  for (uint32_t v = 0; v < kVectors; v++) index[v] = _mm256_and_si256(load256(codes + 32 * v), low6);
  // Reloads the codes rather than keeping them.
  __asm__("" : "+r"(codes));
  look_up_chunks<4, true>(table, index, found);
  for (uint32_t v = 0; v < kVectors; v++) {
    const __m256i bit7 = load256(codes + 32 * v), bit6 = _mm256_add_epi8(bit7, bit7);
    upper[v].add(choose(choose(found[0][v], found[1][v], bit6), choose(found[2][v], found[3][v], bit6), bit7));
  }
  look_up_chunks<2, false>(table + kUpperPlane, index, found);
  for (uint32_t v = 0; v < kVectors; v++) {
    const __m256i bit7 = load256(codes + 32 * v), bit6 = _mm256_add_epi8(bit7, bit7);
    const __m256i two = choose(found[0][v], found[1][v], bit6);
    lower[v] = _mm256_add_epi8(lower[v], _mm256_and_si256(choose(two, _mm256_srli_epi16(two, 4), bit7), low4));
  }
}

// Sums of a tile in a block: 16 * upper + lower, less what entries have added, times the step.
struct BlockSums {
  int32_t zero;
  float step;
  // Whether the block is the first of the slice.
  bool first;

  // Stores eight sums, added to those of the slice's earlier blocks.
  void store8(__m128i upper, __m128i lower, float* y) const {
    const __m256i whole =
        _mm256_add_epi32(_mm256_slli_epi32(_mm256_cvtepu16_epi32(upper), 4), _mm256_cvtepu16_epi32(lower));
    const __m256 sums = _mm256_cvtepi32_ps(_mm256_sub_epi32(whole, _mm256_set1_epi32(zero)));
    const __m256 before = first ? _mm256_setzero_ps() : _mm256_loadu_ps(y);
    _mm256_storeu_ps(y, _mm256_fmadd_ps(sums, _mm256_set1_ps(step), before));
  }
  void store16(__m256i upper, __m256i lower, float* y) const {
    store8(_mm256_castsi256_si128(upper), _mm256_castsi256_si128(lower), y);
    store8(_mm256_extracti128_si256(upper, 1), _mm256_extracti128_si256(lower, 1), y + 8);
  }
};

static inline void tile_sums(const uint8_t* codes, const uint8_t* tables, uint32_t rows, const BlockSums& block,
                             float* y) {
  ByteSums upper[kVectors], lower[kVectors];
  const uint32_t tile_bytes = rows * kTile;
  for (uint32_t row = 0; row < rows;) {
    __m256i bytes[kVectors] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    for (const uint32_t last = std::min(rows, row + kByteRows); row < last; row++, codes += kTile, tables += kTable) {
      // Prefetches the same codes of the next tile.
      _mm_prefetch(reinterpret_cast<const char*>(codes + tile_bytes), _MM_HINT_T0);
      add_entries(codes, tables, upper, bytes);
    }
    for (uint32_t v = 0; v < kVectors; v++) lower[v].add(bytes[v]);
  }
  for (uint32_t v = 0; v < kVectors; v++) {
    block.store16(upper[v].even(), lower[v].even(), y + 16 * v);
    block.store16(upper[v].odd, lower[v].odd, y + kTile / 2 + 16 * v);
  }
}

static inline void lut12_item(const Product& p, const Item& item, const TableMemory& own) {
  for (uint32_t block = item.first_block; block < item.last_block; block++) {
    const uint32_t rows = p.codes.block_groups(block) * p.codes.codebooks;
    for (uint32_t row = 0; row < p.m; row++) {
      const float step = build_tables(p, block, p.x + static_cast<size_t>(row) * p.codes.k, own);
      const BlockSums sums = {static_cast<int32_t>(rows) * kZero, step, block == item.first_block};
      float* y = p.slice_sums(item.slice, row);
      for (uint32_t tile = item.first_tile; tile < item.last_tile; tile++)
        tile_sums(p.codes.tile(block, tile), own.tables, rows, sums, y + tile * kTile);
    }
  }
}

void lut12_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread) {
  const Product& p = step.as<Product>();
  if (phase == 0) return prepare_vectors<true>(p, kWordMax, prepared_vectors<int32_t>(p.prepared));
  if (phase == 2) return add_slices(p, tile, step.tiles[2]);
  uint8_t* own = p.own + static_cast<size_t>(thread) * p.own_bytes;
  lut12_item(p, item_at(p, tile), {reinterpret_cast<int16_t*>(own), own + 2 * kEntries * table_rows(p.codes)});
}

Memory lut12_memory(const Codes& codes) { return {prepared_bytes(codes), (2 * kEntries + kTable) * table_rows(codes)}; }

size_t lut12_scratch(const Call& call) {
  const auto given = arguments_of<AqlmArguments>(call);
  const Codes codes = read_codes(given.codes);
  return product_bytes(codes, given.m, call.threads, lut12_memory(codes));
}

void lut12_prepare(Step& step, const Call& call) {
  const auto given = arguments_of<AqlmArguments>(call);
  Product& p = init_product(step, call, lut12_memory(read_codes(given.codes)));
  split_product(step, p, call.threads, 1);
  step.tiles[0] = 1;
  step.run = lut12_run;
}

constexpr KernelRow kRows[] = {
    {"aqlm_lut12_c8_1x64x128_avx2", "aqlm", "aqlm_tiles8", 0, kAvx2, 1, 64, lut12_scratch, lut12_prepare},
};

}  // namespace
}  // namespace aqlm

KernelRows aqlm_lut_avx2_rows() { return {aqlm::kRows, sizeof aqlm::kRows / sizeof *aqlm::kRows}; }

}  // namespace lowbit
