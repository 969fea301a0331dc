// Linear layers with int8 activations over panel32 weights, by NEON's 8-bit matrix products (smmla, Armv8.6): prefill,
// few rows in twos, and single rows of weights of odd widths.
#include "panel32_dotprod.h"
#include "panel32_gemm.h"
#include "panel32_i8mm.h"

#include "../kernel.h"

namespace lowbit {
namespace {

// GEMM tiles. One instruction multiplies 2 rows of activations by 2 rows of weights, 8 k each, and adds 2 x 2 sums.
struct MatrixIsa {
  static constexpr int kRowStep = 2;
  static constexpr uint32_t kWideChunk = 64;
  // Scales lie as sums do: those of a quad's rows 0 1 0 1, then 2 3 2 3.
  static constexpr size_t kScaleCopies = kI8mmScaleCopies;

  // Two vectors of 4 rows and 4 k become two of 2 rows and 8 k.
  static void store_weights(int8_t* panel, QuadColumns columns, int8x16_t low, int8x16_t high) {
    int8_t* at = panel + columns.offset();
    const int32x4_t a = vreinterpretq_s32_s8(low), b = vreinterpretq_s32_s8(high);
    vst1q_s8(at, vreinterpretq_s8_s32(vzip1q_s32(a, b)));
    vst1q_s8(at + 16, vreinterpretq_s8_s32(vzip2q_s32(a, b)));
  }
  static void store_scales(float* at, float32x4_t scales) {
    const float64x2_t pairs = vreinterpretq_f64_f32(scales);
    vst1q_f32(at, vreinterpretq_f32_f64(vdupq_laneq_f64(pairs, 0)));
    vst1q_f32(at + 4, vreinterpretq_f32_f64(vdupq_laneq_f64(pairs, 1)));
  }

  // Sums are [pair of activation rows][quad][pair of weight rows].
  template <int Rows, int Quads>
  struct Tile {
    static constexpr int kSums = Rows / 2 * Quads * 2;
    static constexpr int scale_of(int sum) { return sum % (2 * Quads); }

    template <int Columns>
    static inline LOWBIT_INLINE void multiply(const int8_t** weights, const int8_t** x,
                                                              int32x4_t* sums) {
      each_index<Columns / 8>([&](auto s) LOWBIT_INLINE {
        int8x16_t w[2 * Quads];
        each_index<2 * Quads>(
            [&](auto i) LOWBIT_INLINE { w[i] = vld1q_s8(weights[i / 2] + 32 * s + 16 * (i % 2)); });
        each_index<Rows / 2>([&](auto pair) LOWBIT_INLINE {
          const int8x16_t rows = vld1q_s8(x[pair] + 16 * s);
          each_index<2 * Quads>([&](auto i) LOWBIT_INLINE {
            int32x4_t& sum = sums[2 * Quads * pair + i];
            sum = vmmlaq_s32(sum, rows, w[i]);
          });
        });
      });
    }

    template <int Index>
    static float32x4_t multiply_rows(float32x4_t sum, const float* factors) {
      constexpr int kPair = Index / (2 * Quads);
      return vmulq_f32(sum, vcombine_f32(vdup_n_f32(factors[2 * kPair]), vdup_n_f32(factors[2 * kPair + 1])));
    }

    template <int Index>
    static float32x4_t subtract_zeros(float32x4_t sum, const float* zeros, const float* chunk_sums) {
      constexpr int kPair = Index / (2 * Quads);
      const float32x4_t rows = vcombine_f32(vdup_n_f32(chunk_sums[2 * kPair]), vdup_n_f32(chunk_sums[2 * kPair + 1]));
      return vfmsq_f32(sum, vld1q_f32(zeros + 4 * scale_of(Index)), rows);
    }

    static void finish(const Linear32& args, uint32_t index, uint32_t quad, uint32_t row, const float32x4_t* totals) {
      for (uint32_t q = 0; q < Quads; q++, totals += 2) {
        const QuadFinish columns(args, index, quad + q);
        for (uint32_t pair = 0; pair < Rows / 2; pair++) {
          const float32x4_t first = totals[2 * Quads * pair], second = totals[2 * Quads * pair + 1];
          columns.store(row + 2 * pair, vcombine_f32(vget_low_f32(first), vget_low_f32(second)));
          columns.store(row + 2 * pair + 1, vcombine_f32(vget_high_f32(first), vget_high_f32(second)));
        }
      }
    }
  };
};

// Products of few rows, two at a time. Packed vectors of 4 rows of weights and 4 k become those of 2 rows and 8 k.
struct MatrixFew {
  using Isa = MatrixIsa;
  static constexpr int kRowsOfSum = 2, kHalves = 2;
  template <int Bits>
  static constexpr int kRowStep = 2;

  // Loads 8 k of a unit: rows 0 and 1 of its quads to bytes[0], rows 2 and 3 to bytes[1].
  template <class T>
  static inline LOWBIT_INLINE void load(const uint8_t* at, uint8x16_t (*bytes)[T::Weights::kVectors]) {
    each_index<T::Weights::kVectors>([&](auto v) LOWBIT_INLINE {
      const uint32x4_t low = vreinterpretq_u32_u8(vld1q_u8(at + 16 * v));
      const uint32x4_t high = vreinterpretq_u32_u8(vld1q_u8(at + 16 * (T::kBits + v)));
      bytes[0][v] = vreinterpretq_u8_u32(vzip1q_u32(low, high));
      bytes[1][v] = vreinterpretq_u8_u32(vzip2q_u32(low, high));
    });
  }

  // Adds the products of 16 k.
  template <class T>
  static inline LOWBIT_INLINE void multiply(const typename T::Weights& weights, const uint8_t* at,
                                                            const int8_t* x, size_t block_stride, int32x4_t* sums) {
    using Weights = typename T::Weights;
    each_index<2>([&](auto step) LOWBIT_INLINE {
      int8x16_t rows[T::kBlocks];
      each_index<T::kBlocks>([&](auto block) LOWBIT_INLINE {
        rows[block] = vld1q_s8(x + block * block_stride + 16 * step);
      });
      each_index<T::kUnits>([&](auto unit) LOWBIT_INLINE {
        uint8x16_t bytes[2][Weights::kVectors];
        load<T>(at + 16 * (2 * T::kBits * step + unit * Weights::kVectors), bytes);
        each_index<2>([&](auto half) LOWBIT_INLINE {
          weights.ready(bytes[half]);
          each_index<Weights::kLinks>([&](auto i) LOWBIT_INLINE {
            const int8x16_t part = weights.template part<i>(bytes[half]);
            each_index<T::kBlocks>([&](auto block) LOWBIT_INLINE {
              int32x4_t& sum = sums[((2 * unit + half) * T::kBlocks + block) * Weights::kLinks + i];
              sum = vmmlaq_s32(sum, rows[block], part);
            });
          });
        });
      });
    });
  }
};

constexpr KernelRow kRows[] = {
    {"linear_a8_wx_16x32x8_neon_i8mm", "linear_a8", "panel32", kBits1To8 | kReadsMinima, kNeon | kDotprod | kI8mm, 16,
     32, gemm_scratch<MatrixIsa, Granularity::kRow>, prepare_gemm<MatrixIsa, Granularity::kRow>},
    {"linear_a8_wx_4x32x8_neon_i8mm", "linear_a8", "panel32", kBits1To8 | kReadsMinima, kNeon | kDotprod | kI8mm, 4, 32,
     dotprod_scratch<MatrixFew, true, Granularity::kRow>, prepare_dotprod<MatrixFew, true, Granularity::kRow>},
    {"linear_a8_wx_1x32x4_neon_i8mm", "linear_a8", "panel32", 0xaa, kNeon | kDotprod | kI8mm, 1, 32,
     dotprod_scratch<MatrixFew, true, Granularity::kRow>, prepare_dotprod<MatrixFew, true, Granularity::kRow>},
    {"linear_a8b32_wx_16x32x8_neon_i8mm", "linear_a8b32", "panel32", kBits1To8 | kReadsMinima, kNeon | kDotprod | kI8mm,
     16, 32, gemm_scratch<MatrixIsa, Granularity::kBlock>, prepare_gemm<MatrixIsa, Granularity::kBlock>},
    {"linear_a8b32_wx_4x32x8_neon_i8mm", "linear_a8b32", "panel32", kBits1To8 | kReadsMinima, kNeon | kDotprod | kI8mm,
     4, 32, dotprod_scratch<MatrixFew, true, Granularity::kBlock>,
     prepare_dotprod<MatrixFew, true, Granularity::kBlock>},
    {"linear_a8b32_wx_1x32x4_neon_i8mm", "linear_a8b32", "panel32", 0xaa, kNeon | kDotprod | kI8mm, 1, 32,
     dotprod_scratch<MatrixFew, true, Granularity::kBlock>, prepare_dotprod<MatrixFew, true, Granularity::kBlock>},
};

}  // namespace

Run i8mm_run(const Panels& weights) { return choose_run<GemmCode<MatrixIsa>>(weights); }

KernelRows linear_i8mm_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
