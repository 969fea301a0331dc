#include "sized_plan.h"

#include <algorithm>
#include <utility>

namespace lowbit {

void SizedPlan::add(PreparedCall call, std::vector<double> slopes, size_t scratch_bytes) {
  steps.emplace_back();
  call.row->prepare(steps.back(), {call.scalars.data(), call.buffers.data(), threads_});
  if (slopes.empty()) return;
  std::vector<double> resized(call.scalars.size());
  calls_.push_back({std::move(call), steps.size() - 1, std::move(slopes), scratch_bytes, std::move(resized)});
}

bool SizedPlan::resize(const std::vector<double>& change) {
  for (SizedCall& sized : calls_) {
    const std::vector<double>& scalars = sized.call.scalars;
    const size_t sizes = std::min(change.size(), sized.slopes.size() / std::max<size_t>(1, scalars.size()));
    std::copy(scalars.begin(), scalars.end(), sized.resized.begin());
    for (size_t size = 0; size < sizes; size++)
      for (size_t i = 0; i < scalars.size(); i++)
        sized.resized[i] += sized.slopes[size * scalars.size() + i] * change[size];
    const auto scratch_bytes = sized.call.row->scratch_bytes;
    if (scratch_bytes && scratch_bytes(sized.arguments(threads_)) > sized.scratch_bytes) return false;
  }
  for (const SizedCall& sized : calls_) {
    Step& step = steps[sized.step];
    step = {};
    sized.call.row->prepare(step, sized.arguments(threads_));
  }
  return true;
}

}  // namespace lowbit
