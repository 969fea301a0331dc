// AQLM in plain C++, for every x86-64 CPU.
#include "../../generic/floats.h"
#include "../../kernel.h"
#include "../float_rows.h"
#include "../table.h"

namespace lowbit {
namespace aqlm {
namespace {

struct Floats {
  static constexpr bool kConverts = false;
  struct F8 {
    float v[8];
  };
  static F8 zero() { return {}; }
  static F8 load(const float* p) {
    F8 r;
    memcpy(r.v, p, sizeof r.v);
    return r;
  }
  // Never read: halves are converted before.
  static F8 load(const uint16_t*) { return {}; }
  static F8 add(F8 a, F8 b) {
    for (int i = 0; i < 8; i++) a.v[i] += b.v[i];
    return a;
  }
  static F8 multiply_add(F8 a, F8 b, F8 c) {
    for (int i = 0; i < 8; i++) c.v[i] += a.v[i] * b.v[i];
    return c;
  }
  static float sum(F8 a) { return ((a.v[0] + a.v[1]) + (a.v[2] + a.v[3])) + ((a.v[4] + a.v[5]) + (a.v[6] + a.v[7])); }
};

constexpr KernelRow kRows[] = {
    LOWBIT_AQLM_FLOAT_ROWS("sse2", kSse2, Floats, FloatsBaseline, 8),
    {"aqlm_f32_c8_16x8x1_sse2", "aqlm", "aqlm_tiles8", 0, kSse2, 16, 8, float_gemm_scratch<FloatsBaseline>,
     float_gemm_prepare<FloatsBaseline>},
    {"aqlm_f32_c8_4x64x128_sse2", "aqlm", "aqlm_tiles8", 0, kSse2, 4, 64, codeword_scratch<Floats>,
     codeword_prepare<Floats>},
    {"aqlm_f32_c8_1x64x128_sse2", "aqlm", "aqlm_tiles8", 0, kSse2, 1, 64, table_scratch, table_prepare},
};

}  // namespace
}  // namespace aqlm

KernelRows aqlm_sse2_rows() { return {aqlm::kRows, sizeof aqlm::kRows / sizeof *aqlm::kRows}; }

}  // namespace lowbit
