// aten::linear and aten::embedding of float activations with weights in bf16 or f16, which ExecuTorch's own kernels
// refuse. They are registered for just these types, beside its kernels, which serve all others.
#include "../half.h"
#include "kernel_call.h"

namespace lowbit {
namespace executorch_operators {
namespace {

double float_type(const Tensor& tensor) {
  const bool half = tensor.scalar_type() == ScalarType::Half;
  return static_cast<double>(half ? FloatType::kF16 : FloatType::kBf16);
}

Tensor& linear(KernelRuntimeContext& context, const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
               Tensor& out) {
  const int64_t n = weight.size(0), k = weight.size(1);
  LOWBIT_CHECK(last_size(input) == k && (!bias || bias->numel() == n), "expected rows of %d values and a bias of %d",
               static_cast<int>(k), static_cast<int>(n));
  LOWBIT_CHECK(resize_like(out, input, n), "the result does not fit the memory planned for it");
  const uint32_t m = static_cast<uint32_t>(row_count(input));
  CallArguments<float_linear::kScalars, float_linear::kBuffers> to;
  to[float_linear::kM] = m;
  to[float_linear::kN] = n;
  to[float_linear::kK] = k;
  to[float_linear::kWeightType] = float_type(weight);
  to[float_linear::kHasBias] = bias.has_value();
  to[float_linear::kX] = input.const_data_ptr();
  to[float_linear::kWeights] = weight.const_data_ptr();
  to[float_linear::kBias] = bias ? bias->const_data_ptr() : nullptr;
  to[float_linear::kY] = out.mutable_data_ptr();
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
  CallArguments<embedding_float::kScalars, embedding_float::kBuffers> to;
  to[embedding_float::kRows] = rows;
  to[embedding_float::kDim] = dim;
  to[embedding_float::kWeightType] = float_type(weight);
  to[embedding_float::kCount] = indices.numel();
  to[embedding_float::kIndexBytes] = indices.element_size();
  to[embedding_float::kWeights] = weight.const_data_ptr();
  to[embedding_float::kIndices] = indices.const_data_ptr();
  to[embedding_float::kY] = out.mutable_data_ptr();
  run_kernel(context, {"embedding_float"}, to);
  return out;
}

// Keys name type and order of dimensions of each tensor of a call; a call lists its out tensor twice. Types: 3 i32,
// 4 i64, 5 f16, 6 f32, 15 bf16.
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
