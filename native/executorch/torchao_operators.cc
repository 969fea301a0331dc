// TorchAO's operators, which ExecuTorch's x86-64 wheels lack, and linear layers of low-bit weights and float
// activations.
#include "../families/embedding/arguments.h"
#include "../families/linear/arguments.h"
#include "packed_weights.h"

namespace lowbit {
namespace executorch_operators {
namespace {

// y = x W^T + bias; `bits` 0 accepts weights of any width.
Tensor& packed_linear(KernelRuntimeContext& context, const char* family, uint32_t bits, const Tensor& activations,
                      const Tensor& packed, const PackedShape& shape, Tensor& out) {
  const PackedWeights weights = open_packed(packed, shape);
  LOWBIT_CHECK(weights.layout && (bits == 0 || weights.bits == bits),
               "packed weights of %zu bytes and %u bits do not fit n %d, k %d, group size %d", byte_size(packed),
               weights.bits, static_cast<int>(shape.n), static_cast<int>(shape.k), static_cast<int>(shape.group_size));
  LOWBIT_CHECK(is_float(activations) && is_float(out) && activations.dim() > 0 && last_size(activations) == shape.k,
               "expected float activations of %d values", static_cast<int>(shape.k));
  LOWBIT_CHECK(resize_like(out, activations, shape.n), "the result does not fit the memory planned for it");
  const uint32_t m = static_cast<uint32_t>(row_count(activations));
  const uint32_t group = static_cast<uint32_t>(std::min(shape.group_size, shape.k));
  PackedLinearArguments to{};
  to.m = m;
  to.n = shape.n;
  to.k = shape.k;
  to.group_size = shape.group_size;
  to.x = activations.const_data_ptr<float>();
  to.weights = static_cast<const uint8_t*>(packed.const_data_ptr());
  to.y = out.mutable_data_ptr<float>();
  run_kernel(context, {family, weights.layout, weights.bits, m, group}, to);
  return out;
}

template <int Bits>
Tensor& linear_a8(KernelRuntimeContext& context, const Tensor& activations, const Tensor& packed, int64_t group_size,
                  int64_t n, int64_t k, Tensor& out) {
  return packed_linear(context, "linear_a8", Bits, activations, packed, {n, k, group_size}, out);
}

Tensor& linear_weight_only(KernelRuntimeContext& context, const Tensor& activations, const Tensor& packed,
                           int64_t group_size, int64_t n, int64_t k, Tensor& out) {
  return packed_linear(context, "linear_weight_only", 0, activations, packed, {n, k, group_size}, out);
}

// Resizes `out` to the sizes of `indices` and `dim`.
bool resize_rows(Tensor& out, const Tensor& indices, int64_t dim) {
  executorch::aten::SizesType sizes[executorch::runtime::kTensorDimensionLimit];
  const size_t rank = static_cast<size_t>(indices.dim());
  if (rank + 1 > executorch::runtime::kTensorDimensionLimit) return false;
  for (size_t d = 0; d < rank; d++) sizes[d] = static_cast<executorch::aten::SizesType>(indices.size(d));
  sizes[rank] = static_cast<executorch::aten::SizesType>(dim);
  return executorch::runtime::resize_tensor(out, {sizes, rank + 1}) == executorch::runtime::Error::Ok;
}

template <int Bits>
Tensor& shared_embedding(KernelRuntimeContext& context, const Tensor& packed, int64_t group_size, int64_t n, int64_t k,
                         const Tensor& indices, Tensor& out) {
  const PackedWeights weights = open_packed(packed, {n, k, group_size});
  LOWBIT_CHECK(weights.layout && weights.bits == Bits,
               "packed weights of %zu bytes do not fit n %d, k %d, group size %d", byte_size(packed),
               static_cast<int>(n), static_cast<int>(k), static_cast<int>(group_size));
  LOWBIT_CHECK(indices_in_range(indices, n), "expected indices of 0..%d", static_cast<int>(n - 1));
  LOWBIT_CHECK(is_float(out) && resize_rows(out, indices, k), "the result does not fit the memory planned for it");
  SharedEmbeddingArguments to{};
  to.count = indices.numel();
  to.n = n;
  to.k = k;
  to.group_size = group_size;
  to.rows = n;
  to.indices_bytes = indices.element_size();
  to.weights = static_cast<const uint8_t*>(packed.const_data_ptr());
  to.indices = indices.const_data_ptr();
  to.y = out.mutable_data_ptr<float>();
  run_kernel(context, {"shared_embedding", weights.layout, Bits}, to);
  return out;
}

template <int Bits>
Tensor& packed_embedding(KernelRuntimeContext& context, const Tensor& packed, int64_t rows, int64_t dim,
                         const Tensor& scales, const Tensor& zeros, const Tensor& indices, Tensor& out) {
  LOWBIT_CHECK(is_packed_embedding(packed, Bits, rows, dim), "%zu bytes are no packed embedding of %d rows of %d",
               byte_size(packed), static_cast<int>(rows), static_cast<int>(dim));
  const int64_t groups = scales.numel() / rows;
  LOWBIT_CHECK(is_float(scales) && groups > 0 && scales.numel() == groups * rows && dim % groups == 0 &&
                   zeros.scalar_type() == ScalarType::Char && zeros.numel() == scales.numel(),
               "expected float scales and int8 zeros [%d, groups]", static_cast<int>(rows));
  LOWBIT_CHECK(indices_in_range(indices, rows), "expected indices of 0..%d", static_cast<int>(rows - 1));
  LOWBIT_CHECK(is_float(out) && resize_rows(out, indices, dim), "the result does not fit the memory planned for it");
  EmbeddingPackedArguments to{};
  to.bits = Bits;
  to.rows = rows;
  to.dim = dim;
  to.groups = groups;
  to.count = indices.numel();
  to.indices_bytes = indices.element_size();
  to.packed = static_cast<const uint8_t*>(packed.const_data_ptr());
  to.scales = scales.const_data_ptr<float>();
  to.zeros = zeros.const_data_ptr<int8_t>();
  to.indices = indices.const_data_ptr();
  to.y = out.mutable_data_ptr<float>();
  run_kernel(context, {"embedding_packed", "torchao_embedding", Bits}, to);
  return out;
}

#define LOWBIT_REGISTER_BITS(bits)                                                             \
  EXECUTORCH_LIBRARY(torchao, "_linear_8bit_act_" #bits "bit_weight.out", linear_a8<bits>);    \
  namespace shared_##bits {                                                                    \
    EXECUTORCH_LIBRARY(torchao, "_shared_embedding_" #bits "bit.out", shared_embedding<bits>); \
  }                                                                                            \
  namespace packed_##bits {                                                                    \
    EXECUTORCH_LIBRARY(torchao, "_embedding_" #bits "bit.out", packed_embedding<bits>);        \
  }

LOWBIT_REGISTER_BITS(1)
LOWBIT_REGISTER_BITS(2)
LOWBIT_REGISTER_BITS(3)
LOWBIT_REGISTER_BITS(4)
LOWBIT_REGISTER_BITS(5)
LOWBIT_REGISTER_BITS(6)
LOWBIT_REGISTER_BITS(7)
LOWBIT_REGISTER_BITS(8)
EXECUTORCH_LIBRARY(lowbit, "linear_weight_only.out", linear_weight_only);

}  // namespace
}  // namespace executorch_operators
}  // namespace lowbit
