// Where the arguments of native calls are. Written by `npm run families` from src/aqlm/arguments.ts.
#pragma once

#include "../kernel.h"

namespace lowbit {
namespace aqlm {

namespace arguments {
constexpr ScalarIndex kM{0};
constexpr ScalarIndex kHalfVectors{1};
constexpr ScalarIndex kHalfScales{2};
constexpr ScalarIndex kHasBias{3};
constexpr BufferIndex kX{0};
constexpr BufferIndex kCodes{1};
constexpr BufferIndex kVectors{2};
constexpr BufferIndex kScales{3};
constexpr BufferIndex kBias{4};
constexpr BufferIndex kY{5};
constexpr BufferIndex kScratch{6};
constexpr uint32_t kScalars = 4, kBuffers = 6;
}  // namespace arguments

}  // namespace aqlm
}  // namespace lowbit
