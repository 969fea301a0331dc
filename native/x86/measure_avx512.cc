// Peak multiply-adds of AVX-512: int8 by VNNI, float32 by FMA.
#include <immintrin.h>

#include "../measure_macs.h"
#include "../rows.h"

namespace lowbit {
namespace {

// More than latency times throughput of either instruction.
constexpr int kAccumulators = 12;

// Keeps a value alive, and unknown, without instructions.
inline void opaque(__m512i& value) { asm volatile("" : "+v"(value)); }
inline void opaque(__m512& value) { asm volatile("" : "+v"(value)); }

struct Int8Vnni {
  static constexpr uint64_t kMacs = kAccumulators * 64;
  static void rounds(uint64_t count) {
    __m512i sums[kAccumulators] = {}, a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5);
    for (; count > 0; count--) {
      for (__m512i& sum : sums) sum = _mm512_dpbusd_epi32(sum, a, b);
      opaque(a);
    }
    for (__m512i& sum : sums) opaque(sum);
  }
};

struct F32Fma {
  static constexpr uint64_t kMacs = kAccumulators * 16;
  static void rounds(uint64_t count) {
    __m512 sums[kAccumulators] = {}, a = _mm512_set1_ps(1.5f), b = _mm512_set1_ps(0.5f);
    for (; count > 0; count--) {
      for (__m512& sum : sums) sum = _mm512_fmadd_ps(a, b, sum);
      opaque(a);
    }
    for (__m512& sum : sums) opaque(sum);
  }
};

constexpr KernelRow kRows[] = {
    macs_row<Int8Vnni>("measure_macs_i8_avx512vnni", "measure_macs_i8", kAvx512 | kAvx512Vnni),
    macs_row<F32Fma>("measure_macs_f32_avx512", "measure_macs_f32", kAvx512),
};

}  // namespace

KernelRows measure_avx512_rows() { return {kRows, 2}; }

}  // namespace lowbit
