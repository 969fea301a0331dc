// Our fused operators of a transformer block: src/ops/transformer.ts, attention.ts, elementwise.ts and fused.ts say
// what they do.
#include "kernel_call.h"

namespace lowbit {
namespace executorch_operators {
namespace {

Tensor& rms_norm(KernelRuntimeContext& context, const Tensor& x, const Tensor& weight, double eps, Tensor& out) {
  const int64_t dim = weight.numel();
  LOWBIT_CHECK(is_float(x) && is_float(weight) && is_float(out) && dim > 0 && last_size(x) % dim == 0,
               "expected float rows of a multiple of %d values", static_cast<int>(dim));
  LOWBIT_CHECK(resize_like(out, x, last_size(x)), "the result does not fit the memory planned for it");
  CallArguments<rms_norm::kScalars, rms_norm::kBuffers> to;
  to[rms_norm::kRows] = x.numel() / dim;
  to[rms_norm::kDim] = dim;
  to[rms_norm::kEps] = eps;
  to[rms_norm::kX] = x.const_data_ptr();
  to[rms_norm::kWeight] = weight.const_data_ptr();
  to[rms_norm::kY] = out.mutable_data_ptr();
  run_kernel(context, {"rms_norm"}, to);
  return out;
}

Tensor& rope_angles(KernelRuntimeContext& context, const Tensor& tokens, const Tensor& position,
                    const Tensor& inverse_frequencies, double scale, Tensor& out) {
  LOWBIT_CHECK(position.scalar_type() == ScalarType::Long && position.numel() == 1 && tokens.dim() > 0 &&
                   is_float(inverse_frequencies) && is_float(out),
               "expected tokens [1, T], an int64 position [1] and float frequencies");
  using Size = executorch::aten::SizesType;
  const Size sizes[] = {static_cast<Size>(last_size(tokens)), 2, static_cast<Size>(inverse_frequencies.numel())};
  LOWBIT_CHECK(executorch::runtime::resize_tensor(out, {sizes, 3}) == executorch::runtime::Error::Ok,
               "the result does not fit the memory planned for it");
  CallArguments<rope_angles::kScalars, rope_angles::kBuffers> to;
  to[rope_angles::kTokens] = sizes[0];
  to[rope_angles::kHalf] = sizes[2];
  to[rope_angles::kScale] = scale;
  to[rope_angles::kEach] = 0;
  to[rope_angles::kPosition] = position.const_data_ptr();
  to[rope_angles::kInverseFrequencies] = inverse_frequencies.const_data_ptr();
  to[rope_angles::kAngles] = out.mutable_data_ptr();
  run_kernel(context, {"rope_angles"}, to);
  return out;
}

Tensor& rope(KernelRuntimeContext& context, const Tensor& x, const Tensor& angles, int64_t head_dim, Tensor& out) {
  const int64_t tokens = row_count(x);
  LOWBIT_CHECK(is_float(x) && is_float(angles) && is_float(out) && head_dim > 0 && last_size(x) % head_dim == 0,
               "expected float rows of a multiple of %d values", static_cast<int>(head_dim));
  LOWBIT_CHECK(angles.dim() == 3 && angles.size(0) == tokens && angles.size(1) == 2 && 2 * angles.size(2) <= head_dim,
               "expected angles [%d, 2, at most %d]", static_cast<int>(tokens), static_cast<int>(head_dim / 2));
  LOWBIT_CHECK(resize_like(out, x, last_size(x)), "the result does not fit the memory planned for it");
  CallArguments<rope::kScalars, rope::kBuffers> to;
  to[rope::kTokens] = tokens;
  to[rope::kHeads] = last_size(x) / head_dim;
  to[rope::kHeadDim] = head_dim;
  to[rope::kHalf] = angles.size(2);
  to[rope::kX] = x.const_data_ptr();
  to[rope::kAngles] = angles.const_data_ptr();
  to[rope::kY] = out.mutable_data_ptr();
  run_kernel(context, {"rope"}, to);
  return out;
}

// How src/kernels/native/families.ts numbers the types of caches; -1 for others.
int cache_type(const Tensor& cache) {
  switch (cache.scalar_type()) {
    case ScalarType::Float: return 0;
    case ScalarType::Half: return 1;
    case ScalarType::Char: return 2;
    default: return -1;
  }
}

bool is_cache_like(const Tensor& cache, const Tensor& other) {
  if (cache.dim() != 4 || cache.size(0) != 1 || other.dim() != 4 || cache.scalar_type() != other.scalar_type())
    return false;
  for (int d = 0; d < 4; d++)
    if (cache.size(d) != other.size(d) || cache.size(d) < 1) return false;
  return true;
}

// Whether so many tokens at a position lie in a cache.
bool is_place(const Tensor& position, int64_t tokens, int64_t capacity) {
  if (position.scalar_type() != ScalarType::Long || position.numel() != 1) return false;
  const int64_t start = *position.const_data_ptr<int64_t>();
  return start >= 0 && start <= capacity - tokens;
}

const void* data_of(const Tensor* tensor) { return tensor ? tensor->const_data_ptr() : nullptr; }

struct AttentionOptions {
  const Tensor *key_scales, *value_scales;
  double scale;
  int64_t window;
  double softcap;
};

Tensor& attend(KernelRuntimeContext& context, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& keys,
               const Tensor& values, const Tensor& position, const AttentionOptions& options, Tensor& out) {
  LOWBIT_CHECK(is_cache_like(keys, values), "expected two caches [1, capacity, heads, D] alike");
  const int64_t capacity = keys.size(1), kv_heads = keys.size(2), head_dim = keys.size(3), width = kv_heads * head_dim;
  const int64_t tokens = row_count(q);
  LOWBIT_CHECK(is_float(q) && is_float(k) && is_float(v) && is_float(out) && last_size(q) % width == 0 &&
                   k.numel() == tokens * width && v.numel() == tokens * width,
               "expected float q, k, v of %d tokens and heads of %d", static_cast<int>(tokens),
               static_cast<int>(head_dim));
  LOWBIT_CHECK(is_place(position, tokens, capacity) && options.window >= 0,
               "%d tokens do not fit a cache of %d at their position", static_cast<int>(tokens),
               static_cast<int>(capacity));
  LOWBIT_CHECK(resize_like(out, q, last_size(q)), "the result does not fit the memory planned for it");
  CallArguments<attention::kScalars, attention::kBuffers> to;
  to[attention::kTokens] = tokens;
  to[attention::kHeads] = last_size(q) / head_dim;
  to[attention::kKvHeads] = kv_heads;
  to[attention::kHeadDim] = head_dim;
  to[attention::kCapacity] = capacity;
  to[attention::kScale] = options.scale;
  to[attention::kWindow] = options.window;
  to[attention::kSoftcap] = options.softcap;
  to[attention::kCacheType] = cache_type(keys);
  to[attention::kStores] = 1;
  to[attention::kQ] = q.const_data_ptr();
  to[attention::kK] = k.const_data_ptr();
  to[attention::kV] = v.const_data_ptr();
  to[attention::kKeyCache] = keys.const_data_ptr();
  to[attention::kValueCache] = values.const_data_ptr();
  to[attention::kKeyScales] = data_of(options.key_scales);
  to[attention::kValueScales] = data_of(options.value_scales);
  to[attention::kPosition] = position.const_data_ptr();
  to[attention::kY] = out.mutable_data_ptr();
  run_kernel(context, {"attention", nullptr, 0, static_cast<uint32_t>(tokens)}, to);
  return out;
}

Tensor& attention(KernelRuntimeContext& context, const Tensor& q, const Tensor& k, const Tensor& v, Tensor& keys,
                  Tensor& values, const Tensor& position, double scale, int64_t window, double softcap, Tensor& out) {
  LOWBIT_CHECK(is_float(keys) || keys.scalar_type() == ScalarType::Half, "expected caches of f32 or f16");
  return attend(context, q, k, v, keys, values, position, {nullptr, nullptr, scale, window, softcap}, out);
}

Tensor& attention_int8(KernelRuntimeContext& context, const Tensor& q, const Tensor& k, const Tensor& v, Tensor& keys,
                       Tensor& values, Tensor& key_scales, Tensor& value_scales, const Tensor& position, double scale,
                       int64_t window, double softcap, Tensor& out) {
  const int64_t count = keys.numel() / std::max<int64_t>(1, last_size(keys));
  LOWBIT_CHECK(keys.scalar_type() == ScalarType::Char && is_float(key_scales) && is_float(value_scales) &&
                   key_scales.numel() == count && value_scales.numel() == count,
               "expected int8 caches and a float scale for each row of a head");
  return attend(context, q, k, v, keys, values, position, {&key_scales, &value_scales, scale, window, softcap}, out);
}

Tensor& gated(KernelRuntimeContext& context, const char* family, const Tensor& gate, const Tensor& up, Tensor& out) {
  LOWBIT_CHECK(is_float(gate) && is_float(up) && is_float(out) && gate.numel() == up.numel(),
               "expected two float tensors of equal sizes");
  LOWBIT_CHECK(resize_like(out, gate, last_size(gate)), "the result does not fit the memory planned for it");
  CallArguments<binary::kScalars, binary::kBuffers> to;
  to[binary::kCount] = gate.numel();
  to[binary::kAlpha] = 1;
  to[binary::kA] = gate.const_data_ptr();
  to[binary::kB] = up.const_data_ptr();
  to[binary::kY] = out.mutable_data_ptr();
  run_kernel(context, {family}, to);
  return out;
}

Tensor& swiglu(KernelRuntimeContext& context, const Tensor& gate, const Tensor& up, Tensor& out) {
  return gated(context, "swiglu", gate, up, out);
}

Tensor& geglu(KernelRuntimeContext& context, const Tensor& gate, const Tensor& up, Tensor& out) {
  return gated(context, "geglu", gate, up, out);
}

Tensor& erf_geglu(KernelRuntimeContext& context, const Tensor& gate, const Tensor& up, Tensor& out) {
  return gated(context, "erf_geglu", gate, up, out);
}

Tensor& quick_geglu(KernelRuntimeContext& context, const Tensor& gate, const Tensor& up, Tensor& out) {
  return gated(context, "quick_geglu", gate, up, out);
}

Tensor& reglu(KernelRuntimeContext& context, const Tensor& gate, const Tensor& up, Tensor& out) {
  return gated(context, "reglu", gate, up, out);
}

Tensor& squared_reglu(KernelRuntimeContext& context, const Tensor& gate, const Tensor& up, Tensor& out) {
  return gated(context, "squared_reglu", gate, up, out);
}

Tensor& sigmoid_gate(KernelRuntimeContext& context, const Tensor& gate, const Tensor& up, Tensor& out) {
  return gated(context, "sigmoid_gate", gate, up, out);
}

Tensor& group_sums(KernelRuntimeContext& context, const Tensor& x, int64_t group_size, Tensor& out) {
  const int64_t k = last_size(x);
  LOWBIT_CHECK(is_float(x) && is_float(out) && k > 0 && group_size > 0,
               "expected float rows and a positive group size");
  LOWBIT_CHECK(resize_like(out, x, (k + group_size - 1) / group_size),
               "the result does not fit the memory planned for it");
  CallArguments<group_sums::kScalars, group_sums::kBuffers> to;
  to[group_sums::kRows] = row_count(x);
  to[group_sums::kK] = k;
  to[group_sums::kGroupSize] = group_size;
  to[group_sums::kX] = x.const_data_ptr();
  to[group_sums::kY] = out.mutable_data_ptr();
  run_kernel(context, {"group_sums"}, to);
  return out;
}

Tensor& softcap(KernelRuntimeContext& context, const Tensor& x, double cap, Tensor& out) {
  LOWBIT_CHECK(is_float(x) && is_float(out) && cap > 0, "expected float values and a positive cap");
  LOWBIT_CHECK(resize_like(out, x, last_size(x)), "the result does not fit the memory planned for it");
  CallArguments<unary::kScalars, unary::kBuffers> to;
  to[unary::kCount] = x.numel();
  to[unary::kValue] = cap;
  to[unary::kX] = x.const_data_ptr();
  to[unary::kY] = out.mutable_data_ptr();
  run_kernel(context, {"softcap"}, to);
  return out;
}

// Columns of qkv are queries, keys and values.
Tensor& rope_attend(KernelRuntimeContext& context, const Tensor& qkv, const Tensor& angles, const Tensor& keys,
                    const Tensor& values, const Tensor& position, const AttentionOptions& options, Tensor& out) {
  LOWBIT_CHECK(is_cache_like(keys, values), "expected two caches [1, capacity, heads, D] alike");
  const int64_t capacity = keys.size(1), kv_heads = keys.size(2), head_dim = keys.size(3), width = kv_heads * head_dim;
  const int64_t tokens = row_count(qkv), queries = last_size(qkv) - 2 * width;
  LOWBIT_CHECK(is_float(qkv) && is_float(angles) && is_float(out) && queries > 0 && queries % width == 0,
               "expected float rows of queries, keys and values of heads of %d", static_cast<int>(head_dim));
  LOWBIT_CHECK(angles.dim() == 3 && angles.size(0) == tokens && angles.size(1) == 2 && 2 * angles.size(2) <= head_dim,
               "expected angles [%d, 2, at most %d]", static_cast<int>(tokens), static_cast<int>(head_dim / 2));
  LOWBIT_CHECK(is_place(position, tokens, capacity) && options.window >= 0,
               "%d tokens do not fit a cache of %d at their position", static_cast<int>(tokens),
               static_cast<int>(capacity));
  LOWBIT_CHECK(resize_like(out, qkv, queries), "the result does not fit the memory planned for it");
  CallArguments<rope_attention::kScalars, rope_attention::kBuffers> to;
  to[rope_attention::kTokens] = tokens;
  to[rope_attention::kHeads] = queries / head_dim;
  to[rope_attention::kKvHeads] = kv_heads;
  to[rope_attention::kHeadDim] = head_dim;
  to[rope_attention::kCapacity] = capacity;
  to[rope_attention::kScale] = options.scale;
  to[rope_attention::kWindow] = options.window;
  to[rope_attention::kSoftcap] = options.softcap;
  to[rope_attention::kCacheType] = cache_type(keys);
  to[rope_attention::kStores] = 1;
  to[rope_attention::kHalf] = angles.size(2);
  to[rope_attention::kQkv] = qkv.const_data_ptr();
  to[rope_attention::kAngles] = angles.const_data_ptr();
  to[rope_attention::kKeyCache] = keys.const_data_ptr();
  to[rope_attention::kValueCache] = values.const_data_ptr();
  to[rope_attention::kKeyScales] = data_of(options.key_scales);
  to[rope_attention::kValueScales] = data_of(options.value_scales);
  to[rope_attention::kPosition] = position.const_data_ptr();
  to[rope_attention::kY] = out.mutable_data_ptr();
  run_kernel(context, {"rope_attention", nullptr, 0, static_cast<uint32_t>(tokens)}, to);
  return out;
}

Tensor& rope_attention(KernelRuntimeContext& context, const Tensor& qkv, const Tensor& angles, Tensor& keys,
                       Tensor& values, const Tensor& position, double scale, int64_t window, double softcap,
                       Tensor& out) {
  LOWBIT_CHECK(is_float(keys) || keys.scalar_type() == ScalarType::Half, "expected caches of f32 or f16");
  return rope_attend(context, qkv, angles, keys, values, position, {nullptr, nullptr, scale, window, softcap}, out);
}

Tensor& rope_attention_int8(KernelRuntimeContext& context, const Tensor& qkv, const Tensor& angles, Tensor& keys,
                            Tensor& values, Tensor& key_scales, Tensor& value_scales, const Tensor& position,
                            double scale, int64_t window, double softcap, Tensor& out) {
  const int64_t count = keys.numel() / std::max<int64_t>(1, last_size(keys));
  LOWBIT_CHECK(keys.scalar_type() == ScalarType::Char && is_float(key_scales) && is_float(value_scales) &&
                   key_scales.numel() == count && value_scales.numel() == count,
               "expected int8 caches and a float scale for each row of a head");
  const AttentionOptions options = {&key_scales, &value_scales, scale, window, softcap};
  return rope_attend(context, qkv, angles, keys, values, position, options, out);
}

Tensor& gated_halves(KernelRuntimeContext& context, const char* family, const Tensor& x, Tensor& out) {
  const int64_t dim = last_size(x) / 2;
  LOWBIT_CHECK(is_float(x) && is_float(out) && dim > 0 && last_size(x) == 2 * dim,
               "expected float rows of even length");
  LOWBIT_CHECK(resize_like(out, x, dim), "the result does not fit the memory planned for it");
  CallArguments<halves::kScalars, halves::kBuffers> to;
  to[halves::kRows] = row_count(x);
  to[halves::kDim] = dim;
  to[halves::kX] = x.const_data_ptr();
  to[halves::kY] = out.mutable_data_ptr();
  run_kernel(context, {family}, to);
  return out;
}

Tensor& swiglu_halves(KernelRuntimeContext& context, const Tensor& x, Tensor& out) {
  return gated_halves(context, "swiglu_halves", x, out);
}

Tensor& geglu_halves(KernelRuntimeContext& context, const Tensor& x, Tensor& out) {
  return gated_halves(context, "geglu_halves", x, out);
}

Tensor& add_rms_norm(KernelRuntimeContext& context, Tensor& x, const Tensor& addend, const Tensor& weight, double eps,
                     const Scalar& alpha, Tensor& out) {
  const int64_t dim = weight.numel();
  LOWBIT_CHECK(is_float(x) && is_float(addend) && is_float(weight) && is_float(out) && dim > 0 && last_size(x) == dim &&
                   addend.numel() == x.numel(),
               "expected two float tensors of rows of %d values", static_cast<int>(dim));
  LOWBIT_CHECK(resize_like(out, x, dim), "the result does not fit the memory planned for it");
  CallArguments<add_rms_norm::kScalars, add_rms_norm::kBuffers> to;
  to[add_rms_norm::kRows] = row_count(x);
  to[add_rms_norm::kDim] = dim;
  to[add_rms_norm::kEps] = eps;
  to[add_rms_norm::kAlpha] = alpha.isIntegral(false) ? static_cast<double>(alpha.to<int64_t>()) : alpha.to<double>();
  to[add_rms_norm::kX] = x.const_data_ptr();
  to[add_rms_norm::kWeight] = weight.const_data_ptr();
  to[add_rms_norm::kY] = out.mutable_data_ptr();
  to[add_rms_norm::kAddend] = addend.const_data_ptr();
  run_kernel(context, {"add_rms_norm"}, to);
  return out;
}

EXECUTORCH_LIBRARY(lowbit, "rms_norm.out", rms_norm);
EXECUTORCH_LIBRARY(lowbit, "rope_attention.out", rope_attention);
EXECUTORCH_LIBRARY(lowbit, "rope_attention_int8_cache.out", rope_attention_int8);
EXECUTORCH_LIBRARY(lowbit, "swiglu_halves.out", swiglu_halves);
EXECUTORCH_LIBRARY(lowbit, "geglu_halves.out", geglu_halves);
EXECUTORCH_LIBRARY(lowbit, "add_rms_norm.out", add_rms_norm);
EXECUTORCH_LIBRARY(lowbit, "rope_angles.out", rope_angles);
EXECUTORCH_LIBRARY(lowbit, "rope.out", rope);
EXECUTORCH_LIBRARY(lowbit, "attention.out", attention);
EXECUTORCH_LIBRARY(lowbit, "attention_int8_cache.out", attention_int8);
EXECUTORCH_LIBRARY(lowbit, "swiglu.out", swiglu);
EXECUTORCH_LIBRARY(lowbit, "geglu.out", geglu);
EXECUTORCH_LIBRARY(lowbit, "erf_geglu.out", erf_geglu);
EXECUTORCH_LIBRARY(lowbit, "quick_geglu.out", quick_geglu);
EXECUTORCH_LIBRARY(lowbit, "reglu.out", reglu);
EXECUTORCH_LIBRARY(lowbit, "squared_reglu.out", squared_reglu);
EXECUTORCH_LIBRARY(lowbit, "sigmoid_gate.out", sigmoid_gate);
EXECUTORCH_LIBRARY(lowbit, "group_sums.out", group_sums);
EXECUTORCH_LIBRARY(lowbit, "softcap.out", softcap);

}  // namespace
}  // namespace executorch_operators
}  // namespace lowbit
