// llama::custom_sdpa of ExecuTorch by lowbit's attention, where it is causal over f32 caches without a mask. It is
// registered for such tensors only; ExecuTorch's own kernel serves all other calls.
#include <cmath>
#include <cstdlib>

#include "../families/attention/arguments.h"
#include "kernel_call.h"

namespace lowbit {
namespace executorch_operators {
namespace {

using executorch::runtime::EValue;
using Stack = executorch::runtime::Span<EValue*>;

constexpr char kName[] = "llama::custom_sdpa.out";
// Kernel key: query, keys, values and twice the result, each f32 of four dimensions in order. A mask would be one more.
constexpr char kKey[] = "v1/6;0,1,2,3|6;0,1,2,3|6;0,1,2,3|6;0,1,2,3|6;0,1,2,3";

enum Argument : size_t { kQuery, kKeys, kValues, kStart, kMask, kDropout, kCausal, kScale, kOut, kArguments };

bool is_causal_over_cache(const Stack& stack) {
  if (stack.size() < kArguments || !stack[kMask]->isNone() || !stack[kCausal]->toBool()) return false;
  const Tensor &q = stack[kQuery]->toTensor(), &keys = stack[kKeys]->toTensor(), &values = stack[kValues]->toTensor();
  for (int d = 0; d < 4; d++)
    if (keys.size(d) != values.size(d) || keys.size(d) < 1) return false;
  const int64_t start = stack[kStart]->toInt();
  return q.size(0) == 1 && keys.size(0) == 1 && q.size(3) == keys.size(3) && q.size(2) % keys.size(2) == 0 &&
         start >= 0 && start <= keys.size(1) - q.size(1);
}

void custom_sdpa(KernelRuntimeContext& context, Stack stack) {
  if (!is_causal_over_cache(stack)) {
    const auto own = executorch::runtime::get_op_function_from_registry(kName);
    ET_KERNEL_CHECK_MSG(context, own.ok(), NotSupported, , "%s: only causal attention without a mask", kName);
    return (*own)(context, stack);
  }
  const Tensor &q = stack[kQuery]->toTensor(), &keys = stack[kKeys]->toTensor(), &values = stack[kValues]->toTensor();
  Tensor& out = stack[kOut]->toTensor();
  ET_KERNEL_CHECK_MSG(context, resize_like(out, q, last_size(q)), InvalidArgument, ,
                      "the result does not fit the memory planned for it");
  const int64_t tokens = q.size(1), heads = q.size(2), head_dim = q.size(3), start = stack[kStart]->toInt();
  const double scale =
      stack[kScale]->isNone() ? 1 / std::sqrt(static_cast<double>(head_dim)) : stack[kScale]->toDouble();
  // k and v stay null: the caches hold the new rows already.
  AttentionArguments to{};
  to.tokens = tokens;
  to.heads = heads;
  to.kv_heads = keys.size(2);
  to.head_dim = head_dim;
  to.capacity = keys.size(1);
  to.scale = scale;
  to.q = q.const_data_ptr<float>();
  to.key_cache = const_cast<float*>(keys.const_data_ptr<float>());
  to.value_cache = const_cast<float*>(values.const_data_ptr<float>());
  to.position = &start;
  to.y = out.mutable_data_ptr<float>();
  run_kernel(context, {"attention", nullptr, 0, static_cast<uint32_t>(tokens)}, to);
}

// Setting LOWBIT_STOCK_ATTENTION in the environment leaves all calls to ExecuTorch's kernel.
const bool registered =
    !std::getenv("LOWBIT_STOCK_ATTENTION") &&
    executorch::runtime::register_kernel(executorch::runtime::Kernel(kName, executorch::runtime::KernelKey(kKey),
                                                                     custom_sdpa)) == executorch::runtime::Error::Ok;

}  // namespace
}  // namespace executorch_operators
}  // namespace lowbit
