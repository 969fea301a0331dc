// The arguments of families of kernels. Written by `npm run families` from src/kernels/families/.
#pragma once

#include "../kernel.h"

namespace lowbit {

struct AddArgs {
  // [count]
  const float* a;
  // [count]
  const float* b;
  // [count]
  float* y;
  size_t count;
  float alpha;
};

static inline void read_arguments(const Call& call, AddArgs& args) {
  args.count = scalar_of<size_t>(call, ScalarIndex{0});
  args.a = buffer_of<const float>(call, BufferIndex{0});
  args.b = buffer_of<const float>(call, BufferIndex{1});
  args.y = buffer_of<float>(call, BufferIndex{2});
  args.alpha = scalar_of<float>(call, ScalarIndex{1});
}

struct GeluArgs {
  // [count]
  const float* x;
  // [count]
  float* y;
  size_t count;
  // A number of gelu_approximate.
  uint32_t approximate;
};

static inline void read_arguments(const Call& call, GeluArgs& args) {
  args.count = scalar_of<size_t>(call, ScalarIndex{0});
  args.x = buffer_of<const float>(call, BufferIndex{0});
  args.y = buffer_of<float>(call, BufferIndex{1});
  args.approximate = scalar_of<uint32_t>(call, ScalarIndex{1});
}

namespace gelu_approximate {
constexpr uint32_t kNone = 0;
constexpr uint32_t kTanh = 1;
constexpr uint32_t kCount = 2;
}  // namespace gelu_approximate

static inline uint32_t choice_of(const GeluArgs& args) { return args.approximate; }

struct ScaleArgs {
  // [count]
  const float* x;
  // [count]
  float* y;
  size_t count;
  float factor;
};

static inline void read_arguments(const Call& call, ScaleArgs& args) {
  args.count = scalar_of<size_t>(call, ScalarIndex{0});
  args.x = buffer_of<const float>(call, BufferIndex{0});
  args.y = buffer_of<float>(call, BufferIndex{1});
  args.factor = scalar_of<float>(call, ScalarIndex{1});
}

struct ScaleRowsArgs {
  // [rows, dim]
  const float* x;
  // [factor_count]
  const float* factors;
  // [rows, dim]
  float* y;
  size_t rows, dim, factor_count;
};

static inline void read_arguments(const Call& call, ScaleRowsArgs& args) {
  args.rows = scalar_of<size_t>(call, ScalarIndex{0});
  args.dim = scalar_of<size_t>(call, ScalarIndex{1});
  args.factor_count = scalar_of<size_t>(call, ScalarIndex{2});
  args.x = buffer_of<const float>(call, BufferIndex{0});
  args.factors = buffer_of<const float>(call, BufferIndex{1});
  args.y = buffer_of<float>(call, BufferIndex{2});
}

struct SigmoidArgs {
  // [count]
  const float* x;
  // [count]
  float* y;
  size_t count;
};

static inline void read_arguments(const Call& call, SigmoidArgs& args) {
  args.count = scalar_of<size_t>(call, ScalarIndex{0});
  args.x = buffer_of<const float>(call, BufferIndex{0});
  args.y = buffer_of<float>(call, BufferIndex{1});
}

struct SoftcapArgs {
  // [count]
  const float* x;
  // [count]
  float* y;
  size_t count;
  float cap;
};

static inline void read_arguments(const Call& call, SoftcapArgs& args) {
  args.count = scalar_of<size_t>(call, ScalarIndex{0});
  args.x = buffer_of<const float>(call, BufferIndex{0});
  args.y = buffer_of<float>(call, BufferIndex{1});
  args.cap = scalar_of<float>(call, ScalarIndex{1});
}

struct SoftplusArgs {
  // [rows, dim]
  const float* x;
  // [dim]
  const float* bias;
  // [dim]
  const float* factors;
  // [rows, dim]
  float* y;
  size_t rows, dim;
};

static inline void read_arguments(const Call& call, SoftplusArgs& args) {
  args.rows = scalar_of<size_t>(call, ScalarIndex{0});
  args.dim = scalar_of<size_t>(call, ScalarIndex{1});
  args.x = buffer_of<const float>(call, BufferIndex{0});
  args.bias = buffer_of<const float>(call, BufferIndex{1});
  args.factors = buffer_of<const float>(call, BufferIndex{2});
  args.y = buffer_of<float>(call, BufferIndex{3});
}

struct ClampedGateArgs {
  // [count]
  const float* gate;
  // [count]
  const float* up;
  // [count]
  float* y;
  size_t count;
  float slope;
  float limit;
};

static inline void read_arguments(const Call& call, ClampedGateArgs& args) {
  args.count = scalar_of<size_t>(call, ScalarIndex{0});
  args.gate = buffer_of<const float>(call, BufferIndex{0});
  args.up = buffer_of<const float>(call, BufferIndex{1});
  args.y = buffer_of<float>(call, BufferIndex{2});
  args.slope = scalar_of<float>(call, ScalarIndex{1});
  args.limit = scalar_of<float>(call, ScalarIndex{2});
}

struct GateArgs {
  // [count]
  const float* gate;
  // [count]
  const float* up;
  // [count]
  float* y;
  size_t count;
  // A number of gate_activation.
  uint32_t activation;
};

static inline void read_arguments(const Call& call, GateArgs& args) {
  args.count = scalar_of<size_t>(call, ScalarIndex{0});
  args.gate = buffer_of<const float>(call, BufferIndex{0});
  args.up = buffer_of<const float>(call, BufferIndex{1});
  args.y = buffer_of<float>(call, BufferIndex{2});
  args.activation = scalar_of<uint32_t>(call, ScalarIndex{1});
}

namespace gate_activation {
constexpr uint32_t kSilu = 0;
constexpr uint32_t kGelu = 1;
constexpr uint32_t kGeluTanh = 2;
constexpr uint32_t kQuickGelu = 3;
constexpr uint32_t kSigmoid = 4;
constexpr uint32_t kRelu = 5;
constexpr uint32_t kSquaredRelu = 6;
constexpr uint32_t kIdentity = 7;
constexpr uint32_t kCount = 8;
}  // namespace gate_activation

static inline uint32_t choice_of(const GateArgs& args) { return args.activation; }

struct GateHalvesArgs {
  // [rows, 2, dim]
  const float* gate_up;
  // [rows, dim]
  float* y;
  size_t rows, dim;
  // A number of gate_halves_activation.
  uint32_t activation;
};

static inline void read_arguments(const Call& call, GateHalvesArgs& args) {
  args.rows = scalar_of<size_t>(call, ScalarIndex{0});
  args.dim = scalar_of<size_t>(call, ScalarIndex{1});
  args.gate_up = buffer_of<const float>(call, BufferIndex{0});
  args.y = buffer_of<float>(call, BufferIndex{1});
  args.activation = scalar_of<uint32_t>(call, ScalarIndex{2});
}

namespace gate_halves_activation {
constexpr uint32_t kSilu = 0;
constexpr uint32_t kGelu = 1;
constexpr uint32_t kGeluTanh = 2;
constexpr uint32_t kQuickGelu = 3;
constexpr uint32_t kSigmoid = 4;
constexpr uint32_t kRelu = 5;
constexpr uint32_t kSquaredRelu = 6;
constexpr uint32_t kIdentity = 7;
constexpr uint32_t kCount = 8;
}  // namespace gate_halves_activation

static inline uint32_t choice_of(const GateHalvesArgs& args) { return args.activation; }

struct AddRmsNormArgs {
  // [rows, dim]
  float* x;
  // [rows, dim]
  const float* addend;
  // [dim]
  const float* weight;
  // [rows, dim]
  float* y;
  size_t rows, dim;
  double eps;
  float alpha;
};

static inline void read_arguments(const Call& call, AddRmsNormArgs& args) {
  args.rows = scalar_of<size_t>(call, ScalarIndex{0});
  args.dim = scalar_of<size_t>(call, ScalarIndex{1});
  args.x = buffer_of<float>(call, BufferIndex{0});
  args.addend = buffer_of<const float>(call, BufferIndex{1});
  args.weight = buffer_of<const float>(call, BufferIndex{2});
  args.y = buffer_of<float>(call, BufferIndex{3});
  args.eps = scalar_of<double>(call, ScalarIndex{2});
  args.alpha = scalar_of<float>(call, ScalarIndex{3});
}

struct LayerNormArgs {
  // [rows, dim]
  const float* x;
  // [dim]
  const float* weight;
  // [dim], or null
  const float* bias;
  // [rows, dim]
  float* y;
  size_t rows, dim;
  double eps;
};

static inline void read_arguments(const Call& call, LayerNormArgs& args) {
  args.rows = scalar_of<size_t>(call, ScalarIndex{0});
  args.dim = scalar_of<size_t>(call, ScalarIndex{1});
  args.x = buffer_of<const float>(call, BufferIndex{0});
  args.weight = buffer_of<const float>(call, BufferIndex{1});
  args.bias = scalar_of<bool>(call, ScalarIndex{2}) ? buffer_of<const float>(call, BufferIndex{2}) : nullptr;
  args.y = buffer_of<float>(call, BufferIndex{3});
  args.eps = scalar_of<double>(call, ScalarIndex{3});
}

struct RmsNormArgs {
  // [rows, dim]
  const float* x;
  // [dim]
  const float* weight;
  // [rows, dim]
  float* y;
  size_t rows, dim;
  double eps;
};

static inline void read_arguments(const Call& call, RmsNormArgs& args) {
  args.rows = scalar_of<size_t>(call, ScalarIndex{0});
  args.dim = scalar_of<size_t>(call, ScalarIndex{1});
  args.x = buffer_of<const float>(call, BufferIndex{0});
  args.weight = buffer_of<const float>(call, BufferIndex{1});
  args.y = buffer_of<float>(call, BufferIndex{2});
  args.eps = scalar_of<double>(call, ScalarIndex{2});
}

struct ArgmaxArgs {
  // [rows, dim]
  const float* x;
  // [rows]
  int64_t* y;
  size_t rows, dim;
};

static inline void read_arguments(const Call& call, ArgmaxArgs& args) {
  args.rows = scalar_of<size_t>(call, ScalarIndex{0});
  args.dim = scalar_of<size_t>(call, ScalarIndex{1});
  args.x = buffer_of<const float>(call, BufferIndex{0});
  args.y = buffer_of<int64_t>(call, BufferIndex{1});
}

struct GroupSumsArgs {
  // [rows, dim]
  const float* x;
  // [rows, groups]
  float* y;
  size_t rows, dim, groups;
  uint32_t group_size;
};

static inline void read_arguments(const Call& call, GroupSumsArgs& args) {
  args.rows = scalar_of<size_t>(call, ScalarIndex{0});
  args.dim = scalar_of<size_t>(call, ScalarIndex{1});
  args.groups = scalar_of<size_t>(call, ScalarIndex{2});
  args.x = buffer_of<const float>(call, BufferIndex{0});
  args.y = buffer_of<float>(call, BufferIndex{1});
  args.group_size = scalar_of<uint32_t>(call, ScalarIndex{3});
}

struct SoftmaxArgs {
  // [rows, dim]
  const float* x;
  // [rows, dim]
  float* y;
  size_t rows, dim;
};

static inline void read_arguments(const Call& call, SoftmaxArgs& args) {
  args.rows = scalar_of<size_t>(call, ScalarIndex{0});
  args.dim = scalar_of<size_t>(call, ScalarIndex{1});
  args.x = buffer_of<const float>(call, BufferIndex{0});
  args.y = buffer_of<float>(call, BufferIndex{1});
}

}  // namespace lowbit
