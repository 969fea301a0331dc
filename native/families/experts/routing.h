// Where the parts of a routing lie in its tensor (src/kernels/families/experts/routing.ts). Indices that are read from
// it are checked before they are used, since a program may hold any values.
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
