// y = activation(gate) * up.
#pragma once

#include "activations.h"

namespace lowbit {

template <uint32_t Activation>
struct Gate {
  using Args = GateArguments;
  static constexpr uint32_t kChoices = gate_activation::kCount;

  template <class Isa, class Vector>
  static inline LOWBIT_INLINE void vector(const Args& args, size_t i, Vector vector) {
    const auto gate = vector.load(args.gate + i), up = vector.load(args.up + i);
    vector.store(args.y + i, ActivationOf<Activation>::template times<Isa>(gate, up));
  }
};

}  // namespace lowbit
