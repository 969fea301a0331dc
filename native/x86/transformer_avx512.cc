// Operators of a transformer block on AVX-512.
#include "../families/vector_rows.h"
#include "../kernel.h"
#include "floats_avx512.h"

namespace lowbit {
namespace {

constexpr uint32_t kVnni = kAvx2 | kAvx512 | kAvx512Vnni;
constexpr auto kPrepareVnni = update_and_attend_prepare<FloatsAvx512, BytesAvx512Vnni>;

// VNNI serves pages of int4; of others it is the row after it.
constexpr KernelRow kRows[] = {
    LOWBIT_FLOAT_ROW("update_and_attend", "update_and_attend", "avx512_vnni", "16", kVnni,
                     update_and_attend_scratch<FloatsAvx512>, kPrepareVnni),
    LOWBIT_FLOAT_ROW(
        "rope_update_and_attend", "rope_update_and_attend", "avx512_vnni", "16", kVnni,
        rope_update_and_attend_scratch<update_and_attend_scratch<FloatsAvx512>>,
        rope_update_and_attend_prepare<FloatsAvx512, update_and_attend_prepare<FloatsAvx512, BytesAvx512Vnni>>),
    LOWBIT_TRANSFORMER_ROWS(FloatsAvx512, "avx512", "16", kAvx2 | kAvx512)};

}  // namespace

KernelRows transformer_avx512_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
