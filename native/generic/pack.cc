// Packing of quantized weights on the baseline instructions of the architecture.
#include "../families/packing/pack_panels.h"
#include "../kernel.h"
#include "floats.h"

namespace lowbit {
namespace {

constexpr KernelRow kRows[] = {
    {"pack_any_wx_1x16x4_" LOWBIT_FLOATS_TARGET, "quantize_pack", "panel16", kBits1To8, kBaselineNeeds, 1, 16, nullptr,
     PackPanels<Panel16Places>::prepare},
    {"pack_any_wx_1x32x4_" LOWBIT_FLOATS_TARGET, "quantize_pack", "panel32", kBits1To8, kBaselineNeeds, 1, 32, nullptr,
     PackPanels<Panel32Places>::prepare},
};

}  // namespace

KernelRows pack_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
