// y = activation(x[:, :half]) * x[:, half:], for rows that hold the gate and the up projection side by side.
#pragma once

#include "activations.h"

namespace lowbit {

template <uint32_t Activation>
struct GateHalves {
  using Args = GateHalvesArguments;
  static constexpr uint32_t kChoices = gate_activation::kCount;
  static_assert(kChoices == gate_halves_activation::kCount);

  template <class Isa>
  static void row(const Args& args, size_t row) {
    const float* gate = args.gate_up + 2 * row * args.dim;
    const float* up = gate + args.dim;
    float* y = args.y + row * args.dim;
    each_vector<Isa>(args.dim, [&](size_t i, auto vector) {
      vector.store(y + i, ActivationOf<Activation>::template times<Isa>(vector.load(gate + i), vector.load(up + i)));
    });
  }
};

}  // namespace lowbit
