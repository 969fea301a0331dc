// AMX tiles as the linear layers use them: four accumulators of 16 x 16, two tiles of activations, two of weights.
// Flags: see scripts/build-native.js.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace lowbit {
namespace {

// Memory that tile instructions read or write: compilers do not know what these access.
inline void tile_fence() { __asm__ volatile("" ::: "memory"); }

// Configures the tiles of this thread, each 16 rows of 64 bytes, for its lifetime.
class TileScope {
 public:
  TileScope() {
    struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } config;
    tile_fence();
    _tile_loadconfig(&config);
    tile_fence();
  }
  ~TileScope() { _tile_release(); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

constexpr uint32_t kTileBytes = 1024;

}  // namespace
}  // namespace lowbit
