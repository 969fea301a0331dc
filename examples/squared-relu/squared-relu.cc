// squared-relu.cc: the operator's kernel in C++, compiled against native/kernel.h alone
#include <algorithm>

#include "kernel.h"

namespace {

// Where a call has what operator.ts gives it. A scratch buffer, if a kernel asks for one, comes last.
constexpr lowbit::ScalarIndex kCount{0};
constexpr lowbit::BufferIndex kX{0}, kY{1};

struct Args {
  const float* x;
  float* y;
  uint32_t count;
};

constexpr uint32_t kTile = 4096;

void run(const lowbit::Step& step, uint32_t, uint32_t tile, uint32_t) {
  const Args& args = step.as<Args>();
  const uint32_t end = std::min(args.count, (tile + 1) * kTile);
  for (uint32_t i = tile * kTile; i < end; i++) {
    const float kept = std::max(args.x[i], 0.0f);
    args.y[i] = kept * kept;
  }
}

void prepare(lowbit::Step& step, const lowbit::Call& call) {
  Args& args = step.init<Args>();
  args.x = lowbit::buffer_of<const float>(call, kX);
  args.y = lowbit::buffer_of<float>(call, kY);
  args.count = lowbit::scalar_of<uint32_t>(call, kCount);
  step.phases = 1;
  step.tiles[0] = lowbit::ceil_div(args.count, kTile);
  step.run = run;
}

constexpr lowbit::KernelRow kRows[] = {
    {"squared_relu_f32_1x1x1_cpp", "squared_relu", nullptr, 0, 0, 1, 1, nullptr, prepare},
};

}  // namespace

extern "C"
#if defined(_WIN32)
    __declspec(dllexport)
#else
    __attribute__((visibility("default")))
#endif
    lowbit::KernelLibrary lowbit_kernel_library() {
  return {lowbit::kContract, {kRows, 1}};
}
