// AQLM on NEON for 8-bit codes by lookup tables of 12-bit sums: a plane of the upper 8 bits in 16 registers, and one of
// the lower 4 bits, two entries per byte, in 8 registers. TBL looks up 16 outputs at a time. Entries are rounded to a
// step shared by 16 groups of inputs, 1/2047 of the largest entry, which makes some 8e-4 of a result; 8-bit activations
// make 5e-3. (By models of cores, 16 bits took a tenth to a third more cycles. Tables of 8 bits made 1.4e-2 of each
// layer and up to 7e-2 of a model's logits.)
#include <arm_neon.h>

#include "../table.h"
#include "kernel.h"

namespace lowbit {
namespace aqlm {
namespace {

// Entries are -2047 .. 2047, stored with kZero added.
constexpr uint32_t kZero = 2048, kEntryMax = 2047;
// Bytes of a table: upper parts, and lower parts of two entries per byte, where entries from 128 on have the lower half
// of the byte.
constexpr uint32_t kUpperBytes = kEntries, kLowerBytes = kEntries / 2, kTableBytes = kUpperBytes + kLowerBytes;
// Rows of codes whose sums of 4-bit parts fit bytes.
constexpr uint32_t kByteRows = 16;

// Memory of a block: sums, and tables [rows of codes]: the planes of upper parts, then those of lower parts.
struct TableMemory {
  float* sums;
  uint8_t* upper;
  uint8_t* lower;
};

static inline size_t table_entries(const Codes& codes) {
  return static_cast<size_t>(kBlock) * codes.codebooks * kEntries;
}

// Sums x . vector of 32 entries. `vectors` are transposed, [in_group][256].
static inline void sum_entries(const float* vectors, const float* x, uint32_t length, float* sums) {
  float32x4_t sum[8];
  for (int v = 0; v < 8; v++) sum[v] = vdupq_n_f32(0);
  for (uint32_t j = 0; j < length; j++, vectors += kEntries) {
    const float32x4_t value = vdupq_n_f32(x[j]);
    for (int v = 0; v < 8; v++) sum[v] = vfmaq_f32(sum[v], vld1q_f32(vectors + 4 * v), value);
  }
  for (int v = 0; v < 8; v++) vst1q_f32(sums + 4 * v, sum[v]);
}

// Computes the sums [groups][codebooks][256] of a block.
static inline void sum_tables(const Product& p, uint32_t block, const float* x, float* sums) {
  const uint32_t length = p.codes.in_group;
  const float* vectors = reinterpret_cast<const float*>(p.prepared);
  for (uint32_t g = 0; g < p.codes.block_groups(block); g++, x += length)
    for (uint32_t c = 0; c < p.codes.codebooks; c++, sums += kEntries)
      for (uint32_t e = 0; e < kEntries; e += 32)
        sum_entries(vectors + static_cast<size_t>(c) * length * kEntries + e, x, length, sums + e);
}

// Rounds sums to tables. Returns their step, NaN where a sum is not finite.
static inline float round_tables(const TableMemory& own, size_t count) {
  float32x4_t largest = vdupq_n_f32(0x1p-100f);
  for (size_t i = 0; i < count; i += 4) largest = vmaxq_f32(largest, vabsq_f32(vld1q_f32(own.sums + i)));
  const float step = vmaxvq_f32(largest) / kEntryMax;
  const float32x4_t inverse = vdupq_n_f32(1 / step);
  auto words = [&](const float* sums) {
    const int32x4_t low = vcvtnq_s32_f32(vmulq_f32(vld1q_f32(sums), inverse));
    const int32x4_t high = vcvtnq_s32_f32(vmulq_f32(vld1q_f32(sums + 4), inverse));
    const uint16x8_t both = vreinterpretq_u16_s16(vcombine_s16(vqmovn_s32(low), vqmovn_s32(high)));
    return vaddq_u16(both, vdupq_n_u16(kZero));
  };
  // Stores the upper parts of 16 entries; returns bytes that hold the lower parts.
  auto split = [&](const float* sums, uint8_t* upper) {
    const uint16x8_t first = words(sums), second = words(sums + 8);
    vst1q_u8(upper, vshrn_high_n_u16(vshrn_n_u16(first, 4), second, 4));
    return vuzp1q_u8(vreinterpretq_u8_u16(first), vreinterpretq_u8_u16(second));
  };
  uint8_t* lower = own.lower;
  for (size_t table = 0; table < count; table += kEntries)
    for (size_t i = table; i < table + kLowerBytes; i += 16, lower += 16) {
      const uint8x16_t first = split(own.sums + i, own.upper + i);
      const uint8x16_t second = split(own.sums + i + kLowerBytes, own.upper + i + kLowerBytes);
      vst1q_u8(lower, vsliq_n_u8(second, first, 4));
    }
  return step;
}

// Looks up 64 codes in a table of `Parts` times 64 bytes. An index outside a part keeps what other parts gave. One part
// at a time is in registers.
template <int Parts>
inline void look_up(const uint8_t* table, uint8x16_t* index, uint8x16_t* entries) {
  const uint8x16x4_t start = vld1q_u8_x4(table);
  for (int v = 0; v < 4; v++) entries[v] = vqtbl4q_u8(start, index[v]);
  for (int part = 1; part < Parts; part++) {
    const uint8x16x4_t next = vld1q_u8_x4(table + 64 * part);
    for (int v = 0; v < 4; v++) {
      index[v] = vsubq_u8(index[v], vdupq_n_u8(64));
      entries[v] = vqtbx4q_u8(entries[v], next, index[v]);
    }
  }
}

// Sums of one plane's bytes for a tile of 64 outputs: the first 32 outputs, then the others.
struct PlaneSums {
  uint16x8_t even[4], odd[4];

  PlaneSums() {
    for (int v = 0; v < 4; v++) even[v] = odd[v] = vdupq_n_u16(0);
  }
  // Adds bytes as 16-bit lanes: `even` sums whole lanes, which the odd bytes spoil, `odd` the odd bytes alone.
  void add(const uint8x16_t* entries) {
    for (int v = 0; v < 4; v++) {
      const uint16x8_t bytes = vreinterpretq_u16_u8(entries[v]);
      even[v] = vaddq_u16(even[v], bytes);
      odd[v] = vsraq_n_u16(odd[v], bytes, 8);
    }
  }
  void finish() {
    for (int v = 0; v < 4; v++) even[v] = vsubq_u16(even[v], vshlq_n_u16(odd[v], 8));
  }
};

__attribute__((noinline)) PlaneSums upper_sums(const uint8_t* codes, const uint8_t* plane, uint32_t rows) {
  PlaneSums sums;
  for (uint32_t row = 0; row < rows; row++, codes += kTile, plane += kUpperBytes) {
    uint8x16_t index[4], entries[4];
    for (int v = 0; v < 4; v++) index[v] = vld1q_u8(codes + 16 * v);
    look_up<4>(plane, index, entries);
    sums.add(entries);
  }
  sums.finish();
  return sums;
}

__attribute__((noinline)) PlaneSums lower_sums(const uint8_t* codes, const uint8_t* plane, uint32_t rows) {
  PlaneSums sums;
  for (uint32_t row = 0; row < rows;) {
    uint8x16_t bytes[4];
    for (int v = 0; v < 4; v++) bytes[v] = vdupq_n_u8(0);
    const uint32_t last = std::min(rows, row + kByteRows);
    for (; row < last; row++, codes += kTile, plane += kLowerBytes) {
      uint8x16_t index[4], entries[4];
      for (int v = 0; v < 4; v++) index[v] = vandq_u8(vld1q_u8(codes + 16 * v), vdupq_n_u8(kLowerBytes - 1));
      look_up<2>(plane, index, entries);
      // Bit 7 of a code shifts the lower half of the byte found to the upper half, which is added.
      for (int v = 0; v < 4; v++) {
        const uint8x16_t second = vcltzq_s8(vreinterpretq_s8_u8(vld1q_u8(codes + 16 * v)));
        const int8x16_t shift = vreinterpretq_s8_u8(vandq_u8(second, vdupq_n_u8(4)));
        bytes[v] = vsraq_n_u8(bytes[v], vshlq_u8(entries[v], shift), 4);
      }
    }
    sums.add(bytes);
  }
  sums.finish();
  return sums;
}

// Stores four sums 16 * high + low as floats, added to those of earlier blocks.
static inline void store4(uint16x4_t low, uint16x4_t high, int32x4_t zero, float step, bool first, float* y) {
  const int32x4_t whole = vreinterpretq_s32_u32(vaddq_u32(vshll_n_u16(high, 4), vmovl_u16(low)));
  const float32x4_t before = first ? vdupq_n_f32(0) : vld1q_f32(y);
  vst1q_f32(y, vfmaq_n_f32(before, vcvtq_f32_s32(vsubq_s32(whole, zero)), step));
}

static inline void store32(const uint16x8_t* low, const uint16x8_t* high, uint32_t rows, float step, bool first,
                           float* y) {
  const int32x4_t zero = vdupq_n_s32(static_cast<int32_t>(rows * kZero));
  for (int v = 0; v < 4; v++) {
    store4(vget_low_u16(low[v]), vget_low_u16(high[v]), zero, step, first, y + 8 * v);
    store4(vget_high_u16(low[v]), vget_high_u16(high[v]), zero, step, first, y + 8 * v + 4);
  }
}

static inline void tbl_item(const Product& p, const Item& item, const TableMemory& own) {
  for (uint32_t block = item.first_block; block < item.last_block; block++) {
    const uint32_t rows = p.codes.block_groups(block) * p.codes.codebooks;
    for (uint32_t row = 0; row < p.m; row++) {
      const size_t first_input = static_cast<size_t>(block) * kBlock * p.codes.in_group;
      sum_tables(p, block, p.x + static_cast<size_t>(row) * p.codes.k + first_input, own.sums);
      const float step = round_tables(own, static_cast<size_t>(rows) * kEntries);
      float* y = p.slice_sums(item.slice, row);
      const bool first = block == item.first_block;
      for (uint32_t tile = item.first_tile; tile < item.last_tile; tile++) {
        // One plane after the other: registers do not hold the sums of both.
        const PlaneSums low = lower_sums(p.codes.tile(block, tile), own.lower, rows);
        const PlaneSums high = upper_sums(p.codes.tile(block, tile), own.upper, rows);
        store32(low.even, high.even, rows, step, first, y + tile * kTile);
        store32(low.odd, high.odd, rows, step, first, y + tile * kTile + kTile / 2);
      }
    }
  }
}

Memory tbl_memory(const Codes& codes) {
  return {4 * static_cast<size_t>(codes.codebooks) * codes.in_group * kEntries,
          table_entries(codes) / kEntries * (4 * kEntries + kTableBytes)};
}

size_t tbl_scratch(const Call& call) {
  const auto given = arguments_of<AqlmArguments>(call);
  const Codes codes = read_codes(given.codes);
  return product_bytes(codes, given.m, call.threads, tbl_memory(codes));
}

void tbl_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread) {
  const Product& p = step.as<Product>();
  if (phase == 0) return transpose_vectors(p, tile);
  if (phase == 2) return add_slices(p, tile, step.tiles[2]);
  float* sums = reinterpret_cast<float*>(p.own + static_cast<size_t>(thread) * p.own_bytes);
  uint8_t* planes = reinterpret_cast<uint8_t*>(sums + table_entries(p.codes));
  tbl_item(p, item_at(p, tile), {sums, planes, planes + table_entries(p.codes)});
}

void tbl_prepare(Step& step, const Call& call) {
  const auto given = arguments_of<AqlmArguments>(call);
  Product& p = init_product(step, call, tbl_memory(read_codes(given.codes)));
  split_product(step, p, call.threads, 1);
  step.tiles[0] = p.codes.codebooks;
  step.run = tbl_run;
}

constexpr KernelRow kRows[] = {
    {"aqlm_lut12_c8_1x64x128_neon", "aqlm", "aqlm_tiles8", 0, kNeon, 1, 64, tbl_scratch, tbl_prepare},
};

}  // namespace
}  // namespace aqlm

KernelRows aqlm_tbl_neon_rows() { return {aqlm::kRows, sizeof aqlm::kRows / sizeof *aqlm::kRows}; }

}  // namespace lowbit
