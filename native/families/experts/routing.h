// Where a routing's parts lie: src/kernels/families/experts/routing.ts. What is read of one is looked at before it is
// used, as programs may give any values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace lowbit {
namespace {

struct Routing {
  int32_t* starts;
  int32_t* sources;
  int32_t* places;
  float* weights;
};

inline Routing routing_at(int32_t* values, uint32_t experts, size_t count) {
  int32_t* sources = values + experts + 1;
  return {values, sources, sources + count, reinterpret_cast<float*>(sources + 2 * count)};
}

}  // namespace
}  // namespace lowbit
