// Peak multiply-adds of AMX: int8 and bf16 tiles.
#include <immintrin.h>

#include "macs.h"

namespace lowbit {
namespace {

constexpr int kTiles = 8, kTileRows = 16, kTileRowBytes = 64;

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

constexpr TileConfig whole_tiles() {
  TileConfig config;
  for (int i = 0; i < kTiles; i++) {
    config.row_bytes[i] = kTileRowBytes;
    config.rows[i] = kTileRows;
  }
  return config;
}

// A constant: _tile_loadconfig tells the compiler of a read of eight bytes only, so that writes just before it get
// lost.
constexpr TileConfig kWholeTiles = whole_tiles();

// 16 x 16 sums of 64 (int8) or 32 (bf16) products, four tiles of them.
struct Int8Amx {
  static constexpr uint64_t kMacs = 4 * 16 * 16 * 64;
  static void rounds(uint64_t count) {
    _tile_loadconfig(&kWholeTiles);
    for (; count > 0; count--) {
      _tile_dpbssd(0, 4, 6);
      _tile_dpbssd(1, 4, 7);
      _tile_dpbssd(2, 5, 6);
      _tile_dpbssd(3, 5, 7);
    }
    _tile_release();
  }
};

struct Bf16Amx {
  static constexpr uint64_t kMacs = 4 * 16 * 16 * 32;
  static void rounds(uint64_t count) {
    _tile_loadconfig(&kWholeTiles);
    for (; count > 0; count--) {
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    _tile_release();
  }
};

constexpr KernelRow kRows[] = {
    macs_row<Int8Amx>("measure_macs_i8_amx", "measure_macs_i8", kAmxInt8),
    macs_row<Bf16Amx>("measure_macs_bf16_amx", "measure_macs_bf16", kAmxBf16),
};

}  // namespace

KernelRows peaks_amx() { return {kRows, 2}; }

}  // namespace lowbit
