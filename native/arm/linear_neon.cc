// Linear layers with int8 activations over panel32 and panel16 weights on plain NEON, for cores without 8-bit dot
// products (Armv8.0: Cortex-A53, A72).
#include "panel16_neon.h"
#include "panel32_prepare.h"
#include "panel32_rows.h"

#include "../families/linear/arguments.h"

namespace lowbit {
namespace {

struct Neon : NeonVectors {
  // The sum of two products fits 16 bits unless both are -128 * -128. `Wide` weights may be -128.
  template <bool Wide>
  static Ints dot(Ints sum, Bytes u, int32_t four) {
    const int8x16_t w = vreinterpretq_s8_u8(u);
    const int8x16_t x = vreinterpretq_s8_s32(vdupq_n_s32(four));
    const int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(x)), high = vmull_high_s8(w, x);
    if constexpr (Wide) return vaddq_s32(sum, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
    else return vpadalq_s16(sum, vpaddq_s16(low, high));
  }
};

// Products of a row of activations with unpacked columns, summed in 16 bits first.
struct NeonSums {
  // Steps of 4 k that a 16-bit sum takes, a product of each, without overflow.
  template <int Bits>
  static constexpr uint32_t kSteps = Bits <= 5   ? 8
                                     : Bits == 6 ? 4
                                     : Bits == 7 ? 2
                                                 : 1;

  template <int Bits, int Longest>
  static void add(const int8_t* columns, const int8_t* x, uint32_t length, int32x4_t* result) {
    constexpr uint32_t kTogether = std::min<uint32_t>(kSteps<Bits>, Longest / 4);
    for (const int8_t* end = x + length; x < end;) {
      int16x8_t low[kQuads], high[kQuads];
      for (uint32_t quad = 0; quad < kQuads; quad++) low[quad] = high[quad] = vdupq_n_s16(0);
      for (uint32_t s = 0; s < kTogether; s++, x += 4) {
        const int8x16_t row = vreinterpretq_s8_s32(vld1q_dup_s32(reinterpret_cast<const int32_t*>(x)));
        for (uint32_t quad = 0; quad < kQuads; quad++, columns += 16) {
          const int8x16_t w = vld1q_s8(columns);
          low[quad] = vmlal_s8(low[quad], vget_low_s8(w), vget_low_s8(row));
          high[quad] = vmlal_high_s8(high[quad], w, row);
        }
      }
      for (uint32_t quad = 0; quad < kQuads; quad++)
        result[quad] = vaddq_s32(result[quad], vpaddq_s32(vpaddlq_s16(low[quad]), vpaddlq_s16(high[quad])));
    }
  }
};

struct RowsCode {
  template <int Bits, bool Levels>
  static constexpr Run run() {
    return rows_run<NeonSums, Bits, Levels>;
  }
};

size_t carve_rows(Linear32& args, uint8_t* base) {
  Carver carver{base};
  carve_activations(carver, args, 1, 0);
  return carver.size;
}

template <Granularity Of>
size_t rows_scratch(const Call& call) {
  Linear32 args;
  read_call(args, call, Of);
  return carve_rows(args, nullptr);
}

template <Granularity Of>
void prepare_rows(Step& step, const Call& call) {
  const auto given = arguments_of<PackedLinearArguments>(call);
  Linear32& args = step.init<Linear32>();
  read_call(args, call, Of);
  carve_rows(args, static_cast<uint8_t*>(given.scratch));
  split_panels(step, args, call.threads);
  step.run = choose_run<RowsCode>(args.weights);
}

constexpr KernelRow kRows[] = {
    {"linear_a8_wx_1x32x4_neon", "linear_a8", "panel32", kBits1To8 | kReadsMinima, kNeon, 1, 32,
     rows_scratch<Granularity::kRow>, prepare_rows<Granularity::kRow>},
    {"linear_a8b32_wx_1x32x4_neon", "linear_a8b32", "panel32", kBits1To8 | kReadsMinima, kNeon, 1, 32,
     rows_scratch<Granularity::kBlock>, prepare_rows<Granularity::kBlock>},
    {"linear_a8_wx_1x16x4_neon", "linear_a8", "panel16", kBits1To8 | kReadsMinima, kNeon, 1, 16,
     packed_linear_scratch<Granularity::kRow>, packed_linear_prepare<Neon, Granularity::kRow>},
    {"linear_a8b32_wx_1x16x4_neon", "linear_a8b32", "panel16", kBits1To8 | kReadsMinima, kNeon, 1, 16,
     packed_linear_scratch<Granularity::kBlock>, packed_linear_prepare<Neon, Granularity::kBlock>},
};

}  // namespace

KernelRows linear_neon_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
