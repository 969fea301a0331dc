// AQLM's operators over packed codes; packages/aqlm/src/operators.ts and layout.ts describe their arguments.
#include "../codes.h"
#include "executorch/packed_weights.h"

// Defined in library.cc.
extern "C" lowbit::KernelLibrary lowbit_kernel_library();

namespace lowbit {
namespace executorch_operators {
namespace {

const bool rows_are_added = add_kernel_rows(lowbit_kernel_library().rows);

constexpr uint32_t kAqlmMagic = 0x3141424c;
// As in packages/aqlm/src/form.ts: longest groups that kernels have room for, and most codebooks that they sum in 16
// bits.
constexpr uint8_t kCodebooksMax = 16, kBitsMax = 16, kGroupMax = 64;

bool is_within(uint8_t value, uint8_t most) { return value >= 1 && value <= most; }

// Whether the header fits the sizes of vectors [codebooks, 2^bits, out group, in group] and scales.
bool is_packed_codes(const Tensor& codes, const Tensor& vectors, int64_t n, int64_t k) {
  if (codes.scalar_type() != ScalarType::Byte || byte_size(codes) < aqlm::kHeaderBytes) return false;
  const uint8_t* bytes = static_cast<const uint8_t*>(codes.const_data_ptr());
  uint32_t magic, sum;
  memcpy(&magic, bytes, 4);
  memcpy(&sum, bytes + 60, 4);
  if (magic != kAqlmMagic || sum != checksum(bytes, 60) || bytes[4] != 1 || bytes[5] != 0) return false;
  if (!is_within(bytes[7], kCodebooksMax) || !is_within(bytes[8], kBitsMax) || !is_within(bytes[9], kGroupMax) ||
      !is_within(bytes[10], kGroupMax) || bytes[11] != aqlm::kBlock || n < 1 || k < 1)
    return false;
  const aqlm::Codes header = aqlm::read_codes(bytes);
  const bool agrees = header.n == n && header.k == k && header.codebooks == vectors.size(0) &&
                      header.entries() == vectors.size(1) && header.out_group == vectors.size(2) &&
                      header.in_group == vectors.size(3) && header.code_bytes == (bytes[8] <= 8 ? 1u : 2u);
  if (!agrees || k % header.in_group != 0 || n % header.out_group != 0 || header.in_group % 8 != 0) return false;
  const size_t count = size_t{header.tiles} * aqlm::kTile * header.groups * header.codebooks;
  return byte_size(codes) == aqlm::kHeaderBytes + count * header.code_bytes;
}

bool is_float_or_half(const Tensor& tensor) { return is_float(tensor) || tensor.scalar_type() == ScalarType::Half; }

Tensor& code_matmat(KernelRuntimeContext& context, const Tensor& input, const Tensor& codes, const Tensor& vectors,
                    const Tensor& scales, const OptionalTensor& bias, Tensor& out) {
  LOWBIT_CHECK(vectors.dim() == 4 && is_float_or_half(vectors) && is_float_or_half(scales),
               "expected codebooks [codebooks, 2^bits, out group, in group] and scales of f32 or f16");
  const int64_t n = scales.numel() * vectors.size(2), k = last_size(input);
  LOWBIT_CHECK(is_packed_codes(codes, vectors, n, k), "%zu bytes are no packed codes of n %d, k %d", byte_size(codes),
               static_cast<int>(n), static_cast<int>(k));
  LOWBIT_CHECK(is_float(input) && is_float(out) && (!bias || (is_float(*bias) && bias->numel() == n)),
               "expected float activations and a float bias of %d", static_cast<int>(n));
  LOWBIT_CHECK(resize_like(out, input, n), "the result does not fit the memory planned for it");
  const bool bytes8 = vectors.size(1) == 256 && vectors.size(2) == 1;
  const uint32_t m = static_cast<uint32_t>(row_count(input));
  aqlm::AqlmArguments to{};
  to.m = m;
  to.vectors_are_half = !is_float(vectors);
  to.scales_are_half = !is_float(scales);
  to.x = input.const_data_ptr<float>();
  to.codes = static_cast<const uint8_t*>(codes.const_data_ptr());
  to.vectors = vectors.const_data_ptr();
  to.scales = scales.const_data_ptr();
  to.bias = bias ? bias->const_data_ptr<float>() : nullptr;
  to.y = out.mutable_data_ptr<float>();
  run_kernel(context, {"aqlm", bytes8 ? "aqlm_tiles8" : "aqlm_tiles", 0, m}, to);
  return out;
}

EXECUTORCH_LIBRARY(aqlm, "code2x8_lut_matmat.out", code_matmat);
EXECUTORCH_LIBRARY(aqlm, "code_matmat.out", code_matmat);

}  // namespace
}  // namespace executorch_operators
}  // namespace lowbit
