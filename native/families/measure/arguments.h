// The arguments of families of kernels. Written by `npm run families` from src/kernels/families/measure/.
#pragma once

#include "../../call_arguments.h"

namespace lowbit {

struct MeasureReadArguments {
  // [bytes]
  const uint8_t* data;
  size_t bytes;
  uint32_t rounds;
  size_t ahead;
  void* scratch;
  static constexpr uint32_t kScalars = 3, kBuffers = 1;
};

template <class Visitor>
static inline void visit_arguments(MeasureReadArguments& args, Visitor& each) {
  each(args.bytes, args.data, args.rounds, args.ahead, args.scratch);
}

}  // namespace lowbit
