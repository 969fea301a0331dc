// panel16 linear layers on AVX2 for many rows of activations.
#include "../kernel.h"
#include "../linear/panel16_short_gemm.h"
#include "dot_avx2.h"

namespace lowbit {
namespace {

// For many: weights of at most 7 bits, signed.
struct SignedAvx2 : Avx2 {
  template <int Bits>
  static Bytes weight(Bytes u) {
    return signed_weights<Bits>(u);
  }
  template <int Bits>
  static constexpr int steps() {
    return Bits < 4 ? 8 : 128 >> Bits;
  }
  static void store_ints(int32_t* p, Ints v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v); }
  static Ints load_ints(const int32_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  static void prefetch_line(const uint8_t* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1); }
  // While a chunk is multiplied, the next is fetched by lines.
  template <int Bits>
  static void prefetch(const uint8_t*) {}
};

// Wider ones, which are stored as two planes: their multiple of 16 that is nearest, and what is left.
struct PlanesAvx2 : SignedAvx2 {
  template <int Bits>
  static Bytes weight(Bytes u) {
    return u;
  }
  static void store_bytes(uint8_t* p, Bytes u) {
    const __m256i sixteens = _mm256_and_si256(_mm256_srli_epi16(u, 4), _mm256_set1_epi8(15));
    const __m256i eight = _mm256_and_si256(_mm256_srli_epi16(u, 3), _mm256_set1_epi8(1));
    const __m256i nearest = _mm256_and_si256(_mm256_add_epi8(u, _mm256_set1_epi8(8)), _mm256_set1_epi8(-16));
    SignedAvx2::store_bytes(p, _mm256_sub_epi8(_mm256_add_epi8(sixteens, eight), _mm256_set1_epi8(8)));
    SignedAvx2::store_bytes(p + kPlaneBytes, _mm256_sub_epi8(u, nearest));
  }
  static Ints join_planes(Ints high, Ints low) { return _mm256_add_epi32(_mm256_slli_epi32(high, 4), low); }
};

struct GemmCodeAvx2 {
  template <int Bits, bool Levels>
  static constexpr RunFunction run() {
    using Isa = std::conditional_t<is_wide(Bits, Levels), PlanesAvx2, SignedAvx2>;
    return short_gemm_run<Isa, Bits, Levels>;
  }
};

constexpr KernelRow kRows[] = {
    {"linear_a8_wx_8x16x4_avx2", "linear_a8", "panel16", kBits1To8 | kReadsMinima, kAvx2, 8, 16, short_gemm_scratch,
     short_gemm_prepare<GemmCodeAvx2>},
};

}  // namespace

KernelRows linear_gemm_avx2_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
