// A plan whose calls can be made ready again for other sizes, such as another number of rows: their numbers are affine
// in the sizes, and nothing else changes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernel.h"
#include "thread_pool.h"

namespace lowbit {

// What a call is made ready from; `buffers` ends with its scratch.
struct PreparedCall {
  const KernelRow* row;
  std::vector<double> scalars;
  std::vector<void*> buffers;
};

class SizedPlan : public Plan {
 public:
  // Runs on their way, which read the steps.
  std::atomic<uint32_t> runs{0};

  SizedPlan(uint32_t calls, uint32_t threads) : threads_(threads) { steps.reserve(calls); }

  // A call after the others. `slopes`, by sizes and then numbers: how much each number is more for a size that is more
  // by 1; none where the call is the same for all sizes. `scratch_bytes`: what its scratch has.
  void add(PreparedCall call, std::vector<double> slopes, size_t scratch_bytes);

  // For sizes that differ by `change` from those that the calls were added for. False, and nothing is changed, where
  // the scratch of a call is too small.
  bool resize(const std::vector<double>& change);

 private:
  struct SizedCall {
    PreparedCall call;
    size_t step;
    std::vector<double> slopes;
    size_t scratch_bytes;
    std::vector<double> resized;

    Call arguments(uint32_t threads) const { return {resized.data(), call.buffers.data(), threads}; }
  };

  uint32_t threads_;
  // Those that grow.
  std::vector<SizedCall> calls_;
};

}  // namespace lowbit
