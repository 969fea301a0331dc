// Peak multiply-adds of AVX-512: int8 by VNNI, float32 by FMA.
#include <immintrin.h>

#include "vectors.h"

namespace lowbit {
namespace {

// More than latency times throughput of either instruction.
constexpr int kAccumulators = 12;

struct Int8Vnni {
  using V = __m512i;
  static constexpr int kMacs = 64, kSums = kAccumulators;
  static V add(V sum, V a, V b) { return _mm512_dpbusd_epi32(sum, a, b); }
};

struct F32Fma {
  using V = __m512;
  static constexpr int kMacs = 16, kSums = kAccumulators;
  static V add(V sum, V a, V b) { return _mm512_fmadd_ps(a, b, sum); }
};

constexpr KernelRow kRows[] = {
    macs_row<VectorMacs<Int8Vnni>>("measure_macs_i8_avx512vnni", "measure_macs_i8", kAvx512 | kAvx512Vnni),
    macs_row<VectorMacs<F32Fma>>("measure_macs_f32_avx512", "measure_macs_f32", kAvx512),
};

}  // namespace

KernelRows peaks_avx512() { return {kRows, 2}; }

}  // namespace lowbit
