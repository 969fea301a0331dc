// The arguments of a call, for code that makes one.
#pragma once

#include "kernel.h"

namespace lowbit {
namespace {

// Numbers and buffers by their names in families.h; 0 and null where none is given.
template <uint32_t Scalars, uint32_t Buffers>
class CallArguments {
 public:
  double& operator[](ScalarIndex index) { return scalars_[static_cast<uint32_t>(index)]; }
  const void*& operator[](BufferIndex index) { return buffers_[static_cast<uint32_t>(index)]; }
  const void*& scratch() { return buffers_[Buffers]; }

  // Valid for as long as the arguments are.
  Call call(uint32_t threads) { return {scalars_, const_cast<void**>(buffers_), threads}; }

 private:
  double scalars_[Scalars] = {};
  const void* buffers_[Buffers + 1] = {};
};

}  // namespace
}  // namespace lowbit
