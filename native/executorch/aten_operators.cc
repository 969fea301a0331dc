// aten::linear and aten::embedding of float activations with bf16 or f16 weights, which ExecuTorch's own kernels
// refuse. They are registered for just these types; ExecuTorch's kernels serve all others.
#include "../families/embedding/arguments.h"
#include "../families/linear/arguments.h"
#include "../half.h"
#include "kernel_call.h"

namespace lowbit {
namespace executorch_operators {
namespace {

uint32_t float_type(const Tensor& tensor) {
  const bool half = tensor.scalar_type() == ScalarType::Half;
  return static_cast<uint32_t>(half ? FloatType::kF16 : FloatType::kBf16);
}

Tensor& linear(KernelRuntimeContext& context, const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
               Tensor& out) {
  const int64_t n = weight.size(0), k = weight.size(1);
  LOWBIT_CHECK(last_size(input) == k && (!bias || bias->numel() == n), "expected rows of %d values and a bias of %d",
               static_cast<int>(k), static_cast<int>(n));
  LOWBIT_CHECK(resize_like(out, input, n), "the result does not fit the memory planned for it");
  const uint32_t m = static_cast<uint32_t>(row_count(input));
  LinearFloatArguments to{};
  to.m = m;
  to.n = n;
  to.k = k;
  to.weights_type = float_type(weight);
  to.x = input.const_data_ptr<float>();
  to.weights = weight.const_data_ptr();
  to.bias = bias ? bias->const_data_ptr<float>() : nullptr;
  to.y = out.mutable_data_ptr<float>();
  run_kernel(context, {"linear_float", nullptr, 0, m}, to);
  return out;
}

Tensor& embedding(KernelRuntimeContext& context, const Tensor& weight, const Tensor& indices, int64_t, bool, bool,
                  Tensor& out) {
  const int64_t rows = weight.size(0), dim = weight.size(1);
  LOWBIT_CHECK(indices_in_range(indices, rows), "expected indices of 0..%d", static_cast<int>(rows - 1));
  using Size = executorch::aten::SizesType;
  const Size sizes[] = {static_cast<Size>(indices.size(0)), static_cast<Size>(indices.size(1)), static_cast<Size>(dim)};
  LOWBIT_CHECK(executorch::runtime::resize_tensor(out, {sizes, 3}) == executorch::runtime::Error::Ok,
               "the result does not fit the memory planned for it");
  EmbeddingFloatArguments to{};
  to.rows = rows;
  to.dim = dim;
  to.weights_type = float_type(weight);
  to.count = indices.numel();
  to.indices_bytes = indices.element_size();
  to.weights = weight.const_data_ptr();
  to.indices = indices.const_data_ptr();
  to.y = out.mutable_data_ptr<float>();
  run_kernel(context, {"embedding_float"}, to);
  return out;
}

// Kernel keys: type and dimension order of each tensor of a call, where the out tensor is listed twice. Types: 3 i32, 4
// i64, 5 f16, 6 f32, 15 bf16.
constexpr const char* kLinearKeys[] = {
    "v1/6;0,1|5;0,1|6;0,1|6;0,1",           "v1/6;0,1|15;0,1|6;0,1|6;0,1",
    "v1/6;0,1|5;0,1|6;0|6;0,1|6;0,1",       "v1/6;0,1|15;0,1|6;0|6;0,1|6;0,1",
    "v1/6;0,1,2|5;0,1|6;0,1,2|6;0,1,2",     "v1/6;0,1,2|15;0,1|6;0,1,2|6;0,1,2",
    "v1/6;0,1,2|5;0,1|6;0|6;0,1,2|6;0,1,2", "v1/6;0,1,2|15;0,1|6;0|6;0,1,2|6;0,1,2",
};
constexpr const char* kEmbeddingKeys[] = {
    "v1/5;0,1|4;0,1|6;0,1,2|6;0,1,2",
    "v1/15;0,1|4;0,1|6;0,1,2|6;0,1,2",
    "v1/5;0,1|3;0,1|6;0,1,2|6;0,1,2",
    "v1/15;0,1|3;0,1|6;0,1,2|6;0,1,2",
};

constexpr char kLinearName[] = "aten::linear.out";
constexpr char kEmbeddingName[] = "aten::embedding.out";

template <size_t Count>
bool register_keys(const executorch::runtime::Kernel& kernel, const char* const (&keys)[Count]) {
  for (const char* key : keys)
    if (executorch::runtime::register_kernel(executorch::runtime::Kernel(kernel.name_, key, kernel.op_)) !=
        executorch::runtime::Error::Ok)
      return false;
  return true;
}

const bool registered =
    register_keys(executorch::extension::make_boxed_kernel(kLinearName, EXECUTORCH_FN(linear, kLinearName)),
                  kLinearKeys) &&
    register_keys(executorch::extension::make_boxed_kernel(kEmbeddingName, EXECUTORCH_FN(embedding, kEmbeddingName)),
                  kEmbeddingKeys);

}  // namespace
}  // namespace executorch_operators
}  // namespace lowbit
