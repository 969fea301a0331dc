// The row tables of AQLM's kernel files.
#pragma once

#include "../kernel.h"

namespace lowbit {

#if defined(__x86_64__) || defined(_M_X64)
KernelRows aqlm_amx_rows();
KernelRows aqlm_digits_amx_rows();
KernelRows aqlm_avx512vbmi_rows();
KernelRows aqlm_avx512_rows();
KernelRows aqlm_lut_rows_avx512_rows();
KernelRows aqlm_lut_rows_avx2_rows();
KernelRows aqlm_lut_avx2_rows();
KernelRows aqlm_avx2_rows();
KernelRows aqlm_sse2_rows();
#elif defined(__aarch64__)
KernelRows aqlm_bf16_rows();
KernelRows aqlm_tbl_neon_rows();
KernelRows aqlm_lut_rows_neon_rows();
KernelRows aqlm_neon_rows();
#endif

}  // namespace lowbit
