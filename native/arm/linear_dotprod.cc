// Linear layers with int8 activations over panel32 and panel16 weights, by NEON's 8-bit dot products (Armv8.2).
#include "panel16_neon.h"
#include "panel32_dotprod.h"
#include "panel32_gemm.h"

#include "../kernel.h"

namespace lowbit {
namespace {

struct NeonDotprod : NeonVectors {
  template <bool Wide>
  static Ints dot(Ints sum, Bytes u, int32_t four) {
    return vdotq_s32(sum, vreinterpretq_s8_u8(u), vreinterpretq_s8_s32(vdupq_n_s32(four)));
  }
};

// sum += dot products of 4 k of four rows of weights with row `Row` of activations. In assembly, so that it stays in
// its place: see Tile::multiply.
template <int Row>
inline LOWBIT_INLINE void add_dots(int32x4_t& sum, int8x16_t weights, int8x16_t rows) {
  asm volatile("sdot %0.4s, %1.16b, %2.4b[%3]" : "+w"(sum) : "w"(weights), "w"(rows), "i"(Row));
}

// GEMM tiles. One instruction (sdot by element) adds the products of 4 k of 4 rows of weights and one row of
// activations: a vector of activations has 4 rows, and the lane index takes one of them.
struct DotprodIsa {
  static constexpr int kRowStep = 4;
  static constexpr uint32_t kWideChunk = 64;
  static constexpr size_t kScaleCopies = 1;

  static void store_weights(int8_t* panel, QuadColumns columns, int8x16_t low, int8x16_t high) {
    int8_t* at = panel + columns.offset();
    vst1q_s8(at, low);
    vst1q_s8(at + 16, high);
  }
  static void store_scales(float* at, float32x4_t scales) { vst1q_f32(at, scales); }

  // Sums are [activation row][quad].
  template <int Rows, int Quads>
  struct Tile {
    static constexpr int kSums = Rows * Quads;
    static constexpr int scale_of(int sum) { return sum % Quads; }

    // Vectors of 4 k: weights of each quad, then activations of each 4 rows.
    static constexpr int kLoads = Quads + Rows / 4, kDots = Rows * Quads;

    template <int Load, int Step>
    static inline LOWBIT_INLINE int8x16_t load(const int8_t** weights, const int8_t** x) {
      if constexpr (Load < Quads) return load_alone<16 * Step>(weights[Load]);
      else return load_alone<16 * Step>(x[Load - Quads]);
    }

    // Loads and products are in the order in which they run: in-order cores load the next 4 k between products.
    template <int Columns>
    static inline LOWBIT_INLINE void multiply(const int8_t** weights, const int8_t** x,
                                                              int32x4_t* sums) {
      constexpr int kSteps = Columns / 4;
      int8x16_t vectors[2][kLoads];
      each_index<kLoads>([&](auto i) LOWBIT_INLINE { vectors[0][i] = load<i, 0>(weights, x); });
      each_index<kSteps>([&](auto s) LOWBIT_INLINE {
        const auto& now = vectors[s % 2];
        each_index<kDots>([&](auto dot) LOWBIT_INLINE {
          constexpr int kEvery = kDots / kLoads, kLoad = dot / kEvery;
          if constexpr (s + 1 < kSteps && dot % kEvery == 0 && kLoad < kLoads)
            vectors[(s + 1) % 2][kLoad] = load<kLoad, s + 1>(weights, x);
          add_dots<dot / Quads % 4>(sums[dot], now[dot % Quads], now[Quads + dot / (4 * Quads)]);
        });
      });
    }

    template <int Index>
    static float32x4_t multiply_rows(float32x4_t sum, const float* factors) {
      return vmulq_n_f32(sum, factors[Index / Quads]);
    }

    template <int Index>
    static float32x4_t subtract_zeros(float32x4_t sum, const float* zeros, const float* chunk_sums) {
      return vfmsq_n_f32(sum, vld1q_f32(zeros + 4 * scale_of(Index)), chunk_sums[Index / Quads]);
    }

    static void finish(const Linear32& args, uint32_t index, uint32_t quad, uint32_t row, const float32x4_t* totals) {
      for (uint32_t q = 0; q < Quads; q++) {
        const QuadFinish columns(args, index, quad + q);
        for (uint32_t r = 0; r < Rows; r++) columns.store(row + r, totals[Quads * r + q]);
      }
    }
  };
};

// Products of few rows: each is a lane of a vector of activations, which has 4 k of 4 rows or 8 k of 2.
struct DotprodFew {
  using Isa = DotprodIsa;
  static constexpr int kRowsOfSum = 1, kHalves = 1;
  template <int Bits>
  static constexpr int kRowStep = kFewRows<Bits>;

  // Adds the products of 16 k.
  template <class T>
  static inline LOWBIT_INLINE void multiply(const typename T::Weights& weights, const uint8_t* at,
                                                            const int8_t* x, size_t, int32x4_t* sums) {
    using Weights = typename T::Weights;
    constexpr int kSteps = 4 / T::kRowStep;
    each_index<4>([&](auto step) LOWBIT_INLINE {
      const int8x16_t rows = vld1q_s8(x + 16 * (step / kSteps));
      each_index<T::kUnits>([&](auto unit) LOWBIT_INLINE {
        uint8x16_t bytes[Weights::kVectors];
        each_index<Weights::kVectors>([&](auto v) LOWBIT_INLINE {
          bytes[v] = vld1q_u8(at + 16 * (T::kBits * step + unit * Weights::kVectors + v));
        });
        weights.ready(bytes);
        each_index<Weights::kLinks>([&](auto i) LOWBIT_INLINE {
          const int8x16_t part = weights.template part<i>(bytes);
          each_index<T::kRows>([&](auto row) LOWBIT_INLINE {
            int32x4_t& sum = sums[(unit * T::kRows + row) * Weights::kLinks + i];
            sum = vdotq_laneq_s32(sum, part, rows, kSteps * row + step % kSteps);
          });
        });
      });
    });
  }
};

constexpr KernelRow kRows[] = {
    {"linear_a8_wx_16x32x4_neon_dotprod", "linear_a8", "panel32", kBits1To8 | kReadsMinima, kNeon | kDotprod, 16, 32,
     gemm_scratch<DotprodIsa, Granularity::kRow>, prepare_gemm<DotprodIsa, Granularity::kRow>},
    {"linear_a8_wx_1x32x4_neon_dotprod", "linear_a8", "panel32", kBits1To8 | kReadsMinima, kNeon | kDotprod, 1, 32,
     dotprod_scratch<DotprodFew, false, Granularity::kRow>, prepare_dotprod<DotprodFew, false, Granularity::kRow>},
    {"linear_a8b32_wx_16x32x4_neon_dotprod", "linear_a8b32", "panel32", kBits1To8 | kReadsMinima, kNeon | kDotprod, 16,
     32, gemm_scratch<DotprodIsa, Granularity::kBlock>, prepare_gemm<DotprodIsa, Granularity::kBlock>},
    {"linear_a8b32_wx_1x32x4_neon_dotprod", "linear_a8b32", "panel32", kBits1To8 | kReadsMinima, kNeon | kDotprod, 1,
     32, dotprod_scratch<DotprodFew, false, Granularity::kBlock>,
     prepare_dotprod<DotprodFew, false, Granularity::kBlock>},
    {"linear_a8_wx_1x16x4_neon_dotprod", "linear_a8", "panel16", kBits1To8 | kReadsMinima, kNeon | kDotprod, 1, 16,
     packed_linear_scratch<Granularity::kRow>, packed_linear_prepare<NeonDotprod, Granularity::kRow>},
    {"linear_a8b32_wx_1x16x4_neon_dotprod", "linear_a8b32", "panel16", kBits1To8 | kReadsMinima, kNeon | kDotprod, 1,
     16, packed_linear_scratch<Granularity::kBlock>, packed_linear_prepare<NeonDotprod, Granularity::kBlock>},
};

}  // namespace

KernelRows linear_dotprod_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
