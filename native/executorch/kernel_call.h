// Calls of lowbit's kernels from ExecuTorch's operators: the best kernel of a family for this CPU, on the thread pool.
// Operators report bad arguments as the runtime expects: a line in the log and a failed context.
#pragma once

#include <executorch/extension/kernel_util/make_boxed_from_unboxed_functor.h>
#include <executorch/runtime/core/exec_aten/util/tensor_util.h>

#include "../call_arguments.h"
#include "../thread_pool.h"

namespace lowbit {
namespace executorch_operators {

using executorch::aten::Scalar;
using executorch::aten::ScalarType;
using executorch::aten::Tensor;
using executorch::runtime::KernelRuntimeContext;
using OptionalTensor = std::optional<Tensor>;

// Criteria for choosing a kernel, as in src/kernels/contract.ts. `bits` 0: any; `group` 0: no groups.
struct KernelQuery {
  const char* family;
  const char* layout = nullptr;
  uint32_t bits = 0;
  uint32_t m = 1;
  uint32_t group = 0;
};

// The kernel that src/kernels/select.ts would choose on this CPU, or null.
const KernelRow* select_row(const KernelQuery& query);

// Runs a call with scratch from the context's temporary memory, whose address goes to `scratch`. Fails the context when
// there is no kernel or no memory.
void run_call(KernelRuntimeContext& context, const KernelQuery& query, const Call& call, void*& scratch);

template <class Arguments>
void run_kernel(KernelRuntimeContext& context, const KernelQuery& query, const Arguments& arguments) {
  static const uint32_t threads = default_threads();
  CallOf<Arguments> call(arguments);
  run_call(context, query, call.call(threads), call.scratch());
}

// Resizes `out` to the sizes of `like`, with `last` as the last one.
bool resize_like(Tensor& out, const Tensor& like, int64_t last);

inline int64_t last_size(const Tensor& tensor) { return tensor.dim() == 0 ? 1 : tensor.size(tensor.dim() - 1); }
inline int64_t row_count(const Tensor& tensor) { return tensor.numel() / std::max<int64_t>(1, last_size(tensor)); }
inline bool is_float(const Tensor& tensor) { return tensor.scalar_type() == ScalarType::Float; }
inline bool is_bytes(const Tensor& tensor) {
  return tensor.scalar_type() == ScalarType::Byte || tensor.scalar_type() == ScalarType::Char;
}

// Bytes of a tensor. ExecuTorch 1.4's bindings do not export Tensor::nbytes.
inline size_t byte_size(const Tensor& tensor) {
  return static_cast<size_t>(tensor.numel()) * executorch::runtime::elementSize(tensor.scalar_type());
}

// Whether all indices, int64 or int32, are 0 .. limit - 1.
bool indices_in_range(const Tensor& indices, int64_t limit);

// Fails the context and returns from an operator.
#define LOWBIT_CHECK(condition, ...) ET_KERNEL_CHECK_MSG(context, condition, InvalidArgument, out, __VA_ARGS__)

}  // namespace executorch_operators
}  // namespace lowbit
