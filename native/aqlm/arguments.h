// Where the arguments of native calls are. Written by `npm run families` from src/aqlm/arguments.ts.
#pragma once

#include "../kernel.h"

namespace lowbit {
namespace aqlm {

namespace arguments {
constexpr ScalarIndex kM{0}, kHalfVectors{1}, kHalfScales{2};
constexpr ScalarIndex kHasBias{3};
constexpr BufferIndex kX{0}, kCodes{1}, kVectors{2};
constexpr BufferIndex kScales{3}, kBias{4}, kY{5};
constexpr BufferIndex kScratch{6};
constexpr uint32_t kScalars = 4, kBuffers = 6;
}  // namespace arguments

}  // namespace aqlm
}  // namespace lowbit
