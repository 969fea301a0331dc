// Peak multiply-adds of AVX2: int8 by vpmaddubsw and 16-bit sums, float32 by FMA.
#include <immintrin.h>

#include "vectors.h"

namespace lowbit {
namespace {

// More than latency times throughput of any of the instructions, and few enough for registers.
constexpr int kAccumulators = 10;

struct Int8Pairs {
  using V = __m256i;
  static constexpr int kMacs = 32, kSums = kAccumulators;
  static V add(V sum, V a, V b) { return _mm256_add_epi16(sum, _mm256_maddubs_epi16(a, b)); }
};

struct F32Fma {
  using V = __m256;
  static constexpr int kMacs = 8, kSums = kAccumulators;
  static V add(V sum, V a, V b) { return _mm256_fmadd_ps(a, b, sum); }
};

constexpr KernelRow kRows[] = {
    macs_row<VectorMacs<Int8Pairs>>("measure_macs_i8_avx2", "measure_macs_i8", kAvx2),
    macs_row<VectorMacs<F32Fma>>("measure_macs_f32_avx2", "measure_macs_f32", kAvx2),
};

}  // namespace

KernelRows peaks_avx2() { return {kRows, 2}; }

}  // namespace lowbit
