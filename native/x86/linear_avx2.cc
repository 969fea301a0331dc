// panel16 linear layers on AVX2: products of unsigned weights and signed activations by vpmaddubsw, whose 16-bit sums
// are exact for weights under 128, and stay so while several are added if weights are smaller; wider ones are multiplied
// as 16-bit numbers.
#include "../kernel.h"
#include "../linear/panel16_short_gemm.h"
#include "quantize_avx2.h"

namespace lowbit {
namespace {

struct DotAvx2 {
  static constexpr bool kShortSums = true, kStreams = true;
  static __m256i products(__m256i u, __m256i x) { return _mm256_maddubs_epi16(u, x); }
  static __m256i add_shorts(__m256i a, __m256i b) { return _mm256_add_epi16(a, b); }
  static __m256i add_pairs(__m256i shorts) { return _mm256_madd_epi16(shorts, _mm256_set1_epi16(1)); }
  static __m256i add(__m256i a, __m256i b) { return _mm256_add_epi32(a, b); }
  // Adds products of four columns whose weights take more than 7 bits.
  static __m256i dot_wide(__m256i sum, __m256i u, __m256i x) {
    const __m256i low = _mm256_set1_epi16(255);
    __m256i even = _mm256_madd_epi16(_mm256_and_si256(u, low), _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8));
    __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(u, 8), _mm256_srai_epi16(x, 8));
    return _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
  }
  // Four columns of 32 as 16-bit numbers, 0, 2, 1, 3.
  static void widen(const int8_t* bytes, int16_t* words) {
    for (int i = 0; i < 32; i += 16) {
      const __m256i in = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + i)));
      const __m256i out = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(in, 0xd8), 0xd8);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(words + i), out);
    }
  }
  // As floats, since compilers make one load of 64 bits and more of two broadcasts.
  static __m256i broadcast_pair(const int16_t* words) {
    return _mm256_castps_si256(_mm256_broadcast_ss(reinterpret_cast<const float*>(words)));
  }
  // Adds products of 32 columns of two vectors of weights and of rows `stride` apart.
  template <int Rows>
  static void add_words(__m256i (*sum)[Rows], const uint8_t* const* weights, const int16_t* x, size_t stride) {
    const int16_t* row[Rows];
    for (int m = 0; m < Rows; m++) {
      row[m] = x + m * stride;
      // One register a row: compilers would make one of every address and spill them.
      __asm__("" : "+r"(row[m]));
    }
    each_index<8>([&](auto step) LOWBIT_INLINE {
      __m256i even[2], odd[2];
      for (int v = 0; v < 2; v++) {
        const __m256i u = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights[v] + 64 * step));
        even[v] = _mm256_and_si256(u, _mm256_set1_epi16(255));
        odd[v] = _mm256_srli_epi16(u, 8);
      }
      for (int m = 0; m < Rows; m++) {
        const __m256i x_even = broadcast_pair(row[m] + 4 * step), x_odd = broadcast_pair(row[m] + 4 * step + 2);
        for (int v = 0; v < 2; v++) {
          sum[v][m] = _mm256_add_epi32(sum[v][m], _mm256_madd_epi16(even[v], x_even));
          sum[v][m] = _mm256_add_epi32(sum[v][m], _mm256_madd_epi16(odd[v], x_odd));
          keep(sum[v][m]);
        }
      }
    });
  }
  // Compilers would compute products of many steps first and spill them.
  static void keep(__m256i& v) { __asm__("" : "+x"(v)); }
};

#define ISA_DOT DotAvx2
#define ISA_GEMM_ROWS 4
#define ISA_NAME Avx2
#include "linear_avx2.inc"

struct SignedAvx2 : Avx2 {
  template <int Bits>
  static Bytes weight(Bytes u) { return _mm256_sub_epi8(u, _mm256_set1_epi8(static_cast<char>(1 << (Bits - 1)))); }
  static __m256i products(__m256i weights, __m256i x) { return _mm256_maddubs_epi16(x, weights); }
  static void prefetch_line(const uint8_t* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1); }
  // While a chunk is multiplied, the next is fetched by lines.
  template <int Bits>
  static void prefetch(const uint8_t*) {}
};

struct GemmCodeAvx2 {
  template <int Bits, bool Levels>
  static constexpr RunFunction run() {
    if constexpr (is_wide(Bits, Levels)) return packed_gemm_run<Avx2, Bits, Levels>;
    else return short_gemm_run<SignedAvx2, Bits>;
  }
};

bool has_wide_weights(const Call& call) {
  const Panel16 w = read_panel16(call.buffers[1]);
  return is_wide(w.bits, w.has_levels);
}

size_t gemm_scratch(const Call& call) {
  return has_wide_weights(call) ? packed_gemm_scratch<Avx2>(call) : short_gemm_scratch(call);
}

void gemm_prepare(Step& step, const Call& call) {
  if (has_wide_weights(call)) packed_gemm_prepare<Avx2, GemmCodeAvx2>(step, call);
  else short_gemm_prepare<GemmCodeAvx2>(step, call);
}

constexpr KernelRow kRows[] = {
    {"linear_a8_wx_8x16x4_avx2", "linear_a8", "panel16", 0x1fe, kAvx2, 8, 16, gemm_scratch, gemm_prepare},
    {"linear_a8_wx_1x64x4_avx2", "linear_a8", "panel16", 0x1fe, kAvx2, 1, 64, packed_linear_scratch,
     packed_linear_prepare<Avx2>},
};

}  // namespace

KernelRows linear_avx2_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
