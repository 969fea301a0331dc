// The rows of this folder as a library that the addon loads.
#include "../../native/kernel.h"

namespace lowbit {

KernelRows peaks_avx2();
KernelRows peaks_avx512();
KernelRows peaks_amx();

namespace {

KernelRow rows[16];

}  // namespace
}  // namespace lowbit

extern "C" __attribute__((visibility("default"))) lowbit::KernelLibrary lowbit_kernel_library() {
  size_t count = 0;
  const lowbit::KernelRows tables[] = {lowbit::peaks_avx2(), lowbit::peaks_avx512(), lowbit::peaks_amx()};
  for (const lowbit::KernelRows& table : tables)
    for (size_t i = 0; i < table.count; i++) lowbit::rows[count++] = table.rows[i];
  return {lowbit::kContract, {lowbit::rows, count}};
}
