// Tiles of totals by the int8 outer products of SME2 (smopa): 4 k of a vector of activation rows by 4 k of two vectors
// of weight rows, summed in 32 bits in the matrix ZA.
//
// One block of assembly enters streaming mode, works and leaves it: between two blocks, compilers may put NEON
// instructions, which are illegal in that mode. Callers keep nothing in ZA. Instructions that not all assemblers know
// are written as words with their meaning beside them; `npm run arm:figures` compares the two.
#pragma once

#include <cstdint>

namespace lowbit {
namespace {

// Bytes of a streaming vector: 16, 32 or 64 where cpu_features() has kSme2.
inline uint32_t streaming_bytes() {
  uint64_t bytes;
  asm(".inst 0x04bf5820  // rdsvl x0, #1\n mov %0, x0" : "=r"(bytes) : : "x0");
  return static_cast<uint32_t>(bytes);
}

// Rows of activations of a tile. It has twice as many rows of weights.
inline uint32_t streaming_rows() { return streaming_bytes() / 4; }

// Place of a row of activations in its tile. Instructions work on four vectors of ZA, each a quarter of a tile apart:
// at these places the four are neighbouring rows.
inline uint32_t streaming_place(uint32_t row, uint32_t rows) { return row % 4 * (rows / 4) + row / 4; }

// A tile: totals [rows][32] = sum over chunks: scale * factor * (sum s * q - zero * sum q), as panel32.h has it.
// x: [k / 4][rows][4]; weights: [k / 4][2 * rows][4]; scales and zeros: [groups][32], as are totals, 128 bytes a row.
// factors and sums of a chunk of up to `chunk` k of a group: [rows], `chunk_stride` bytes from one chunk to the next.
struct StreamingTile {
  const int8_t *x, *weights;
  const float *factors, *sums, *scales, *zeros;
  float* totals;
  uint64_t groups, group_length, chunk, chunk_stride, flags;
  // Which row of `sums` each place of a tile has: the inverse of streaming_place.
  const uint32_t* places;
};
constexpr uint64_t kStreamingZeros = 1, kStreamingMinima = 2, kStreamingFactors = 4;

__attribute__((noinline)) inline void multiply_streaming(const StreamingTile& tile) {
  asm volatile(
      R"(
  ldp x9, x10, [%0]
  ldp x11, x14, [%0, #16]
  ldp x12, x13, [%0, #32]
  ldp x15, x5, [%0, #48]
  ldp x6, x7, [%0, #64]
  ldp x4, x17, [%0, #80]
  ldr x2, [%0, #96]
  .inst 0x04bf5823  // rdsvl x3, #1
  .inst 0xd503477f  // smstart
  .inst 0x2518e3e0  // ptrue p0.b
  .inst 0x25207810  // ptrue pn8.b
  .inst 0xc00800ff  // zero {za}
  .inst 0xa540a047  // ld1w {z7.s}, p0/z, [x2]
  lsl x16, x3, #2
  lsr x3, x3, #2
1:  // A group.
  mov x1, x6
  .inst 0xa540a188  // ld1w {z8.s}, p0/z, [x12]
  .inst 0xa541a189  // ld1w {z9.s}, p0/z, [x12, #1, mul vl]
  add x12, x12, #128
  tst x17, #3
  b.eq 2f
  .inst 0xa540a1aa  // ld1w {z10.s}, p0/z, [x13]
  .inst 0xa541a1ab  // ld1w {z11.s}, p0/z, [x13, #1, mul vl]
  add x13, x13, #128
2:  // A chunk.
  cmp x1, x7
  csel x2, x1, x7, lo
  sub x1, x1, x2
3:  // 16 k.
  .inst 0xa0408120  // ld1b {z0.b-z3.b}, pn8/z, [x9]
  .inst 0xa0408150  // ld1b {z16.b-z19.b}, pn8/z, [x10]
  .inst 0xa0418154  // ld1b {z20.b-z23.b}, pn8/z, [x10, #4, mul vl]
  add x9, x9, x16
  add x10, x10, x16, lsl #1
  .inst 0xa0900000  // smopa za0.s, p0/m, p0/m, z0.b, z16.b
  .inst 0xa0910001  // smopa za1.s, p0/m, p0/m, z0.b, z17.b
  .inst 0xa0920020  // smopa za0.s, p0/m, p0/m, z1.b, z18.b
  .inst 0xa0930021  // smopa za1.s, p0/m, p0/m, z1.b, z19.b
  .inst 0xa0940040  // smopa za0.s, p0/m, p0/m, z2.b, z20.b
  .inst 0xa0950041  // smopa za1.s, p0/m, p0/m, z2.b, z21.b
  .inst 0xa0960060  // smopa za0.s, p0/m, p0/m, z3.b, z22.b
  .inst 0xa0970061  // smopa za1.s, p0/m, p0/m, z3.b, z23.b
  subs x2, x2, #16
  b.ne 3b
  // Sums of 4 rows at a time, times their factors and the scales, are added to the totals.
  mov x8, #0
  mov x0, x11
  mov x2, x14
4:
  .inst 0xc0060c00  // mov {z0.d-z3.d}, za.d[w8, 0, vgx4]
  .inst 0xc0060c34  // mov {z20.d-z23.d}, za.d[w8, 1, vgx4]
  .inst 0xc132e000  // scvtf {z0.s-z3.s}, {z0.s-z3.s}
  .inst 0xc132e294  // scvtf {z20.s-z23.s}, {z20.s-z23.s}
  tbz x17, #0, 5f
  .inst 0xa5002045  // ld1rqw {z5.s}, p0/z, [x2]
  add x2, x2, #16
  .inst 0x64a50540  // fmls z0.s, z10.s, z5.s[0]
  .inst 0x64ad0541  // fmls z1.s, z10.s, z5.s[1]
  .inst 0x64b50542  // fmls z2.s, z10.s, z5.s[2]
  .inst 0x64bd0543  // fmls z3.s, z10.s, z5.s[3]
  .inst 0x64a50574  // fmls z20.s, z11.s, z5.s[0]
  .inst 0x64ad0575  // fmls z21.s, z11.s, z5.s[1]
  .inst 0x64b50576  // fmls z22.s, z11.s, z5.s[2]
  .inst 0x64bd0577  // fmls z23.s, z11.s, z5.s[3]
5:
  tbz x17, #2, 6f
  .inst 0xa5002004  // ld1rqw {z4.s}, p0/z, [x0]
  add x0, x0, #16
  .inst 0x64a42000  // fmul z0.s, z0.s, z4.s[0]
  .inst 0x64ac2021  // fmul z1.s, z1.s, z4.s[1]
  .inst 0x64b42042  // fmul z2.s, z2.s, z4.s[2]
  .inst 0x64bc2063  // fmul z3.s, z3.s, z4.s[3]
  .inst 0x64a42294  // fmul z20.s, z20.s, z4.s[0]
  .inst 0x64ac22b5  // fmul z21.s, z21.s, z4.s[1]
  .inst 0x64b422d6  // fmul z22.s, z22.s, z4.s[2]
  .inst 0x64bc22f7  // fmul z23.s, z23.s, z4.s[3]
6:
  .inst 0xc1381802  // fmla za.s[w8, 2, vgx4], {z0.s-z3.s}, z8.s
  .inst 0xc1391a83  // fmla za.s[w8, 3, vgx4], {z20.s-z23.s}, z9.s
  add x8, x8, #4
  cmp x8, x3
  b.lo 4b
  tbz x17, #1, 7f
  .inst 0xa540a1c6  // ld1w {z6.s}, p0/z, [x14]
  .inst 0x05a730c6  // tbl z6.s, {z6.s}, z7.s
  .inst 0x808a00d2  // fmops za2.s, p0/m, p0/m, z6.s, z10.s
  .inst 0x808b00d3  // fmops za3.s, p0/m, p0/m, z6.s, z11.s
7:
  .inst 0xc0080033  // zero {za0.s, za1.s}
  add x11, x11, x4
  add x14, x14, x4
  cbnz x1, 2b
  subs x5, x5, #1
  b.ne 1b
  mov x8, #0
8:  // 4 rows of totals.
  .inst 0xc0060c40  // mov {z0.d-z3.d}, za.d[w8, 2, vgx4]
  .inst 0xc0060c74  // mov {z20.d-z23.d}, za.d[w8, 3, vgx4]
  .inst 0xe540e1e0  // st1w {z0.s}, p0, [x15]
  .inst 0xe541e1f4  // st1w {z20.s}, p0, [x15, #1, mul vl]
  add x15, x15, #128
  .inst 0xe540e1e1  // st1w {z1.s}, p0, [x15]
  .inst 0xe541e1f5  // st1w {z21.s}, p0, [x15, #1, mul vl]
  add x15, x15, #128
  .inst 0xe540e1e2  // st1w {z2.s}, p0, [x15]
  .inst 0xe541e1f6  // st1w {z22.s}, p0, [x15, #1, mul vl]
  add x15, x15, #128
  .inst 0xe540e1e3  // st1w {z3.s}, p0, [x15]
  .inst 0xe541e1f7  // st1w {z23.s}, p0, [x15, #1, mul vl]
  add x15, x15, #128
  add x8, x8, #4
  cmp x8, x3
  b.lo 8b
  .inst 0xd503467f  // smstop
)"
      :
      : "r"(&tile)
      : "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16",
        "x17", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15",
        "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31",
        "cc", "memory");
}

}  // namespace
}  // namespace lowbit
