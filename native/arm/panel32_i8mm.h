// Functions of the kernels with 8-bit matrix products that other kernels call.
#pragma once

#include "../kernel.h"
#include "../panels.h"

namespace lowbit {

// Copies of each scale in an unpacked panel.
constexpr size_t kI8mmScaleCopies = 2;

// Function that runs the GEMM tiles for these panel32 weights.
decltype(Step::run) i8mm_run(const Panels& weights);

}  // namespace lowbit
