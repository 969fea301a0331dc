#include "packed_weights.h"

#include "../families/linear/packed_rows.h"

namespace lowbit {
namespace executorch_operators {
namespace {

constexpr size_t kHeaderBytes = 64;
// SUMMED_COLUMNS_MAX of src/kernels/layout/header.ts.
constexpr int64_t kSummedColumnsMax = 65504;
constexpr uint32_t kMagic = 0x3157424c, kTorchaoMagic = 6712;

struct PanelLayout {
  uint16_t id;
  uint8_t rows;
  const char* name;
};
constexpr PanelLayout kPanelLayouts[] = {{1, 16, "panel16"}, {3, 32, "panel32"}};

uint16_t u16_at(const uint8_t* bytes, size_t at) {
  uint16_t value;
  memcpy(&value, bytes + at, sizeof value);
  return value;
}

uint32_t u32_at(const uint8_t* bytes, size_t at) {
  uint32_t value;
  memcpy(&value, bytes + at, sizeof value);
  return value;
}

bool has_size(const Panels& w, size_t size) { return kHeaderBytes + w.panel_count * w.panel_bytes == size; }

PackedWeights open_torchao(const uint8_t* bytes, size_t size, const PackedShape& shape) {
  const uint32_t bits = u32_at(bytes, 8);
  const int64_t group_size = std::min(shape.group_size, shape.k);
  const bool known = u32_at(bytes, 4) == 1 && bits >= 1 && bits <= 8 && u32_at(bytes, 20) == TorchaoRows::kRows &&
                     u32_at(bytes, 24) == TorchaoRows::kStep && u32_at(bytes, 28) == 2;
  if (!known || group_size > kSummedColumnsMax || group_size % TorchaoRows::kStep != 0 || shape.k % group_size != 0)
    return {nullptr, bits};
  const WeightShape whole = {static_cast<uint32_t>(shape.n), static_cast<uint32_t>(shape.k),
                             static_cast<uint32_t>(shape.group_size)};
  return {has_size(TorchaoRows::open(bytes, whole), size) ? "torchao_universal" : nullptr, bits};
}

PackedWeights open_panels(const uint8_t* bytes, size_t size, const PackedShape& shape) {
  const uint32_t bits = bytes[8], flags = u16_at(bytes, 10);
  const bool known = u16_at(bytes, 4) == 1 && bits >= 1 && bits <= 8 && bytes[9] <= 1 && flags <= 7 &&
                     u32_at(bytes, 60) == checksum(bytes, 60) && ((flags & 4) == 0 || bits <= 4) &&
                     shape.k <= kSummedColumnsMax;
  if (!known || u32_at(bytes, 16) != shape.n || u32_at(bytes, 20) != shape.k || u32_at(bytes, 24) != shape.group_size)
    return {nullptr, bits};
  for (const PanelLayout& layout : kPanelLayouts)
    if (layout.id == u16_at(bytes, 6) && layout.rows == bytes[12])
      return {has_size(read_panels(bytes, layout.rows, static_cast<uint32_t>(shape.n)), size) ? layout.name : nullptr,
              bits};
  return {nullptr, bits};
}

}  // namespace

uint32_t checksum(const uint8_t* bytes, size_t size) {
  uint32_t hash = 0x811c9dc5;
  for (size_t at = 0; at < size; at += 4) hash = (hash ^ u32_at(bytes, at)) * 0x01000193;
  return hash;
}

PackedWeights open_packed(const Tensor& packed, const PackedShape& shape) {
  const size_t size = byte_size(packed);
  const int64_t most = INT32_MAX;
  const bool positive = shape.n > 0 && shape.k > 0 && shape.group_size > 0;
  if (!is_bytes(packed) || size < kHeaderBytes || !positive || std::max({shape.n, shape.k, shape.group_size}) > most)
    return {nullptr, 0};
  const uint8_t* bytes = static_cast<const uint8_t*>(packed.const_data_ptr());
  switch (u32_at(bytes, 0)) {
    case kMagic: return open_panels(bytes, size, shape);
    case kTorchaoMagic: return open_torchao(bytes, size, shape);
    default: return {nullptr, 0};
  }
}

bool is_packed_embedding(const Tensor& packed, int64_t bits, int64_t rows, int64_t dim) {
  if (!is_bytes(packed) || rows < 1 || dim < 1 || dim % 32 != 0 || rows > INT32_MAX || dim > INT32_MAX) return false;
  const size_t size =
      kHeaderBytes + static_cast<size_t>(rows) * static_cast<size_t>(dim) / 8 * static_cast<size_t>(bits);
  if (byte_size(packed) != size) return false;
  const uint8_t* bytes = static_cast<const uint8_t*>(packed.const_data_ptr());
  // Magic, type, version, bits, smallest and largest chunk.
  const uint32_t fields[] = {kTorchaoMagic, 2, 1, static_cast<uint32_t>(bits), 32, 128};
  return memcmp(bytes, fields, sizeof fields) == 0;
}

}  // namespace executorch_operators
}  // namespace lowbit
