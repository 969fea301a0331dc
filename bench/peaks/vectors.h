// Peak multiply-adds of vector instructions of x86. An `Isa` supplies vectors V, kMacs of one instruction, kSums at
// once, and add(sum, a, b).
#pragma once

#include "../../native/each_index.h"
#include "macs.h"

namespace lowbit {

template <class Isa>
struct VectorMacs {
  using V = typename Isa::V;
  static constexpr uint64_t kMacs = Isa::kSums * Isa::kMacs;

  // Keeps a value alive, and unknown, without instructions: sums that compilers see to be alike become one.
  static void opaque(V& value) { asm volatile("" : "+v"(value)); }

  static void rounds(uint64_t count) {
    V sums[Isa::kSums] = {}, a{}, b{};
    opaque(b);
    for (; count > 0; count--)
      each_index<Isa::kSums>([&](auto i) LOWBIT_INLINE {
        opaque(a);
        sums[i] = Isa::add(sums[i], a, b);
        opaque(sums[i]);
      });
  }
};

}  // namespace lowbit
