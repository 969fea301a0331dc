// y = gelu(x), exact or by tanh (families/gate/activations.h).
#pragma once

#include "../gate/activations.h"
#include "arguments.h"

namespace lowbit {

template <uint32_t Approximate>
struct Gelu {
  using Args = GeluArguments;
  static constexpr uint32_t kChoices = gelu_approximate::kCount;
  using Activation =
      ActivationOf<Approximate == gelu_approximate::kTanh ? gate_activation::kGeluTanh : gate_activation::kGelu>;

  template <class Isa, class Vector>
  static inline LOWBIT_INLINE void vector(const Args& args, size_t i, Vector vector) {
    vector.store(args.y + i, Activation::template times<Isa>(vector.load(args.x + i), Isa::set(1.0f)));
  }
};

}  // namespace lowbit
