// GEMV over panel32 weights: one row of activations by chains of links (panel32_chain.h) where these serve its weights,
// else as few rows (panel32_few.h). `Mixed`: the CPU multiplies unsigned by signed bytes (usdot); such rows serve only
// the widths that gain from it.
#pragma once

#include "panel32_chain.h"
#include "panel32_few.h"

namespace lowbit {
namespace {

// Odd widths gain from mixed products: the highest field of a byte is one bit.
template <bool Mixed, int Bits>
constexpr bool kServed = !Mixed || Bits % 2 == 1;

template <bool Mixed>
struct ChainCode {
  template <int Bits, bool Levels>
  static constexpr Run run() {
    if constexpr (!kServed<Mixed, Bits> || Levels) return nullptr;
    else return chain_run<Bits, Mixed>;
  }
};

// Whether chains serve a call: one row, weights without codebook, minima and integer scales.
inline bool is_chained(const Linear32& args) {
  return args.m == 1 && !args.weights.has_levels && !has_numbers(args.weights);
}

template <class Few, bool Mixed>
size_t carve_rows(Linear32& args, uint8_t* base, uint32_t threads) {
  if (!is_chained(args)) return carve_few<Few>(args, base, threads);
  Carver carver{base};
  carve_activations(carver, args, 1, chain_starts<Mixed>(args.weights));
  return carver.size;
}

template <class Few, bool Mixed, Granularity Of>
size_t dotprod_scratch(const Call& call) {
  Linear32 args{};
  read_call(args, call, Of);
  return carve_rows<Few, Mixed>(args, nullptr, call.threads);
}

template <class Few, bool Mixed, Granularity Of>
void prepare_dotprod(Step& step, const Call& call) {
  const auto given = arguments_of<PackedLinearArguments>(call);
  Linear32& args = step.init<Linear32>();
  read_call(args, call, Of);
  carve_rows<Few, Mixed>(args, static_cast<uint8_t*>(given.scratch), call.threads);
  split_panels(step, args, call.threads);
  step.run = is_chained(args) ? choose_run<ChainCode<Mixed>>(args.weights) : choose_run<FewCode<Few>>(args.weights);
}

}  // namespace
}  // namespace lowbit
