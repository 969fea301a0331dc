// AQLM on AVX-512 VBMI, for codes of 8 bits: tables of 12-bit sums lie in registers, a plane of high bytes and one of
// low halves of bytes, and vpermb looks up 64 outputs at a time. Flags: see scripts/native-sources.js.
//
// A table entry is x . vector / (x_step * vector_step), both rounded to 16 bits, in the upper 12 bits of a 32-bit sum;
// 2^11 is added so that entries are unsigned. Of a result all roundings make some 9e-4, a sixth of what activations of 8
// bits lose. Sums of bytes stay below 2^16: 16 groups of at most 16 codebooks.
#include <immintrin.h>

#include "../codes.h"
#include "../rows.h"

namespace lowbit {
namespace aqlm {
namespace {

constexpr uint32_t kEntries = 256, kPlane = 256, kTable = kPlane + kPlane / 2;
// Halves of bytes that are summed before their sums may be more than a byte.
constexpr uint32_t kHalvesAtOnce = 17;
// Tiles that one loading of a table serves.
constexpr uint32_t kTilesAtOnce = 4;
// Half of a 32-bit sum's range, to make it unsigned, and half of the unit of its upper 12 bits, to round.
constexpr uint32_t kSumStart = 0x80080000;
// The largest sum is below 2^31: |x| summed over a group stays below this, times vectors up to 32767.
constexpr float kGroupMax = 65000, kVectorMax = 32767, kValueMax = 32767;

// Codebooks of 16-bit integers: the step of all, then [codebooks][in_group / 2][256] pairs.
struct PreparedVectors {
  float* step;
  int32_t* pairs;
};

static inline PreparedVectors prepared_vectors(const Product& p) {
  return {reinterpret_cast<float*>(p.prepared), reinterpret_cast<int32_t*>(p.prepared + 64)};
}

static inline __m256 load8(const Product& p, size_t at) {
  if (!p.half_vectors) return _mm256_loadu_ps(static_cast<const float*>(p.vectors) + at);
  const uint16_t* halves = static_cast<const uint16_t*>(p.vectors) + at;
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(halves)));
}

// One work item for all codebooks, which share a step; each is some kilobytes.
static inline void prepare_vectors(const Product& p) {
  const PreparedVectors prepared = prepared_vectors(p);
  const uint32_t length = p.codes.in_group;
  const size_t count = static_cast<size_t>(p.codes.codebooks) * kEntries * length;
  const __m256 sign = _mm256_set1_ps(-0.0f);
  __m256 largest = _mm256_setzero_ps();
  for (size_t i = 0; i < count; i += 8) largest = _mm256_max_ps(largest, _mm256_andnot_ps(sign, load8(p, i)));
  const float step = std::max(_mm512_reduce_max_ps(_mm512_zextps256_ps512(largest)) / kVectorMax, 0x1p-100f);
  *prepared.step = step;
  const __m256 inverse = _mm256_set1_ps(1 / step);
  const uint32_t pairs = length / 2;
  for (size_t vector = 0, i = 0; i < count; vector++) {
    int32_t* target = prepared.pairs + vector / kEntries * pairs * kEntries + vector % kEntries;
    for (uint32_t j = 0; j < length; j += 8, i += 8) {
      const __m256i rounded = _mm256_cvtps_epi32(_mm256_mul_ps(load8(p, i), inverse));
      alignas(16) int32_t four[4];
      _mm_store_si128(reinterpret_cast<__m128i*>(four), _mm256_cvtepi32_epi16(rounded));
      for (uint32_t q = 0; q < 4; q++, target += kEntries) *target = four[q];
    }
  }
}

// x of a block as pairs of 16-bit integers.
struct BlockInputs {
  alignas(64) int16_t values[kBlock * 64];
  float step;
};

static inline void quantize_inputs(const float* x, uint32_t groups, uint32_t length, BlockInputs* inputs) {
  float largest = 0, largest_group = 0;
  for (uint32_t g = 0; g < groups; g++) {
    __m256 sum = _mm256_setzero_ps(), peak = sum;
    for (uint32_t j = 0; j < length; j += 8) {
      const __m256 v = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), _mm256_loadu_ps(x + g * length + j));
      sum = _mm256_add_ps(sum, v);
      peak = _mm256_max_ps(peak, v);
    }
    largest = std::max(largest, _mm512_reduce_max_ps(_mm512_zextps256_ps512(peak)));
    largest_group = std::max(largest_group, _mm512_reduce_add_ps(_mm512_zextps256_ps512(sum)));
  }
  inputs->step = std::max(std::max(largest / kValueMax, largest_group / kGroupMax), 0x1p-100f);
  const __m256 inverse = _mm256_set1_ps(1 / inputs->step);
  for (uint32_t i = 0; i < groups * length; i += 8) {
    const __m256i rounded = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i), inverse));
    _mm_store_si128(reinterpret_cast<__m128i*>(inputs->values + i), _mm256_cvtepi32_epi16(rounded));
  }
}

// Bytes 2 of 64 sums, then bytes 3.
struct EntryBytes {
  __m512i second, third;
};

// 64 entries; `pairs` points to the first one's first pair.
static inline EntryBytes build_entries(const int32_t* pairs, const int16_t* x, uint32_t count) {
  __m512i sums[4];
  for (auto& sum : sums) sum = _mm512_set1_epi32(static_cast<int32_t>(kSumStart));
  for (uint32_t q = 0; q < count; q++) {
    int32_t two;
    memcpy(&two, x + 2 * q, 4);
    const __m512i both = _mm512_set1_epi32(two);
    for (uint32_t v = 0; v < 4; v++)
      sums[v] = _mm512_dpwssd_epi32(sums[v], both, _mm512_load_si512(pairs + q * kEntries + 16 * v));
  }
  // Bytes 2 and then bytes 3 of the 32 words of two vectors.
  alignas(64) static constexpr uint8_t kBytes[64] = {
      2,  6,  10, 14, 18, 22, 26, 30, 34, 38, 42, 46, 50, 54, 58, 62, 66, 70, 74,  78,  82,  86,  90,  94,  98,  102,
      106, 110, 114, 118, 122, 126, 3,  7,  11, 15, 19, 23, 27, 31, 35, 39, 43, 47, 51,  55,  59,  63,  67,  71,  75,  79,
      83, 87, 91, 95, 99, 103, 107, 111, 115, 119, 123, 127};
  const __m512i index = _mm512_load_si512(kBytes);
  const __m512i first = _mm512_permutex2var_epi8(sums[0], index, sums[1]);
  const __m512i second = _mm512_permutex2var_epi8(sums[2], index, sums[3]);
  return {_mm512_shuffle_i64x2(first, second, 0x44), _mm512_shuffle_i64x2(first, second, 0xee)};
}

// Tables of a block: [groups][codebooks] of a plane of high bytes and one of low halves of bytes, where entry e is the
// low and entry e + 128 the high half of byte e.
static inline void build_tables(const Product& p, uint32_t groups, const BlockInputs& inputs, uint8_t* tables) {
  constexpr int kSelect = 0xca;  // a ? b : c
  const __m512i low_half = _mm512_set1_epi8(15);
  const uint32_t count = p.codes.in_group / 2;
  const int32_t* vectors = prepared_vectors(p).pairs;
  for (uint32_t g = 0; g < groups; g++)
    for (uint32_t c = 0; c < p.codes.codebooks; c++, tables += kTable)
      for (uint32_t e = 0; e < kEntries / 2; e += 64) {
        const int32_t* pairs = vectors + c * count * kEntries + e;
        const int16_t* x = inputs.values + g * p.codes.in_group;
        const EntryBytes a = build_entries(pairs, x, count), b = build_entries(pairs + kEntries / 2, x, count);
        _mm512_store_si512(tables + e, a.third);
        _mm512_store_si512(tables + kEntries / 2 + e, b.third);
        _mm512_store_si512(tables + kPlane + e,
                           _mm512_ternarylogic_epi32(low_half, _mm512_srli_epi16(a.second, 4), b.second, kSelect));
      }
}

// Sums of looked up bytes of 64 outputs: of all bytes as 16-bit lanes, where the even ones' sums are spoilt by the odd
// ones, and of the odd ones.
struct ByteSums {
  __m512i both, odd;
  void add(__m512i bytes) {
    both = _mm512_add_epi16(both, bytes);
    odd = _mm512_add_epi16(odd, _mm512_srli_epi16(bytes, 8));
  }
  __m512i even() const { return _mm512_sub_epi16(both, _mm512_slli_epi16(odd, 8)); }
};

struct Planes {
  __m512i high[4], low[2];
};

static inline Planes load_planes(const uint8_t* table) {
  Planes planes;
  for (int i = 0; i < 4; i++) planes.high[i] = _mm512_load_si512(table + 64 * i);
  for (int i = 0; i < 2; i++) planes.low[i] = _mm512_load_si512(table + kPlane + 64 * i);
  return planes;
}

// High bytes and low halves of the entries of 64 codes.
struct Entries {
  __m512i high, low;
};

// Four vpermb with masks take as many cycles as two vpermi2b, and leave more to other instructions.
static inline Entries look_up(const Planes& planes, __m512i codes) {
  const __mmask64 upper = _mm512_movepi8_mask(codes), odd = _mm512_test_epi8_mask(codes, _mm512_set1_epi8(64));
  auto half = [&](__m512i even_entries, __m512i odd_entries) {
    return _mm512_mask_permutexvar_epi8(_mm512_permutexvar_epi8(codes, even_entries), odd, codes, odd_entries);
  };
  const __m512i high = _mm512_mask_blend_epi8(upper, half(planes.high[0], planes.high[1]),
                                              half(planes.high[2], planes.high[3]));
  // The matrix moves a byte's high half down.
  const __m512i down = _mm512_set1_epi64(0x1020408000000000), low = half(planes.low[0], planes.low[1]);
  const __m512i kept = _mm512_and_si512(low, _mm512_set1_epi8(15));
  return {high, _mm512_mask_gf2p8affine_epi64_epi8(kept, upper, low, down, 0)};
}

// 16 sums as floats: high * 16 + low - offset, times the step.
static inline __m512 to_floats(__m256i low, __m256i high, __m512i offset, __m512 step) {
  const __m512i whole = _mm512_add_epi32(_mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 4), _mm512_cvtepu16_epi32(low));
  return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(whole, offset)), step);
}

struct BlockStep {
  uint32_t rows;
  float step;
  // Whether the sums are the first of their slice.
  bool first;
};

static inline void store_sums(__m512i low, __m512i high, const BlockStep& block, float* y) {
  const __m512i offset = _mm512_set1_epi32(static_cast<int32_t>(block.rows << 11));
  const __m512 step = _mm512_set1_ps(block.step);
  const __m512 a = to_floats(_mm512_castsi512_si256(low), _mm512_castsi512_si256(high), offset, step);
  const __m512 b = to_floats(_mm512_extracti64x4_epi64(low, 1), _mm512_extracti64x4_epi64(high, 1), offset, step);
  _mm512_storeu_ps(y, block.first ? a : _mm512_add_ps(a, _mm512_loadu_ps(y)));
  _mm512_storeu_ps(y + 16, block.first ? b : _mm512_add_ps(b, _mm512_loadu_ps(y + 16)));
}

// `Tiles` tiles of a block, tile `first` and others `apart`: as many streams for the memory to serve.
template <uint32_t Tiles>
inline void tile_sums(const Product& p, uint32_t index, uint32_t first, uint32_t apart, const uint8_t* tables,
                      const BlockStep& block, float* y) {
  const __m512i zero = _mm512_setzero_si512();
  const uint8_t* codes[Tiles];
  ByteSums low[Tiles], high[Tiles];
  for (uint32_t t = 0; t < Tiles; t++) {
    codes[t] = p.codes.tile(index, first + t * apart);
    low[t] = high[t] = {zero, zero};
  }
  const size_t tile_bytes = block.rows * kTile;
  for (uint32_t start = 0; start < block.rows; start += kHalvesAtOnce) {
    __m512i halves[Tiles];
    for (uint32_t t = 0; t < Tiles; t++) halves[t] = zero;
    const uint32_t end = std::min(block.rows, start + kHalvesAtOnce);
    for (uint32_t row = start; row < end; row++, tables += kTable) {
      const Planes planes = load_planes(tables);
      for (uint32_t t = 0; t < Tiles; t++) {
        const uint8_t* at = codes[t] + row * kTile;
        // The same of the stream's next tile.
        _mm_prefetch(reinterpret_cast<const char*>(at + tile_bytes), _MM_HINT_T0);
        const Entries entries = look_up(planes, _mm512_loadu_si512(at));
        high[t].add(entries.high);
        halves[t] = _mm512_add_epi8(halves[t], entries.low);
      }
    }
    for (uint32_t t = 0; t < Tiles; t++) low[t].add(halves[t]);
  }
  for (uint32_t t = 0; t < Tiles; t++) {
    float* to = y + (first + t * apart) * kTile;
    store_sums(low[t].even(), high[t].even(), block, to);
    store_sums(low[t].odd, high[t].odd, block, to + kTile / 2);
  }
}

static inline void lut12_block(const Product& p, const Item& item, uint32_t block, uint32_t row, uint8_t* tables) {
  const uint32_t groups = p.codes.block_groups(block), length = p.codes.in_group;
  BlockInputs inputs;
  quantize_inputs(p.x + static_cast<size_t>(row) * p.codes.k + static_cast<size_t>(block) * kBlock * length, groups,
                  length, &inputs);
  build_tables(p, groups, inputs, tables);
  const BlockStep step = {groups * p.codes.codebooks, inputs.step * *prepared_vectors(p).step * 0x1p20f,
                          block == item.first_block};
  float* y = p.slice_sums(item.slice, row);
  const uint32_t apart = (item.last_tile - item.first_tile) / kTilesAtOnce;
  for (uint32_t i = 0; i < apart; i++)
    tile_sums<kTilesAtOnce>(p, block, item.first_tile + i, apart, tables, step, y);
  for (uint32_t tile = item.first_tile + apart * kTilesAtOnce; tile < item.last_tile; tile++)
    tile_sums<1>(p, block, tile, 0, tables, step, y);
}

void lut12_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread) {
  const Product& p = step.as<Product>();
  if (phase == 0) return prepare_vectors(p);
  if (phase == 2) return add_slices(p, tile, step.tiles[2]);
  const Item item = item_at(p, tile);
  // Rows inside blocks: the codes of a block are read from memory once.
  for (uint32_t block = item.first_block; block < item.last_block; block++)
    for (uint32_t row = 0; row < p.m; row++) lut12_block(p, item, block, row, p.own + thread * p.own_bytes);
}

Memory lut12_memory(const Codes& codes) {
  return {64 + 2 * static_cast<size_t>(codes.codebooks) * codes.in_group * kEntries,
          static_cast<size_t>(kBlock) * codes.codebooks * kTable};
}

size_t lut12_scratch(const Call& call) {
  const Codes codes = read_codes(call.buffers[1]);
  return product_bytes(codes, static_cast<uint32_t>(call.scalars[0]), call.threads, lut12_memory(codes));
}

void lut12_prepare(Step& step, const Call& call) {
  Product& p = init_product(step, call, lut12_memory(read_codes(call.buffers[1])));
  split_product(step, p, call.threads, kTilesAtOnce);
  step.tiles[0] = 1;
  step.run = lut12_run;
}

constexpr KernelRow kRows[] = {
    {"aqlm_lut12_c8_1x256x128_avx512_vbmi", "aqlm", "aqlm_tiles8", 0, kAvx2 | kAvx512 | kAvx512Vnni | kAvx512Vbmi, 1,
     256, lut12_scratch, lut12_prepare},
    // Several rows share the reading of codes: the same code, ahead of rows for several rows of other files.
    {"aqlm_lut12_c8_4x256x128_avx512_vbmi", "aqlm", "aqlm_tiles8", 0, kAvx2 | kAvx512 | kAvx512Vnni | kAvx512Vbmi, 4,
     256, lut12_scratch, lut12_prepare},
};

}  // namespace
}  // namespace aqlm

KernelRows aqlm_avx512vbmi_rows() { return {aqlm::kRows, sizeof aqlm::kRows / sizeof *aqlm::kRows}; }

}  // namespace lowbit
