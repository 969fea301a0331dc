// AQLM on AVX-512 VBMI for 8-bit codes by lookup tables of 16-bit sums: tables are in registers, as a plane of low and
// one of high bytes, and vpermb looks up 64 outputs at a time. Flags: see scripts/native/sources.js.
//
// A table entry is x . vector / (x_step * vector_step), both rounded to 16 bits, in the upper half of a 32-bit sum,
// plus 2^15, which makes the bytes unsigned. All roundings together make some 1e-4 of a result, 8-bit activations 5e-3
// (tables of 12 bits would make 1.5e-3, of 8 bits 2e-2). Sums of bytes stay below 2^16: 256 rows of codes.
#include <immintrin.h>

#include "../codes.h"
#include "kernel.h"
#include "vector_pairs.h"

namespace lowbit {
namespace aqlm {
namespace {

constexpr uint32_t kPlane = 256, kTable = 2 * kPlane;
// Tiles processed side by side, a stream from memory each: with four, sums no longer fit the registers.
constexpr uint32_t kTilesAtOnce = 3;
// Most blocks of a run, which shares one step and keeps sums of bytes; and most rows of codes of a run.
constexpr uint32_t kRunBlocks = 4, kRunRows = 256;
// Half the range of a 32-bit sum, which makes it unsigned, plus half a unit of its upper half, which rounds.
constexpr uint32_t kSumStart = 0x80008000;
// Builds 64 entries of a table, low and high bytes. `pairs` points to the first pair of the first entry; an entry has
// `Pairs` pairs, `count` if `Pairs` is 0.
template <uint32_t Pairs>
inline void build_entries(const int32_t* pairs, const int16_t* x, uint32_t count, uint8_t* table) {
  __m512i sums[4];
  for (auto& sum : sums) sum = _mm512_set1_epi32(static_cast<int32_t>(kSumStart));
  for (uint32_t q = 0; q < (Pairs == 0 ? count : Pairs); q++) {
    int32_t two;
    memcpy(&two, x + 2 * q, 4);
    const __m512i both = _mm512_set1_epi32(two);
    for (uint32_t v = 0; v < 4; v++)
      sums[v] = _mm512_dpwssd_epi32(sums[v], both, _mm512_load_si512(pairs + q * kEntries + 16 * v));
  }
  // Byte 2 of the 32 words of two vectors, then byte 3.
  alignas(64) static constexpr uint8_t kBytes[64] = {
      2,  6,  10, 14,  18,  22,  26,  30,  34,  38,  42, 46, 50, 54,  58,  62,  66,  70,  74,  78, 82, 86,
      90, 94, 98, 102, 106, 110, 114, 118, 122, 126, 3,  7,  11, 15,  19,  23,  27,  31,  35,  39, 43, 47,
      51, 55, 59, 63,  67,  71,  75,  79,  83,  87,  91, 95, 99, 103, 107, 111, 115, 119, 123, 127};
  const __m512i index = _mm512_load_si512(kBytes);
  const __m512i first = _mm512_permutex2var_epi8(sums[0], index, sums[1]);
  const __m512i second = _mm512_permutex2var_epi8(sums[2], index, sums[3]);
  _mm512_store_si512(table, _mm512_shuffle_i64x2(first, second, 0x44));
  _mm512_store_si512(table + kPlane, _mm512_shuffle_i64x2(first, second, 0xee));
}

// Codes of the tiles that are processed first.
struct Streams {
  const uint8_t* first;
  size_t stride;
};

// Builds the tables of a block, [groups][codebooks] of two planes, and prefetches the codes processed first.
template <uint32_t Pairs>
void build_tables(const Product& p, uint32_t groups, const int16_t* x, uint8_t* tables, Streams streams) {
  const uint32_t pairs = p.codes.in_group / 2;
  const int32_t* vectors = prepared_vectors<int32_t>(p.prepared).values;
  for (uint32_t g = 0; g < groups; g++)
    for (uint32_t c = 0; c < p.codes.codebooks; c++, tables += kTable, streams.first += kTile) {
      for (uint32_t t = 0; t < kTilesAtOnce; t++)
        _mm_prefetch(reinterpret_cast<const char*>(streams.first + t * streams.stride), _MM_HINT_T1);
      for (uint32_t e = 0; e < kEntries; e += 64)
        build_entries<Pairs>(vectors + c * pairs * kEntries + e, x + g * p.codes.in_group, pairs, tables + e);
    }
}

// Sums of looked-up bytes of 64 outputs in 16-bit lanes: `both` sums whole lanes, which the odd bytes spoil, `odd` the
// odd bytes alone.
struct ByteSums {
  __m512i both, odd;
  // Sums that all start at a value.
  static ByteSums from(int32_t start) {
    return {_mm512_set1_epi16(static_cast<int16_t>(start * 257)), _mm512_set1_epi16(static_cast<int16_t>(start))};
  }
  void add(__m512i bytes) {
    both = _mm512_add_epi16(both, bytes);
    odd = _mm512_add_epi16(odd, _mm512_srli_epi16(bytes, 8));
  }
  static ByteSums load(const uint8_t* from) { return {_mm512_load_si512(from), _mm512_load_si512(from + 64)}; }
  void store(uint8_t* to) const {
    _mm512_store_si512(to, both);
    _mm512_store_si512(to + 64, odd);
  }
  __m512i even() const { return _mm512_sub_epi16(both, _mm512_slli_epi16(odd, 8)); }
};

// Bytes of a tile's sums of low and of high bytes.
constexpr uint32_t kTileSums = 2 * sizeof(ByteSums);

// A plane of a table in registers, for all tiles of a step.
struct Plane {
  __m512i a, b, c, d;
  explicit Plane(const uint8_t* from) : a(load(from)), b(load(from + 64)), c(load(from + 128)), d(load(from + 192)) {}

 private:
  static __m512i load(const uint8_t* from) {
    __m512i quarter = _mm512_load_si512(from);
    // Loads once: compilers would load again for each tile.
    __asm__("" : "+v"(quarter));
    return quarter;
  }
};

// Lookup by permutes of one vector, for CPUs with AMX, whose permutes of two vectors take three operations.
struct OneVector {
  static constexpr uint32_t kTilesAhead = 1;
  static void prefetch(const uint8_t* at) { _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T0); }

  // Codes, and masks of their bits 7 and 6 and of both.
  struct Places {
    __m512i codes;
    __mmask64 upper, odd, last;
    explicit Places(__m512i all)
        : codes(all),
          upper(_mm512_movepi8_mask(all)),
          odd(_mm512_test_epi8_mask(all, _mm512_set1_epi8(64))),
          last(_kand_mask64(upper, odd)) {}
  };
  static __m512i look_up(const Plane& plane, const Places& places) {
    const __m512i codes = places.codes;
    __m512i entries = _mm512_permutexvar_epi8(codes, plane.a);
    entries = _mm512_mask_permutexvar_epi8(entries, places.odd, codes, plane.b);
    entries = _mm512_mask_permutexvar_epi8(entries, places.upper, codes, plane.c);
    return _mm512_mask_permutexvar_epi8(entries, places.last, codes, plane.d);
  }
};

// Lookup by permutes of two vectors: Zen 4 does one per cycle, of one vector or two. It waits less for codes that are
// prefetched into the second-level cache only.
struct TwoVectors {
  static constexpr uint32_t kTilesAhead = 2;
  static void prefetch(const uint8_t* at) { _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T1); }

  struct Places {
    __m512i codes;
    __mmask64 upper;
    explicit Places(__m512i all) : codes(all), upper(_mm512_movepi8_mask(all)) {}
  };
  static __m512i look_up(const Plane& plane, const Places& places) {
    return _mm512_mask_blend_epi8(places.upper, _mm512_permutex2var_epi8(plane.a, places.codes, plane.b),
                                  _mm512_permutex2var_epi8(plane.c, places.codes, plane.d));
  }
};

// A block of a run.
struct Part {
  // Rows of codes in this block and in the whole run.
  uint32_t rows, run_rows;
  // Whether the block is the first and the last of the run, and the run the first of its slice.
  bool first, last, first_run;
  float step;
  // Sums of bytes of the run's earlier blocks.
  uint8_t* sums;
};

// Stores 16 sums (256 * high + low) * step, added to those of the slice's earlier blocks.
static inline void store16(__m256i low, __m256i high, const Part& part, float* y) {
  const __m512i whole = _mm512_add_epi32(_mm512_slli_epi32(_mm512_cvtepi16_epi32(high), 8), _mm512_cvtepu16_epi32(low));
  const __m512 before = part.first_run ? _mm512_setzero_ps() : _mm512_loadu_ps(y);
  _mm512_storeu_ps(y, _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole), _mm512_set1_ps(part.step), before));
}

static inline void store_sums(__m512i low, __m512i high, const Part& part, float* y) {
  store16(_mm512_castsi512_si256(low), _mm512_castsi512_si256(high), part, y);
  store16(_mm512_extracti64x4_epi64(low, 1), _mm512_extracti64x4_epi64(high, 1), part, y + 16);
}

// Sums `Tiles` tiles of a block, from tile `first` on, `apart` tiles from each other. The item begins at tile `begin`.
template <class LookUp, uint32_t Tiles>
inline void tile_sums(const Product& p, uint32_t index, uint32_t first, uint32_t apart, uint32_t begin,
                      const uint8_t* tables, const Part& part, float* y) {
  ByteSums low[Tiles], high[Tiles];
  for (uint32_t t = 0; t < Tiles; t++) {
    if (part.first) {
      low[t] = ByteSums::from(0);
      // Subtracts the 2^15 that entries have added.
      high[t] = ByteSums::from(-128 * static_cast<int32_t>(part.run_rows));
    } else {
      const uint8_t* before = part.sums + (first - begin + t * apart) * kTileSums;
      low[t] = ByteSums::load(before);
      high[t] = ByteSums::load(before + kTileSums / 2);
    }
  }
  const uint8_t* codes = p.codes.tile(index, first);
  const size_t tile_bytes = part.rows * kTile, stride = apart * tile_bytes;
  for (uint32_t row = 0; row < part.rows; row++, codes += kTile, tables += kTable) {
    const Plane lower(tables), higher(tables + kPlane);
    for (uint32_t t = 0; t < Tiles; t++) {
      const uint8_t* at = codes + t * stride;
      // Prefetches the same codes of a tile ahead.
      LookUp::prefetch(at + LookUp::kTilesAhead * tile_bytes);
      const typename LookUp::Places places(_mm512_loadu_si512(at));
      low[t].add(LookUp::look_up(lower, places));
      high[t].add(LookUp::look_up(higher, places));
    }
  }
  for (uint32_t t = 0; t < Tiles; t++) {
    if (part.last) {
      float* to = y + (first + t * apart) * kTile;
      store_sums(low[t].even(), high[t].even(), part, to);
      store_sums(low[t].odd, high[t].odd, part, to + kTile / 2);
    } else {
      uint8_t* sums = part.sums + (first - begin + t * apart) * kTileSums;
      low[t].store(sums);
      high[t].store(sums + kTileSums / 2);
    }
  }
}

static inline size_t table_bytes(const Codes& codes) { return static_cast<size_t>(kBlock) * codes.codebooks * kTable; }

// Computes blocks first .. last for one row of x. `own` holds tables, then sums of bytes.
template <class LookUp>
void lut16_blocks(const Product& p, const Item& item, uint32_t first, uint32_t last, uint32_t row, uint8_t* own) {
  const uint32_t length = p.codes.in_group, first_group = first * kBlock;
  const uint32_t run_groups = std::min(p.codes.groups, last * kBlock) - first_group;
  alignas(64) int16_t inputs[kRunBlocks * kBlock * kInGroupMax];
  const float* x = p.x + static_cast<size_t>(row) * p.codes.k + static_cast<size_t>(first_group) * length;
  const float step = quantize_inputs(x, run_groups, length, *prepared_vectors<int32_t>(p.prepared).longest, inputs);
  Part part{};
  part.run_rows = run_groups * p.codes.codebooks;
  part.first_run = first == item.first_block;
  part.step = step * *prepared_vectors<int32_t>(p.prepared).step * 0x1p16f;
  part.sums = own + table_bytes(p.codes);
  float* y = p.slice_sums(item.slice, row);
  const uint32_t apart = (item.last_tile - item.first_tile) / kTilesAtOnce;
  for (uint32_t block = first; block < last; block++) {
    const uint32_t groups = p.codes.block_groups(block);
    part.rows = groups * p.codes.codebooks;
    const Streams streams = {p.codes.tile(block, item.first_tile), apart * part.rows * kTile};
    (length == 8 ? build_tables<4> : build_tables<0>)(p, groups, inputs + (block - first) * kBlock * length, own,
                                                      streams);
    part.first = block == first;
    part.last = block + 1 == last;
    for (uint32_t i = 0; i < apart; i++)
      tile_sums<LookUp, kTilesAtOnce>(p, block, item.first_tile + i, apart, item.first_tile, own, part, y);
    for (uint32_t tile = item.first_tile + apart * kTilesAtOnce; tile < item.last_tile; tile++)
      tile_sums<LookUp, 1>(p, block, tile, 0, item.first_tile, own, part, y);
  }
}

template <class LookUp>
void lut16_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread) {
  const Product& p = step.as<Product>();
  if (phase == 0) return prepare_vectors<true>(p, kWordMax, prepared_vectors<int32_t>(p.prepared));
  if (phase == 2) return add_slices(p, tile, step.tiles[2]);
  const Item item = item_at(p, tile);
  const uint32_t blocks = std::min(kRunBlocks, kRunRows / (kBlock * p.codes.codebooks));
  // Rows in the inner loop: the codes of a run are read from memory once.
  for (uint32_t first = item.first_block; first < item.last_block; first += blocks)
    for (uint32_t row = 0; row < p.m; row++)
      lut16_blocks<LookUp>(p, item, first, std::min(item.last_block, first + blocks), row,
                           p.own + thread * p.own_bytes);
}

Memory lut16_memory(const Codes& codes) {
  return {prepared_bytes(codes), table_bytes(codes) + static_cast<size_t>(codes.tiles) * kTileSums};
}

size_t lut16_scratch(const Call& call) {
  const auto given = arguments_of<AqlmArguments>(call);
  const Codes codes = read_codes(given.codes);
  return product_bytes(codes, given.m, call.threads, lut16_memory(codes));
}

template <class LookUp>
void lut16_prepare(Step& step, const Call& call) {
  const auto given = arguments_of<AqlmArguments>(call);
  Product& p = init_product(step, call, lut16_memory(read_codes(given.codes)));
  split_product(step, p, call.threads, kTilesAtOnce);
  step.tiles[0] = 1;
  step.run = lut16_run<LookUp>;
}

constexpr uint32_t kNeeds = kAvx2 | kAvx512 | kAvx512Vnni | kAvx512Vbmi;

// Several rows of x share the reads of codes.
constexpr KernelRow kRows[] = {
    {"aqlm_lut16_c8_1x256x128_avx512_vbmi", "aqlm", "aqlm_tiles8", 0, kNeeds | kAmxInt8, 1, 256, lut16_scratch,
     lut16_prepare<OneVector>},
    {"aqlm_lut16_c8_1x192x128_avx512_vbmi", "aqlm", "aqlm_tiles8", 0, kNeeds, 1, 192, lut16_scratch,
     lut16_prepare<TwoVectors>},
};

}  // namespace
}  // namespace aqlm

KernelRows aqlm_avx512vbmi_rows() { return {aqlm::kRows, sizeof aqlm::kRows / sizeof *aqlm::kRows}; }

}  // namespace lowbit
