// AMX tiles of linear layers, attention and recurrences: accumulators 0 to 3, left factors 4 and 5, right factors 6 and
// 7. Flags: see scripts/native/build.js.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "../kernel.h"

namespace lowbit {
namespace {

// Compiler barrier around tile instructions, whose memory accesses compilers do not know.
inline void tile_fence() { __asm__ volatile("" ::: "memory"); }

// Eight nops, for tile instructions that little other work follows. Where the core's other thread uses tiles, too, as
// other guests of a host do, loads and products of both take turns instead of overlapping. With the nops, linear layers
// and attention then took a sixth to a quarter less time. Alone, they took as long as without, floats split in two 4 %
// longer.
inline LOWBIT_INLINE void tile_gap() { __asm__ volatile(".rept 8\n\tnop\n\t.endr"); }

// A place for other work among the tile instructions of a step.
template <int Index>
using Place = std::integral_constant<int, Index>;

struct alignas(64) TileShapes {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};

// Shapes of tiles for products of 16 rows of `width` bytes with 16 columns. They are constants: to the compiler
// _tile_loadconfig reads only eight bytes, and it drops writes to the others just before.
template <int Width>
constexpr TileShapes kTileShapes = {
    1, 0, {}, {64, 64, 64, 64, Width, Width, 64, 64}, {16, 16, 16, 16, 16, 16, Width / 4, Width / 4}};

// Configures the tiles of this thread for its lifetime. `width` is 32 or 64.
class TileScope {
 public:
  explicit TileScope(uint32_t width = 64) { _tile_loadconfig(width == 32 ? &kTileShapes<32> : &kTileShapes<64>); }
  ~TileScope() { _tile_release(); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

// Whether to write results with non-temporal stores: they are whole cache lines, and more than `bytes`.
inline bool bypasses_caches(const float* y, size_t rows, size_t columns, size_t bytes) {
  return reinterpret_cast<size_t>(y) % 64 == 0 && columns % 16 == 0 && 4 * rows * columns > bytes;
}

// Bytes of a tile: 16 rows of 64.
constexpr uint32_t kTileBytes = 1024;

inline LOWBIT_INLINE void clear_accumulators() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

inline LOWBIT_INLINE void load_accumulators(const void* t0, const void* t1, const void* t2,
                                                            const void* t3) {
  _tile_loadd(0, t0, 64);
  _tile_loadd(1, t1, 64);
  _tile_loadd(2, t2, 64);
  _tile_loadd(3, t3, 64);
}

inline LOWBIT_INLINE void store_accumulators(void* t0, void* t1, void* t2, void* t3) {
  _tile_stored(0, t0, 64);
  _tile_stored(1, t1, 64);
  _tile_stored(2, t2, 64);
  _tile_stored(3, t3, 64);
}

template <class Behind>
inline LOWBIT_INLINE void store_accumulators(void* t0, void* t1, void* t2, void* t3, Behind&& behind) {
  _tile_stored(0, t0, 64);
  behind();
  _tile_stored(1, t1, 64);
  behind();
  _tile_stored(2, t2, 64);
  behind();
  _tile_stored(3, t3, 64);
  behind();
}

inline LOWBIT_INLINE void load_left(const uint8_t* a0, const uint8_t* a1) {
  _tile_loadd(4, a0, 64);
  tile_gap();
  _tile_loadd(5, a1, 64);
  tile_gap();
}

inline LOWBIT_INLINE void load_right(const uint8_t* b0, const uint8_t* b1) {
  _tile_loadd(6, b0, 64);
  tile_gap();
  _tile_loadd(7, b1, 64);
  tile_gap();
}

// Adds the four products of the two left with the two right factors, in bf16.
inline LOWBIT_INLINE void multiply_bf16() {
  _tile_dpbf16ps(0, 4, 6);
  tile_gap();
  _tile_dpbf16ps(1, 4, 7);
  tile_gap();
  _tile_dpbf16ps(2, 5, 6);
  tile_gap();
  _tile_dpbf16ps(3, 5, 7);
  tile_gap();
}

// Four accumulators += two tiles of a times two tiles of b, each split: high x low, high x high, low x high. A tile's
// low part follows its high part. `behind` does other work behind each tile instruction: see tile_gap.
template <class Behind>
inline LOWBIT_INLINE void multiply_tiles(const uint8_t* a0, const uint8_t* a1, const uint8_t* b0,
                                                         const uint8_t* b1, Behind&& behind) {
  _tile_loadd(4, a0, 64);
  behind();
  _tile_loadd(6, b0 + kTileBytes, 64);
  behind();
  _tile_dpbf16ps(0, 4, 6);
  behind();
  _tile_loadd(7, b1 + kTileBytes, 64);
  behind();
  _tile_dpbf16ps(1, 4, 7);
  behind();
  _tile_loadd(5, a1, 64);
  behind();
  _tile_dpbf16ps(2, 5, 6);
  behind();
  _tile_loadd(6, b0, 64);
  behind();
  _tile_dpbf16ps(3, 5, 7);
  behind();
  _tile_dpbf16ps(0, 4, 6);
  behind();
  _tile_loadd(7, b1, 64);
  behind();
  _tile_dpbf16ps(1, 4, 7);
  behind();
  _tile_loadd(4, a0 + kTileBytes, 64);
  behind();
  _tile_dpbf16ps(2, 5, 6);
  behind();
  _tile_dpbf16ps(3, 5, 7);
  behind();
  _tile_loadd(5, a1 + kTileBytes, 64);
  behind();
  _tile_dpbf16ps(0, 4, 6);
  behind();
  _tile_dpbf16ps(1, 4, 7);
  behind();
  _tile_dpbf16ps(2, 5, 6);
  behind();
  _tile_dpbf16ps(3, 5, 7);
  behind();
}

// multiply_tiles for tiles that are not split.
template <class Behind>
inline LOWBIT_INLINE void multiply_rounded_tiles(const uint8_t* a0, const uint8_t* a1,
                                                                 const uint8_t* b0, const uint8_t* b1,
                                                                 Behind&& behind) {
  _tile_loadd(4, a0, 64);
  behind();
  _tile_loadd(6, b0, 64);
  behind();
  _tile_dpbf16ps(0, 4, 6);
  behind();
  _tile_loadd(7, b1, 64);
  behind();
  _tile_dpbf16ps(1, 4, 7);
  behind();
  _tile_loadd(5, a1, 64);
  behind();
  _tile_dpbf16ps(2, 5, 6);
  behind();
  _tile_dpbf16ps(3, 5, 7);
  behind();
}

// multiply_tiles without other work.
inline LOWBIT_INLINE void multiply_tiles(const uint8_t* a0, const uint8_t* a1, const uint8_t* b0,
                                                         const uint8_t* b1) {
  load_left(a0, a1);
  load_right(b0 + kTileBytes, b1 + kTileBytes);
  multiply_bf16();
  load_right(b0, b1);
  multiply_bf16();
  load_left(a0 + kTileBytes, a1 + kTileBytes);
  multiply_bf16();
}

// Loads the accumulators with two by two tiles of sums, the second two `below` bytes after the first: zeros at first,
// later what end_sums stored.
inline LOWBIT_INLINE void begin_sums(const uint8_t* sums, size_t below, bool first) {
  tile_fence();
  if (first) {
    clear_accumulators();
  } else {
    load_accumulators(sums, sums + kTileBytes, sums + below, sums + below + kTileBytes);
  }
}

inline LOWBIT_INLINE void end_sums(uint8_t* sums, size_t below) {
  store_accumulators(sums, sums + kTileBytes, sums + below, sums + below + kTileBytes);
  tile_fence();
}

}  // namespace
}  // namespace lowbit
