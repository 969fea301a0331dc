// panel16 GEMM on AVX2.
#include "../families/linear/panel16_short_gemm.h"
#include "../kernel.h"
#include "dot_avx2.h"

namespace lowbit {
namespace {

// Operations of GEMM.
struct ManyAvx2 : Avx2 {
  static void store_ints(int32_t* p, Ints v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v); }
  static Ints load_ints(const int32_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  static void prefetch_line(const uint8_t* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1); }
  // Nothing: short_rows prefetches the next chunk, cache line by cache line, while it multiplies.
  template <int Bits>
  static void prefetch(const uint8_t*) {}
};

// For weights of more than 7 bits, stored as two planes.
struct PlanesAvx2 : ManyAvx2 {
  static void store_bytes(uint8_t* p, Bytes u) {
    const __m256i four = _mm256_set1_epi8(15);
    ManyAvx2::store_bytes(p, _mm256_and_si256(_mm256_srli_epi16(u, 4), four));
    ManyAvx2::store_bytes(p + kPlaneBytes, _mm256_and_si256(u, four));
  }
  static Ints join_planes(Ints high, Ints low) { return _mm256_add_epi32(_mm256_slli_epi32(high, 4), low); }
};

// For codebooks whose levels have 7 bits.
struct NarrowManyAvx2 : ManyAvx2 {
  static constexpr int32_t kLevelOffset = NarrowAvx2::kLevelOffset;
  static constexpr int kLevelBits = NarrowAvx2::kLevelBits;
  static Bytes load_levels(const int8_t* levels, int count) { return NarrowAvx2::load_levels(levels, count); }
};

struct GemmCodeAvx2 {
  template <int Bits, bool Levels>
  static constexpr RunFunction run() {
    using Isa = std::conditional_t<is_wide<ManyAvx2, Bits, Levels>(), PlanesAvx2, ManyAvx2>;
    return short_gemm_run<Isa, Bits, Levels>;
  }
  struct Narrow {
    template <int Bits, bool Levels>
    static constexpr RunFunction run() {
      return short_gemm_run<NarrowManyAvx2, Bits, Levels>;
    }
  };
};

constexpr KernelRow kRows[] = {
    {"linear_a8_wx_16x16x4_avx2", "linear_a8", "panel16", kBits1To8 | kReadsMinima, kAvx2, 16, 16,
     short_gemm_scratch<Granularity::kRow>, short_gemm_prepare<GemmCodeAvx2, Granularity::kRow>},
    {"linear_a8b32_wx_16x16x4_avx2", "linear_a8b32", "panel16", kBits1To8 | kReadsMinima, kAvx2, 16, 16,
     short_gemm_scratch<Granularity::kBlock>, short_gemm_prepare<GemmCodeAvx2, Granularity::kBlock>},
};

}  // namespace

KernelRows linear_gemm_avx2_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
