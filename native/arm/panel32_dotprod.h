// GEMV of panel32 weights with the dot product instructions: by chains, or by unpacked chunks for codebooks. `Mixed`:
// products of unsigned by signed bytes exist, and serve the widths that gain from them.
#pragma once

#include "panel32_chain.h"
#include "panel32_prepare.h"
#include "panel32_rows.h"

namespace lowbit {
namespace {

// Products of a row of activations with an unpacked chunk of panel32.
struct DotprodSums {
  template <int, int>
  static void sums(const int8_t* chunk, const int8_t* x, uint32_t length, int32x4_t* result) {
    int32x4_t sum[kQuads];
    for (int32x4_t& each : sum) each = vdupq_n_s32(0);
    for (const int8_t* end = x + length; x < end; x += 16) {
      const int8x16_t row = vld1q_s8(x);
      each_index<4>([&](auto s) LOWBIT_INLINE {
        for (uint32_t quad = 0; quad < kQuads; quad++, chunk += 16)
          sum[quad] = vdotq_laneq_s32(sum[quad], vld1q_s8(chunk), row, s);
      });
    }
    for (uint32_t quad = 0; quad < kQuads; quad++) result[quad] = sum[quad];
  }
};

// Widths that gain from mixed products: those with a field of one bit on top of a byte.
template <bool Mixed, int Bits>
constexpr bool kServed = !Mixed || Bits % 2 == 1;

template <bool Mixed>
struct ChainCode {
  // Codebooks need a lookup, which a chain cannot do.
  template <int Bits, bool Levels>
  static constexpr Run run() {
    if constexpr (!kServed<Mixed, Bits>) return nullptr;
    else if constexpr (Levels) return rows_run<DotprodSums, Bits, true>;
    else return chain_run<Bits, Mixed>;
  }
};

// For minima and integer scales, which chains do not support.
struct NumbersCode {
  template <int Bits, bool Levels>
  static constexpr Run run() {
    return rows_run<DotprodSums, Bits, Levels>;
  }
};

template <bool Mixed>
size_t carve_rows(Linear32& args, uint8_t* base) {
  const Panels& w = args.weights;
  Carver carver{base};
  carve_activations(carver, args, 1, w.has_levels || has_numbers(w) ? 0 : chain_starts<Mixed>(w));
  return carver.size;
}

template <bool Mixed, Granularity Of>
size_t dotprod_scratch(const Call& call) {
  Linear32 args;
  read_call(args, call, Of);
  return carve_rows<Mixed>(args, nullptr);
}

template <bool Mixed, Granularity Of>
void prepare_dotprod(Step& step, const Call& call) {
  const auto given = arguments_of<PackedLinearArguments>(call);
  Linear32& args = step.init<Linear32>();
  read_call(args, call, Of);
  carve_rows<Mixed>(args, static_cast<uint8_t*>(given.scratch));
  split_panels(step, args, call.threads);
  if constexpr (!Mixed)
    if (has_numbers(args.weights)) {
      step.run = choose_run<NumbersCode>(args.weights);
      return;
    }
  step.run = choose_run<ChainCode<Mixed>>(args.weights);
}

}  // namespace
}  // namespace lowbit
