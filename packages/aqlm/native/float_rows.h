// The f32 kernels of an instruction set: whole vectors for a few rows of x, panels of decoded weights for many.
#pragma once

#include "codeword.h"
#include "float_gemm.h"

// `Isa8` supplies eight floats for codeword.h, `Isa` the vectors of families/linear/float_rows.h. Panels of `COLUMNS`
// columns serve from `ROWS` rows of x on.
#define LOWBIT_AQLM_FLOAT_ROWS(TARGET, NEEDS, Isa8, Isa, ROWS, COLUMNS)                            \
  KernelRow{"aqlm_f32_cx_" #ROWS "x" #COLUMNS "x1_" TARGET,                                        \
            "aqlm",                                                                                \
            "aqlm_tiles",                                                                          \
            0,                                                                                     \
            NEEDS,                                                                                 \
            ROWS,                                                                                  \
            COLUMNS,                                                                               \
            float_gemm_scratch<Isa>,                                                               \
            float_gemm_prepare<Isa>},                                                              \
      KernelRow {                                                                                  \
    "aqlm_f32_cx_1x64x128_" TARGET, "aqlm", "aqlm_tiles", 0, NEEDS, 1, 64, codeword_scratch<Isa8>, \
        codeword_prepare<Isa8>                                                                     \
  }
