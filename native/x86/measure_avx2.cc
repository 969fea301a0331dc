// Peak multiply-adds of AVX2: int8 by vpmaddubsw and 16-bit sums, float32 by FMA.
#include <immintrin.h>

#include "../measure_macs.h"
#include "../rows.h"
#include "../transformer/vectors.h"

namespace lowbit {
namespace {

// More than latency times throughput of any of the instructions, and few enough for registers.
constexpr int kAccumulators = 10;

// Keeps a value alive, and unknown, without instructions.
inline void opaque(__m256i& value) { asm volatile("" : "+x"(value)); }
inline void opaque(__m256& value) { asm volatile("" : "+x"(value)); }

struct Int8Pairs {
  static constexpr uint64_t kMacs = kAccumulators * 32;
  static void rounds(uint64_t count) {
    __m256i sums[kAccumulators], a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5);
    each_index<kAccumulators>([&](auto i) LOWBIT_INLINE { sums[i] = _mm256_setzero_si256(); });
    for (; count > 0; count--)
      each_index<kAccumulators>([&](auto i) LOWBIT_INLINE {
        opaque(a);
        sums[i] = _mm256_add_epi16(sums[i], _mm256_maddubs_epi16(a, b));
        opaque(sums[i]);
      });
  }
};

struct F32Fma {
  static constexpr uint64_t kMacs = kAccumulators * 8;
  static void rounds(uint64_t count) {
    __m256 sums[kAccumulators], a = _mm256_set1_ps(1.5f), b = _mm256_set1_ps(0.5f);
    each_index<kAccumulators>([&](auto i) LOWBIT_INLINE { sums[i] = _mm256_setzero_ps(); });
    for (; count > 0; count--)
      each_index<kAccumulators>([&](auto i) LOWBIT_INLINE {
        sums[i] = _mm256_fmadd_ps(a, b, sums[i]);
        opaque(sums[i]);
      });
  }
};

constexpr KernelRow kRows[] = {
    macs_row<Int8Pairs>("measure_macs_i8_avx2", "measure_macs_i8", kAvx2),
    macs_row<F32Fma>("measure_macs_f32_avx2", "measure_macs_f32", kAvx2),
};

}  // namespace

KernelRows measure_avx2_rows() { return {kRows, 2}; }

}  // namespace lowbit
