// panel16 linear layers on AVX2: products of raised, unsigned activations and weights by vpmaddubsw, whose 16-bit sums
// are exact for weights within -64 .. 64, and stay so while several are added if weights are smaller; wider ones are
// multiplied as 16-bit numbers, or as two planes by many rows.
#include "../kernel.h"
#include "../linear/panel16_short_gemm.h"
#include "isa_avx2.h"

namespace lowbit {
namespace {

struct DotAvx2 {
  static constexpr bool kShortSums = true, kStreams = true;
  static __m256i products(__m256i weights, __m256i x) { return _mm256_maddubs_epi16(x, weights); }
  static __m256i add_shorts(__m256i a, __m256i b) { return _mm256_add_epi16(a, b); }
  static __m256i add_pairs(__m256i shorts) { return _mm256_madd_epi16(shorts, _mm256_set1_epi16(1)); }
  static __m256i add(__m256i a, __m256i b) { return _mm256_add_epi32(a, b); }
  // Adds products of four columns whose weights take more than 7 bits.
  static __m256i dot_wide(__m256i sum, __m256i u, __m256i x) {
    const __m256i low = _mm256_set1_epi16(255);
    __m256i even = _mm256_madd_epi16(_mm256_and_si256(u, low), _mm256_and_si256(x, low));
    __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(u, 8), _mm256_srli_epi16(x, 8));
    return _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
  }
  // Compilers would compute products of many steps first and spill them.
  static void keep(__m256i& v) { __asm__("" : "+x"(v)); }
};

template <int Bits>
inline __m256i signed_weights(__m256i u) {
  return _mm256_sub_epi8(u, _mm256_set1_epi8(static_cast<char>(1 << (Bits - 1))));
}

// For few rows: weights as they are stored, unless they take 7 bits.
struct Avx2 : IsaAvx2<DotAvx2> {
  template <int Bits>
  static constexpr int32_t offset() {
    return Bits == 7 ? 0 : 1 << (Bits - 1);
  }
  template <int Bits>
  static Bytes weight(Bytes u) {
    return Bits == 7 ? signed_weights<Bits>(u) : u;
  }
  // As many as products of weights under 2^Bits stay within 16 bits.
  template <int Bits>
  static constexpr int steps() {
    return Bits < 4 ? 8 : Bits == 7 ? 1 : 64 >> Bits;
  }
};

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
    {"linear_a8_wx_1x64x4_avx2", "linear_a8", "panel16", kBits1To8 | kReadsMinima, kAvx2, 1, 64, packed_linear_scratch,
     packed_linear_prepare<Avx2>},
};

}  // namespace

KernelRows linear_avx2_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
