// The row tables of all kernel files.
#pragma once

#include "kernel.h"

namespace lowbit {

#if defined(__x86_64__) || defined(_M_X64)
KernelRows linear_amx_rows();
KernelRows linear_planes_amx_rows();
KernelRows linear_avx512_rows();
KernelRows linear_avxvnni_rows();
KernelRows linear_avx2_rows();
KernelRows attention_amx_rows();
KernelRows attention_integers_amx_rows();
KernelRows linear_float_amx_rows();
KernelRows linear_float_avx512_rows();
KernelRows linear_float_avx2_rows();
KernelRows transformer_avx512_rows();
KernelRows transformer_avx2_rows();
KernelRows measure_avx512_rows();
KernelRows measure_avx2_rows();
KernelRows quantize_avx512_rows();
KernelRows quantize_avx2_rows();
KernelRows measure_amx_rows();
#elif defined(__aarch64__)
KernelRows linear_i8mm_rows();
KernelRows linear_dotprod_rows();
KernelRows linear_neon_rows();
KernelRows linear_float_bf16_rows();
#endif
KernelRows linear_float_baseline_rows();
KernelRows linear_packed_rows();
KernelRows transformer_baseline_rows();
KernelRows embedding_rows();
KernelRows scalar_rows();
KernelRows quantize_baseline_rows();
KernelRows measure_read_rows();

}  // namespace lowbit
