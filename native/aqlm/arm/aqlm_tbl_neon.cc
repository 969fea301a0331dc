// AQLM on NEON for codes of 8 bits: a table of 16-bit sums is a plane of low and one of high bytes, each in 16 registers,
// and TBL looks up 16 outputs at a time. A table entry is rounded to a step that is the same for 16 groups of inputs,
// which makes some 1e-4 of a result. (Tables of 8 bits took half of the time, but made 1.4e-2 of each layer and up to 7e-2
// of a model's logits.)
#include <arm_neon.h>

#include "../rows.h"
#include "../table.h"

namespace lowbit {
namespace aqlm {
namespace {

// Entries are -32767 .. 32767, stored with this added.
constexpr uint32_t kZero = 32768;

// Sums, and the planes [rows of codes][256] of a block's tables.
struct TableMemory {
  float* sums;
  uint8_t* low;
  uint8_t* high;
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

// Entries as bytes; returns their step, NaN where a sum is none.
static inline float round_tables(const TableMemory& own, size_t count) {
  float32x4_t largest = vdupq_n_f32(0x1p-100f);
  for (size_t i = 0; i < count; i += 4) largest = vmaxq_f32(largest, vabsq_f32(vld1q_f32(own.sums + i)));
  const float step = vmaxvq_f32(largest) / 32767;
  const float32x4_t inverse = vdupq_n_f32(1 / step);
  auto words = [&](size_t at) {
    const int32x4_t low = vcvtnq_s32_f32(vmulq_f32(vld1q_f32(own.sums + at), inverse));
    const int32x4_t high = vcvtnq_s32_f32(vmulq_f32(vld1q_f32(own.sums + at + 4), inverse));
    const uint16x8_t both = vreinterpretq_u16_s16(vcombine_s16(vqmovn_s32(low), vqmovn_s32(high)));
    return vreinterpretq_u8_u16(vaddq_u16(both, vdupq_n_u16(kZero)));
  };
  for (size_t i = 0; i < count; i += 16) {
    const uint8x16_t first = words(i), second = words(i + 8);
    vst1q_u8(own.low + i, vuzp1q_u8(first, second));
    vst1q_u8(own.high + i, vuzp2q_u8(first, second));
  }
  return step;
}

// Entries of 64 codes. An index beyond a part of the table leaves what other parts gave; parts come one after the other,
// so that only one takes registers.
static inline void look_up(const uint8_t* table, const uint8_t* codes, uint8x16_t* entries) {
  uint8x16_t index[4];
  for (int v = 0; v < 4; v++) index[v] = vld1q_u8(codes + 16 * v);
  const uint8x16x4_t start = vld1q_u8_x4(table);
  for (int v = 0; v < 4; v++) entries[v] = vqtbl4q_u8(start, index[v]);
  for (int part = 1; part < 4; part++) {
    const uint8x16x4_t next = vld1q_u8_x4(table + 64 * part);
    for (int v = 0; v < 4; v++) {
      index[v] = vsubq_u8(index[v], vdupq_n_u8(64));
      entries[v] = vqtbx4q_u8(entries[v], next, index[v]);
    }
  }
}

// Sums of one plane's bytes for a tile of 64 outputs, the first 32 outputs' and then the others'.
struct PlaneSums {
  uint16x8_t even[4], odd[4];
};

// As 16-bit lanes, sums of all bytes, where odd ones spoil the even ones', and of the odd ones.
__attribute__((noinline)) PlaneSums plane_sums(const uint8_t* codes, const uint8_t* plane, uint32_t rows) {
  PlaneSums sums;
  for (int v = 0; v < 4; v++) sums.even[v] = sums.odd[v] = vdupq_n_u16(0);
  for (uint32_t row = 0; row < rows; row++, codes += kTile, plane += kEntries) {
    uint8x16_t entries[4];
    look_up(plane, codes, entries);
    for (int v = 0; v < 4; v++) {
      const uint16x8_t bytes = vreinterpretq_u16_u8(entries[v]);
      sums.even[v] = vaddq_u16(sums.even[v], bytes);
      sums.odd[v] = vsraq_n_u16(sums.odd[v], bytes, 8);
    }
  }
  for (int v = 0; v < 4; v++) sums.even[v] = vsubq_u16(sums.even[v], vshlq_n_u16(sums.odd[v], 8));
  return sums;
}

// Four of eight sums 256 * high + low as floats, added to those of earlier blocks.
static inline void store4(uint16x4_t low, uint16x4_t high, int32x4_t zero, float step, bool first, float* y) {
  const int32x4_t whole = vreinterpretq_s32_u32(vaddq_u32(vshll_n_u16(high, 8), vmovl_u16(low)));
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
        // One plane after the other: both would not fit into the registers.
        const PlaneSums low = plane_sums(p.codes.tile(block, tile), own.low, rows);
        const PlaneSums high = plane_sums(p.codes.tile(block, tile), own.high, rows);
        store32(low.even, high.even, rows, step, first, y + tile * kTile);
        store32(low.odd, high.odd, rows, step, first, y + tile * kTile + kTile / 2);
      }
    }
  }
}

Memory tbl_memory(const Codes& codes) {
  return {4 * static_cast<size_t>(codes.codebooks) * codes.in_group * kEntries, 6 * table_entries(codes)};
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
  uint8_t* planes = reinterpret_cast<uint8_t*>(sums + table_entries(p.codes));
  tbl_item(p, item_at(p, tile), {sums, planes, planes + table_entries(p.codes)});
}

void tbl_prepare(Step& step, const Call& call) {
  Product& p = init_product(step, call, tbl_memory(read_codes(call.buffers[1])));
  split_product(step, p, call.threads, 1);
  step.tiles[0] = p.codes.codebooks;
  step.run = tbl_run;
}

constexpr KernelRow kRows[] = {
    {"aqlm_lut16_c8_1x64x128_neon", "aqlm", "aqlm_tiles8", 0, kNeon, 1, 64, tbl_scratch, tbl_prepare},
    // Several rows share the reading of codes: the same code, ahead of rows for several rows of other files.
    {"aqlm_lut16_c8_4x64x128_neon", "aqlm", "aqlm_tiles8", 0, kNeon, 4, 64, tbl_scratch, tbl_prepare},
};

}  // namespace
}  // namespace aqlm

KernelRows aqlm_tbl_neon_rows() { return {aqlm::kRows, sizeof aqlm::kRows / sizeof *aqlm::kRows}; }

}  // namespace lowbit
