// Linear layers on NEON with the dot product instructions of Armv8.2.
#include "panel16_neon.h"
#include "panel32_chain.h"
#include "panel32_prepare.h"
#include "panel32_rows.h"

#include "../rows.h"

namespace lowbit {
namespace {

struct NeonDotprod : NeonVectors {
  template <bool Wide>
  static Ints dot(Ints sum, Bytes u, int32_t four) {
    return vdotq_s32(sum, vreinterpretq_s8_u8(u), vreinterpretq_s8_s32(vdupq_n_s32(four)));
  }
};

// A row of activations by an unpacked chunk of panel32.
struct DotprodSums {
  template <int>
  static void sums(const int8_t* chunk, const int8_t* x, uint32_t length, int32x4_t* result) {
    int32x4_t sum[kQuads];
    for (int32x4_t& each : sum) each = vdupq_n_s32(0);
    for (const int8_t* end = x + length; x < end; x += 16) {
      const int8x16_t row = vld1q_s8(x);
      repeat<4>([&](auto s) {
        for (uint32_t quad = 0; quad < kQuads; quad++, chunk += 16)
          sum[quad] = vdotq_laneq_s32(sum[quad], vld1q_s8(chunk), row, s);
      });
    }
    for (uint32_t quad = 0; quad < kQuads; quad++) result[quad] = sum[quad];
  }
};

// A product takes 4 k of 4 rows of weights and of one row of activations, one of the 4 rows in a vector.
struct DotprodTile {
  static constexpr int kRowStep = 4, kTileQuads = 2, kTileStep = 16;
  static constexpr size_t kScaleCopies = 1;

  template <int Rows>
  static constexpr int sum_count() { return Rows * kTileQuads; }
  template <int Rows, int Index>
  static constexpr int scale_of() { return Index % kTileQuads; }

  static void store_weights(int8_t* vectors, size_t padded_k, uint32_t k, const int8x16_t* low, const int8x16_t* high) {
    for (uint32_t quad = 0; quad < kQuads; quad++) {
      int8_t* at = vectors + 4 * (quad - quad % kTileQuads) * padded_k + 4 * kTileQuads * k + 16 * (quad % kTileQuads);
      vst1q_s8(at, low[quad]);
      vst1q_s8(at + 16 * kTileQuads, high[quad]);
    }
  }
  static void store_scales(float* at, float32x4_t scales) { vst1q_f32(at, scales); }

  template <int Rows>
  static inline __attribute__((always_inline)) void step(const int8_t*& weights, const int8_t** x, int32x4_t* sums) {
    repeat<kTileStep / 4>([&](auto s) {
      int8x16_t w[kTileQuads];
      for (int quad = 0; quad < kTileQuads; quad++) w[quad] = vld1q_s8(weights + 16 * (kTileQuads * s + quad));
      repeat<Rows / 4>([&](auto block) {
        const int8x16_t rows = vld1q_s8(x[block] + 16 * s);
        repeat<4>([&](auto r) {
          for (int quad = 0; quad < kTileQuads; quad++) {
            int32x4_t& sum = sums[kTileQuads * (4 * block + r) + quad];
            sum = vdotq_laneq_s32(sum, w[quad], rows, r);
          }
        });
      });
    });
    weights += 4 * kTileQuads * kTileStep;
    for (int block = 0; block < Rows / 4; block++) x[block] += 4 * kTileStep;
  }

  template <int Rows, int Index>
  static float32x4_t subtract_zeros(float32x4_t sum, const float* zeros, const float* chunk_sums) {
    const float* lanes = zeros + 4 * scale_of<Rows, Index>();
    return vfmsq_n_f32(sum, vld1q_f32(lanes), chunk_sums[Index / kTileQuads]);
  }

  template <int Rows>
  static void finish(const Linear32& args, uint32_t index, uint32_t quad, uint32_t row, const float32x4_t* totals) {
    for (uint32_t r = 0; r < Rows; r++)
      for (uint32_t q = 0; q < kTileQuads; q++, totals++) finish_quad(args, index, quad + q, row + r, *totals);
  }
};

struct ChainCode {
  // Weights of a codebook are looked up, which a chain cannot do.
  template <int Bits, bool Levels>
  static constexpr Run run() {
    if constexpr (Levels) return rows_run<DotprodSums, Bits, true>;
    else return chain_run<Bits>;
  }
};

struct RowsCode {
  template <int Bits, bool Levels>
  static constexpr Run run() { return rows_run<DotprodSums, Bits, Levels>; }
};

uint32_t chain_starts(const Panels& w) {
  constexpr uint32_t kCounts[] = {0,
                                  kChain<1>.count,
                                  kChain<2>.count,
                                  kChain<3>.count,
                                  kChain<4>.count,
                                  kChain<5>.count,
                                  kChain<6>.count,
                                  kChain<7>.count,
                                  kChain<8>.count};
  return w.has_levels ? 0 : kCounts[w.bits];
}

size_t carve_rows(Linear32& args, uint8_t* base) {
  Carver carver{base};
  args.rows = carve_activations(carver, args.weights, args.m, 1, args.m == 1 ? chain_starts(args.weights) : 0);
  return carver.size;
}

size_t rows_scratch(const Call& call) {
  Linear32 args;
  read_call(args, call);
  return carve_rows(args, nullptr);
}

void prepare_rows(Step& step, const Call& call) {
  Linear32& args = step.init<Linear32>();
  read_call(args, call);
  carve_rows(args, static_cast<uint8_t*>(call.buffers[3]));
  split_panels(step, args, call.threads);
  step.run = args.m == 1 ? choose_run<ChainCode>(args.weights) : choose_run<RowsCode>(args.weights);
}

constexpr KernelRow kRows[] = {
    {"linear_a8_wx_1x32x4_neon_dotprod", "linear_a8", "panel32", 0x1fe, kNeon | kDotprod, 1, 32, rows_scratch,
     prepare_rows},
    {"linear_a8_wx_8x32x4_neon_dotprod", "linear_a8", "panel32", 0x1fe, kNeon | kDotprod, 8, 32,
     gemm_scratch<DotprodTile>, prepare_gemm<DotprodTile>},
    {"linear_a8_wx_1x16x4_neon_dotprod", "linear_a8", "panel16", 0x1fe, kNeon | kDotprod, 1, 16, packed_linear_scratch,
     packed_linear_prepare<NeonDotprod>},
};

}  // namespace

KernelRows linear_dotprod_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
