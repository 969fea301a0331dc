// AQLM on NEON for codes of 8 bits: tables of 8-bit sums lie in 16 registers, and TBL looks up 16 outputs at a time.
// A table entry is rounded to a step that is the same for 16 groups of inputs: of a result, roundings make 1.4e-2, or 2e-2
// where a few inputs are large.
#include <arm_neon.h>

#include "../rows.h"
#include "../table.h"

namespace lowbit {
namespace aqlm {
namespace {

// Entries are -127 .. 127, stored with this added.
constexpr uint32_t kZero = 128;

struct TableMemory {
  float* sums;
  uint8_t* bytes;
};

static inline size_t table_entries(const Codes& codes) { return static_cast<size_t>(kBlock) * codes.codebooks * kEntries; }

// 32 entries: x . vector. `vectors` are turned, [in_group][256].
static inline void sum_entries(const float* vectors, const float* x, uint32_t length, float* sums) {
  float32x4_t sum[8];
  for (int v = 0; v < 8; v++) sum[v] = vdupq_n_f32(0);
  for (uint32_t j = 0; j < length; j++, vectors += kEntries) {
    const float32x4_t value = vdupq_n_f32(x[j]);
    for (int v = 0; v < 8; v++) sum[v] = vfmaq_f32(sum[v], vld1q_f32(vectors + 4 * v), value);
  }
  for (int v = 0; v < 8; v++) vst1q_f32(sums + 4 * v, sum[v]);
}

// Sums [groups][codebooks][256] of a block.
static inline void sum_tables(const Product& p, uint32_t block, const float* x, float* sums) {
  const uint32_t length = p.codes.in_group;
  const float* vectors = reinterpret_cast<const float*>(p.prepared);
  for (uint32_t g = 0; g < p.codes.block_groups(block); g++, x += length)
    for (uint32_t c = 0; c < p.codes.codebooks; c++, sums += kEntries)
      for (uint32_t e = 0; e < kEntries; e += 32)
        sum_entries(vectors + static_cast<size_t>(c) * length * kEntries + e, x, length, sums + e);
}

// Entries as bytes; returns their step.
static inline float round_tables(const float* sums, size_t count, uint8_t* bytes) {
  float32x4_t largest = vdupq_n_f32(0x1p-100f);
  for (size_t i = 0; i < count; i += 4) largest = vmaxq_f32(largest, vabsq_f32(vld1q_f32(sums + i)));
  const float step = vmaxvq_f32(largest) / 127;
  const float32x4_t inverse = vdupq_n_f32(1 / step);
  for (size_t i = 0; i < count; i += 16) {
    int16x4_t words[4];
    for (int v = 0; v < 4; v++)
      words[v] = vmovn_s32(vcvtnq_s32_f32(vmulq_f32(vld1q_f32(sums + i + 4 * v), inverse)));
    const int8x8_t low = vmovn_s16(vcombine_s16(words[0], words[1])), high = vmovn_s16(vcombine_s16(words[2], words[3]));
    vst1q_u8(bytes + i, vaddq_u8(vreinterpretq_u8_s8(vcombine_s8(low, high)), vdupq_n_u8(kZero)));
  }
  return step;
}

// Entries of 16 codes: an index beyond a part of the table leaves what other parts gave.
static inline uint8x16_t look_up16(const uint8x16x4_t* table, uint8x16_t codes) {
  uint8x16_t entries = vqtbl4q_u8(table[0], codes);
  entries = vqtbx4q_u8(entries, table[1], vsubq_u8(codes, vdupq_n_u8(64)));
  entries = vqtbx4q_u8(entries, table[2], vsubq_u8(codes, vdupq_n_u8(128)));
  return vqtbx4q_u8(entries, table[3], vsubq_u8(codes, vdupq_n_u8(192)));
}

// Eight sums as floats, added to those of earlier blocks.
static inline void store8(uint16x8_t sums, uint32_t rows, float step, bool first, float* y) {
  const int32x4_t zero = vdupq_n_s32(static_cast<int32_t>(rows * kZero));
  const int32x4_t low = vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(sums)));
  const int32x4_t high = vreinterpretq_s32_u32(vmovl_high_u16(sums));
  const float32x4_t none = vdupq_n_f32(0);
  vst1q_f32(y, vfmaq_n_f32(first ? none : vld1q_f32(y), vcvtq_f32_s32(vsubq_s32(low, zero)), step));
  vst1q_f32(y + 4, vfmaq_n_f32(first ? none : vld1q_f32(y + 4), vcvtq_f32_s32(vsubq_s32(high, zero)), step));
}

// A tile of 64 outputs. As 16-bit lanes, sums of all bytes, where odd ones spoil the even ones', and of the odd ones.
static inline void tile_bytes(const uint8_t* codes, const uint8_t* tables, uint32_t rows, float step, bool first,
                              float* y) {
  uint16x8_t both[4], odd[4];
  for (int v = 0; v < 4; v++) both[v] = odd[v] = vdupq_n_u16(0);
  for (uint32_t row = 0; row < rows; row++, codes += kTile, tables += kEntries) {
    uint8x16x4_t table[4];
    for (int part = 0; part < 4; part++) table[part] = vld1q_u8_x4(tables + 64 * part);
    for (int v = 0; v < 4; v++) {
      const uint16x8_t bytes = vreinterpretq_u16_u8(look_up16(table, vld1q_u8(codes + 16 * v)));
      both[v] = vaddq_u16(both[v], bytes);
      odd[v] = vsraq_n_u16(odd[v], bytes, 8);
    }
  }
  for (int v = 0; v < 4; v++) {
    store8(vsubq_u16(both[v], vshlq_n_u16(odd[v], 8)), rows, step, first, y + 8 * v);
    store8(odd[v], rows, step, first, y + kTile / 2 + 8 * v);
  }
}

static inline void tbl_item(const Product& p, const Item& item, const TableMemory& own) {
  for (uint32_t block = item.first_block; block < item.last_block; block++) {
    const uint32_t rows = p.codes.block_groups(block) * p.codes.codebooks;
    for (uint32_t row = 0; row < p.m; row++) {
      const size_t first_input = static_cast<size_t>(block) * kBlock * p.codes.in_group;
      sum_tables(p, block, p.x + static_cast<size_t>(row) * p.codes.k + first_input, own.sums);
      const float step = round_tables(own.sums, static_cast<size_t>(rows) * kEntries, own.bytes);
      float* y = p.slice_sums(item.slice, row);
      for (uint32_t tile = item.first_tile; tile < item.last_tile; tile++)
        tile_bytes(p.codes.tile(block, tile), own.bytes, rows, step, block == item.first_block, y + tile * kTile);
    }
  }
}

Memory tbl_memory(const Codes& codes) {
  return {4 * static_cast<size_t>(codes.codebooks) * codes.in_group * kEntries, 5 * table_entries(codes)};
}

size_t tbl_scratch(const Call& call) {
  const Codes codes = read_codes(call.buffers[1]);
  return product_bytes(codes, static_cast<uint32_t>(call.scalars[0]), call.threads, tbl_memory(codes));
}

void tbl_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread) {
  const Product& p = step.as<Product>();
  if (phase == 0) return transpose_vectors(p, tile);
  if (phase == 2) return add_slices(p, tile, step.tiles[2]);
  float* sums = reinterpret_cast<float*>(p.own + static_cast<size_t>(thread) * p.own_bytes);
  tbl_item(p, item_at(p, tile), {sums, reinterpret_cast<uint8_t*>(sums + table_entries(p.codes))});
}

void tbl_prepare(Step& step, const Call& call) {
  Product& p = init_product(step, call, tbl_memory(read_codes(call.buffers[1])));
  split_product(step, p, call.threads, 1);
  step.tiles[0] = p.codes.codebooks;
  step.run = tbl_run;
}

constexpr KernelRow kRows[] = {
    {"aqlm_lut8_c8_1x64x128_neon", "aqlm", "aqlm_tiles8", 0, kNeon, 1, 64, tbl_scratch, tbl_prepare},
    // Several rows share the reading of codes: the same code, ahead of rows for several rows of other files.
    {"aqlm_lut8_c8_4x64x128_neon", "aqlm", "aqlm_tiles8", 0, kNeon, 4, 64, tbl_scratch, tbl_prepare},
};

}  // namespace
}  // namespace aqlm

KernelRows aqlm_tbl_neon_rows() { return {aqlm::kRows, sizeof aqlm::kRows / sizeof *aqlm::kRows}; }

}  // namespace lowbit
