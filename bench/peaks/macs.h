// How fast multiply-adds go when no memory is in the way: the limit that long prompts run against. Rows of no
// operator, which peak.js adds to those of the addon. An `Isa` supplies kMacs, the multiply-adds of one round, and
// rounds(count).
#pragma once

#include "../../native/kernel.h"

namespace lowbit {

template <class Isa>
void run_macs(const Step& step, uint32_t, uint32_t, uint32_t) {
  Isa::rounds(step.as<uint64_t>());
}

// Calls say how many multiply-adds a tile is, and how many tiles there are.
template <class Isa>
void prepare_macs(Step& step, const Call& call) {
  step.init<uint64_t>() = scalar_of<uint64_t>(call, ScalarIndex{0}) / Isa::kMacs;
  step.run = run_macs<Isa>;
  step.phases = 1;
  step.tiles[0] = scalar_of<uint32_t>(call, ScalarIndex{1});
}

template <class Isa>
constexpr KernelRow macs_row(const char* name, const char* family, uint32_t needs) {
  return {name, family, nullptr, 0, needs, 1, 1, nullptr, prepare_macs<Isa>};
}

}  // namespace lowbit
