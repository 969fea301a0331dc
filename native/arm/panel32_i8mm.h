// What the SME2 kernels take from those with 8-bit matrix products (i8mm).
#pragma once

#include "../kernel.h"
#include "../panels.h"

namespace lowbit {

// How often an unpacked panel holds each scale: once for each of the two rows of a product.
constexpr size_t kI8mmScaleCopies = 2;

// The function that runs a GEMM's tiles over these panel32 weights.
decltype(Step::run) i8mm_run(const Panels& weights);

}  // namespace lowbit
