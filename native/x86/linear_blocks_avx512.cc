// panel16 linear layers on AVX-512 VNNI for CPUs with AMX, for up to 15 rows of activations: eight neighbouring panels
// at once, which is fastest there by measurement. Other CPUs read four longer streams (linear_avx512.cc). Flags: see
// scripts/native/sources.js.
#include "../families/linear/panel16_linear.h"
#include "../kernel.h"
#include "isa_avx512.h"

namespace lowbit {
namespace {

struct Avx512Blocks : Avx512Vnni {
  static constexpr int kPanels = 8;
  static constexpr bool kNeighbours = true;
  template <int Bits, bool>
  static LOWBIT_INLINE void prefetch_near(const uint8_t* p) {
    prefetch<Bits>(p);
  }
};

constexpr uint32_t kNeeds = kAvx2 | kAvx512 | kAvx512Vnni | kAmxInt8;

constexpr KernelRow kRows[] = {
    {"linear_a8_wx_1x128x4_avx512_vnni", "linear_a8", "panel16", kBits1To8 | kReadsMinima, kNeeds, 1, 128,
     packed_linear_scratch<Granularity::kRow>, packed_linear_prepare<Avx512Blocks, Granularity::kRow>},
    {"linear_a8b32_wx_1x128x4_avx512_vnni", "linear_a8b32", "panel16", kBits1To8 | kReadsMinima, kNeeds, 1, 128,
     packed_linear_scratch<Granularity::kBlock>, packed_linear_prepare<Avx512Blocks, Granularity::kBlock>},
};

}  // namespace

KernelRows linear_blocks_avx512_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
