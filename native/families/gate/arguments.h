// The arguments of families of kernels. Written by `npm run families` from src/kernels/families/gate/.
#pragma once

#include "../../call_arguments.h"

namespace lowbit {

struct ClampedGateArguments {
  // [count]
  const float* gate;
  // [count]
  const float* up;
  // [count]
  float* y;
  size_t count;
  float slope;
  float limit;
  void* scratch;
  static constexpr uint32_t kScalars = 3, kBuffers = 3;
};

template <class Visitor>
static inline void visit_arguments(ClampedGateArguments& args, Visitor& each) {
  each(args.count, args.gate, args.up, args.y, args.slope, args.limit, args.scratch);
}

namespace gate_activation {
constexpr uint32_t kSilu = 0, kGelu = 1, kGeluTanh = 2, kQuickGelu = 3, kSigmoid = 4, kRelu = 5, kSquaredRelu = 6,
                   kIdentity = 7, kCount = 8;
}  // namespace gate_activation

struct GateArguments {
  // [count]
  const float* gate;
  // [count]
  const float* up;
  // [count]
  float* y;
  size_t count;
  // A number of gate_activation.
  uint32_t activation;
  void* scratch;
  static constexpr uint32_t kScalars = 2, kBuffers = 3;
};

template <class Visitor>
static inline void visit_arguments(GateArguments& args, Visitor& each) {
  each(args.count, args.gate, args.up, args.y, args.activation, args.scratch);
}

static inline uint32_t choice_of(const GateArguments& args) { return args.activation; }

namespace gate_halves_activation {
constexpr uint32_t kSilu = 0, kGelu = 1, kGeluTanh = 2, kQuickGelu = 3, kSigmoid = 4, kRelu = 5, kSquaredRelu = 6,
                   kIdentity = 7, kCount = 8;
}  // namespace gate_halves_activation

struct GateHalvesArguments {
  // [rows, 2, dim]
  const float* gate_up;
  // [rows, dim]
  float* y;
  size_t rows, dim;
  // A number of gate_halves_activation.
  uint32_t activation;
  void* scratch;
  static constexpr uint32_t kScalars = 3, kBuffers = 2;
};

template <class Visitor>
static inline void visit_arguments(GateHalvesArguments& args, Visitor& each) {
  each(args.rows, args.dim, args.gate_up, args.y, args.activation, args.scratch);
}

static inline uint32_t choice_of(const GateHalvesArguments& args) { return args.activation; }

}  // namespace lowbit
