// AQLM on NEON for 8-bit codes and several rows of x, by lookup tables with the sums of 8 or 16 rows per entry; entries
// are summed as floats.
#include <arm_neon.h>

#include "../lut_rows.h"
#include "floats8.h"
#include "generic/floats.h"
#include "kernel.h"

namespace lowbit {
namespace aqlm {
namespace {

// Sums of 8 rows of x, and of 16.
struct Sums8 {
  static constexpr uint32_t kRows = 8;
  using V = int16x8_t;
  static V add(V a, V b) { return vaddq_s16(a, b); }
  static int16x8_t& part(V& sums, uint32_t) { return sums; }
};

struct Sums16 {
  static constexpr uint32_t kRows = 16;
  using V = int16x8x2_t;
  static V add(V a, V b) { return {vaddq_s16(a.val[0], b.val[0]), vaddq_s16(a.val[1], b.val[1])}; }
  static int16x8_t& part(V& sums, uint32_t index) { return sums.val[index]; }
};

template <class Sums>
struct FloatBatch : Sums {
  using Sums::kRows;
  using V = typename Sums::V;
  using Isa8 = Neon;
  using Floats = FloatsBaseline;
  using Value = float;
  static constexpr uint32_t kAtOnce = 4;
  // Scales vectors and x without rounding, so that sums come in steps.
  static constexpr float kVectorMax = 1, kFinest = 0x1p-24f;
  // Largest sum of a run; what is left of 16 bits is for rounding, 1/2 per table.
  static constexpr float kRunMax = 0x7ff0;

  struct Inputs {
    float x[kRunInputs][kRows];
    float steps[kRows];
  };

  static size_t prepared_bytes(const Codes& codes) { return kSizesBytes + 4 * codes.vector_values(); }
  static void prepare(const Batches& p) {
    const auto prepared = prepared_vectors<float>(p.prepared);
    const Neon::F8 inverse = Neon::set(measure_vectors<Neon>(p, kVectorMax, prepared));
    for (size_t i = 0; i < p.codes.vector_values(); i += 8) {
      const Neon::F8 v = Neon::multiply_add(load8<Neon>(p, i), inverse, Neon::zero());
      vst1q_f32(prepared.values + i, v.a);
      vst1q_f32(prepared.values + i + 4, v.b);
    }
  }

  static void set_inputs(const float* x, uint32_t count, float inverse_step, uint32_t row, Inputs* inputs) {
    for (uint32_t i = 0; i < count; i++) inputs->x[i][row] = x[i] * inverse_step;
  }

  // Builds the table of one codebook for one group of a run.
  static void build_table(const Batches& p, uint32_t book, const Inputs& inputs, uint32_t group, V* table) {
    const uint32_t length = p.codes.in_group;
    const float* vectors = prepared_vectors<float>(p.prepared).values + size_t{book} * kEntries * length;
    const float (*x)[kRows] = inputs.x + group * length;
    for (uint32_t part = 0; part < kRows / 8; part++) {
      if (length == 8) build_part<1>(vectors, x, length, part, table);
      else build_part<0>(vectors, x, length, part, table);
    }
  }

  struct Steps {
    float32x4_t rows[kRows / 4];
  };
  static Steps load_steps(const float* steps) {
    Steps all;
    for (uint32_t i = 0; i < kRows / 4; i++) all.rows[i] = vld1q_f32(steps + 4 * i);
    return all;
  }

  // Converts sums to floats and adds them to those of earlier runs, unless the run is the first.
  template <bool IsFirst>
  static void add_to_totals(V sum, const Steps& steps, float* totals) {
    each_index<kRows / 8>([&](auto part) LOWBIT_INLINE {
      const int16x8_t words = Sums::part(sum, part);
      const int32x4_t fours[2] = {vmovl_s16(vget_low_s16(words)), vmovl_high_s16(words)};
      each_index<2>([&](auto half) LOWBIT_INLINE {
        constexpr uint32_t index = 2 * part + half;
        const float32x4_t before = IsFirst ? vdupq_n_f32(0) : vld1q_f32(totals + 4 * index);
        vst1q_f32(totals + 4 * index, vfmaq_f32(before, vcvtq_f32_s32(fours[half]), steps.rows[index]));
      });
    });
  }

 private:
  // Computes 8 rows' sums for the entries of a codebook. `Chunks`: chunks of 8 inputs, whose x stays in registers; 0
  // for any number.
  template <uint32_t Chunks>
  static void build_part(const float* vectors, const float (*x)[kRows], uint32_t length, uint32_t part, V* table) {
    // 1.5 * 2^23: adding it leaves whole numbers in the low bits of floats.
    const float32x4_t whole = vdupq_n_f32(0x1.8p23f);
    float32x4_t rows[8][2];
    auto load_rows = [&](uint32_t input) LOWBIT_INLINE {
      for (uint32_t i = 0; i < 8; i++)
        for (uint32_t h = 0; h < 2; h++) rows[i][h] = vld1q_f32(x[input + i] + 8 * part + 4 * h);
    };
    if (Chunks == 1) load_rows(0);
    for (uint32_t e = 0; e < kEntries; e += 2) {
      float32x4_t sums[2][2] = {};
      for (uint32_t c = 0; c < (Chunks == 0 ? length : 8 * Chunks); c += 8) {
        if (Chunks != 1) load_rows(c);
        each_index<2>([&](auto i) LOWBIT_INLINE {
          const float32x4x2_t v = vld1q_f32_x2(vectors + i * length + c);
          each_index<2>([&](auto h) LOWBIT_INLINE {
            each_index<4>([&](auto j) LOWBIT_INLINE {
              sums[i][h] = vfmaq_laneq_f32(sums[i][h], rows[j][h], v.val[0], j);
            });
            each_index<4>([&](auto j) LOWBIT_INLINE {
              sums[i][h] = vfmaq_laneq_f32(sums[i][h], rows[4 + j][h], v.val[1], j);
            });
          });
        });
      }
      vectors += 2 * length;
      for (uint32_t i = 0; i < 2; i++) {
        const int16x8_t low = vreinterpretq_s16_f32(vaddq_f32(sums[i][0], whole));
        const int16x8_t high = vreinterpretq_s16_f32(vaddq_f32(sums[i][1], whole));
        Sums::part(table[e + i], part) = vuzp1q_s16(low, high);
      }
    }
  }
};

using Batch8 = FloatBatch<Sums8>;
using Batch16 = FloatBatch<Sums16>;

constexpr KernelRow kRowTable[] = {
    {"aqlm_lut16_c8_3x64x48_neon", "aqlm", "aqlm_tiles8", 0, kNeon, 3, 64, batches_scratch<Batch8, Batch16>,
     batches_prepare<Batch8, Batch16>},
};

}  // namespace
}  // namespace aqlm

KernelRows aqlm_lut_rows_neon_rows() { return {aqlm::kRowTable, sizeof aqlm::kRowTable / sizeof *aqlm::kRowTable}; }

}  // namespace lowbit
