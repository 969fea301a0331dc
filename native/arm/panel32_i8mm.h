// What other kernels run of those with 8-bit matrix products.
#pragma once

#include "../kernel.h"
#include "../panels.h"

namespace lowbit {

// Scales are kept so often in unpacked panels.
constexpr size_t kI8mmScaleCopies = 2;

// The tiles of many rows of activations for these panel32 weights.
decltype(Step::run) i8mm_run(const Panels& weights);

}  // namespace lowbit
