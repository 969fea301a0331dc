// squared-relu.cc: the operator's kernel in C++, compiled against native/kernel.h alone
#include <algorithm>

#include "kernel.h"

namespace {

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

// scalars: count; buffers: x, y, scratch.
void prepare(lowbit::Step& step, const lowbit::Call& call) {
  Args& args = step.init<Args>();
  args.x = static_cast<const float*>(call.buffers[0]);
  args.y = static_cast<float*>(call.buffers[1]);
  args.count = static_cast<uint32_t>(call.scalars[0]);
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
