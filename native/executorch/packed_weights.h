// Headers of packed weights, which the TypeScript side checks before kernels see them: here it must be done again.
#pragma once

#include "kernel_call.h"

namespace lowbit {
namespace executorch_operators {

// What an operator's arguments say of its packed weights.
struct PackedShape {
  int64_t n, k, group_size;
};

struct PackedWeights {
  // Null when the buffer is not what the arguments say.
  const char* layout;
  uint32_t bits;
};

// FNV-1a over 32-bit words, as in src/kernels/layout/header.ts; `size` is a multiple of 4.
uint32_t checksum(const uint8_t* bytes, size_t size);

// Opens linear weights of any layout, ours or TorchAO's; src/kernels/layout/packed.ts.
PackedWeights open_packed(const Tensor& packed, const PackedShape& shape);

// Whether this is a table of TorchAO's embedding layout; src/kernels/layout/torchao-embedding.ts.
bool is_packed_embedding(const Tensor& packed, int64_t bits, int64_t rows, int64_t dim);

}  // namespace executorch_operators
}  // namespace lowbit
