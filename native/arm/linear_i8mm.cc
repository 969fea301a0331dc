// Linear layers over panel32 weights on NEON with the 8-bit matrix product: prompts, 8 rows at a time.
#include "panel32_gemm.h"
#include "panel32_prepare.h"

#include "../rows.h"

namespace lowbit {
namespace {

// A product takes 2 rows of activations and 2 of weights, 8 k each, to a vector of 2 x 2 sums.
struct MatrixTile {
  static constexpr int kRowStep = 2, kTileQuads = 1, kTileStep = 16;
  // Scales are kept in the order of sums: rows 0 1 0 1 and 2 3 2 3 of a quad.
  static constexpr size_t kScaleCopies = 2;

  template <int Rows>
  static constexpr int sum_count() { return Rows / 2 * kTileQuads * 2; }
  template <int Rows, int Index>
  static constexpr int scale_of() { return Index % (2 * kTileQuads); }

  // Two vectors of 4 rows and 4 k become two of 2 rows and 8 k.
  static void store_weights(int8_t* vectors, size_t padded_k, uint32_t k, const int8x16_t* low, const int8x16_t* high) {
    for (uint32_t quad = 0; quad < kQuads; quad++) {
      int8_t* at = vectors + 4 * (quad - quad % kTileQuads) * padded_k + 4 * kTileQuads * k + 32 * (quad % kTileQuads);
      const int32x4_t a = vreinterpretq_s32_s8(low[quad]), b = vreinterpretq_s32_s8(high[quad]);
      vst1q_s8(at, vreinterpretq_s8_s32(vzip1q_s32(a, b)));
      vst1q_s8(at + 16, vreinterpretq_s8_s32(vzip2q_s32(a, b)));
    }
  }
  static void store_scales(float* at, float32x4_t scales) {
    const float64x2_t pairs = vreinterpretq_f64_f32(scales);
    vst1q_f32(at, vreinterpretq_f32_f64(vdupq_laneq_f64(pairs, 0)));
    vst1q_f32(at + 4, vreinterpretq_f32_f64(vdupq_laneq_f64(pairs, 1)));
  }

  template <int Rows>
  static inline __attribute__((always_inline)) void step(const int8_t*& weights, const int8_t** x, int32x4_t* sums) {
    repeat<kTileStep / 8>([&](auto s) {
      int8x16_t w[2 * kTileQuads];
      for (int i = 0; i < 2 * kTileQuads; i++) w[i] = vld1q_s8(weights + 16 * (2 * kTileQuads * s + i));
      repeat<Rows / 2>([&](auto pair) {
        const int8x16_t rows = vld1q_s8(x[pair] + 16 * s);
        for (int i = 0; i < 2 * kTileQuads; i++) {
          int32x4_t& sum = sums[2 * kTileQuads * pair + i];
          sum = vmmlaq_s32(sum, rows, w[i]);
        }
      });
    });
    weights += 4 * kTileQuads * kTileStep;
    for (int pair = 0; pair < Rows / 2; pair++) x[pair] += 2 * kTileStep;
  }

  template <int Rows, int Index>
  static float32x4_t subtract_zeros(float32x4_t sum, const float* zeros, const float* chunk_sums) {
    constexpr int kPair = Index / (2 * kTileQuads);
    const float32x4_t rows = vcombine_f32(vdup_n_f32(chunk_sums[2 * kPair]), vdup_n_f32(chunk_sums[2 * kPair + 1]));
    const float* lanes = zeros + 4 * scale_of<Rows, Index>();
    return vfmsq_f32(sum, vld1q_f32(lanes), rows);
  }

  template <int Rows>
  static void finish(const Linear32& args, uint32_t index, uint32_t quad, uint32_t row, const float32x4_t* totals) {
    for (uint32_t pair = 0; pair < Rows / 2; pair++) {
      for (uint32_t q = 0; q < kTileQuads; q++, totals += 2) {
        finish_quad(args, index, quad + q, row + 2 * pair, vcombine_f32(vget_low_f32(totals[0]), vget_low_f32(totals[1])));
        finish_quad(args, index, quad + q, row + 2 * pair + 1,
                    vcombine_f32(vget_high_f32(totals[0]), vget_high_f32(totals[1])));
      }
    }
  }
};

constexpr KernelRow kRows[] = {
    {"linear_a8_wx_8x32x8_neon_i8mm", "linear_a8", "panel32", 0x1fe, kNeon | kDotprod | kI8mm, 8, 32,
     gemm_scratch<MatrixTile>, prepare_gemm<MatrixTile>},
};

}  // namespace

KernelRows linear_i8mm_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
