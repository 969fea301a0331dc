// Checks headers of packed weights as the TypeScript side does, which does not see ExecuTorch's calls.
#pragma once

#include "kernel_call.h"

namespace lowbit {
namespace executorch_operators {

// Shape of packed weights as an operator's arguments give it.
struct PackedShape {
  int64_t n, k, group_size;
};

struct PackedWeights {
  // Null when the buffer does not fit the arguments.
  const char* layout;
  uint32_t bits;
};

// FNV-1a over 32-bit words, as in src/kernels/layout/header.ts; `size` is a multiple of 4.
uint32_t checksum(const uint8_t* bytes, size_t size);

// Opens linear weights of any layout, lowbit's or TorchAO's, as src/kernels/layout/packed.ts.
PackedWeights open_packed(const Tensor& packed, const PackedShape& shape);

// Whether this is a table of TorchAO's embedding layout, as in src/kernels/layout/torchao-embedding.ts.
bool is_packed_embedding(const Tensor& packed, int64_t bits, int64_t rows, int64_t dim);

}  // namespace executorch_operators
}  // namespace lowbit
