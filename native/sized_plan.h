// A plan whose calls can be prepared again for other sizes, such as another number of tokens: the numbers of calls are
// affine functions of the sizes, and nothing else changes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernel.h"
#include "thread_pool.h"

namespace lowbit {

// The arguments that a call is prepared from; the last of `buffers` is its scratch.
struct PreparedCall {
  const KernelRow* row;
  std::vector<double> scalars;
  std::vector<void*> buffers;
};

class SizedPlan : public Plan {
 public:
  // Runs in flight, which read the steps.
  std::atomic<uint32_t> runs{0};

  SizedPlan(uint32_t calls, uint32_t threads) : threads_(threads) { steps.reserve(calls); }

  // Appends a call. `slopes` [sizes][numbers]: by how much a number grows when a size grows by 1; empty where the call
  // does not depend on sizes. `scratch_bytes`: the size of its scratch.
  void add(PreparedCall call, std::vector<double> slopes, size_t scratch_bytes);

  // Prepares the calls for sizes that differ by `change` from those that the calls were added for. Returns false and
  // changes nothing where the scratch of a call is too small.
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
  // Calls that depend on sizes.
  std::vector<SizedCall> calls_;
};

}  // namespace lowbit
