// The rows of kernels in float32, which differ by instruction set only: whole vectors for a few rows of x, panels of
// decoded weights for many.
#pragma once

#include "codeword.h"
#include "float_gemm.h"

// `Isa8` supplies eight floats as codeword.h wants them, `Isa` vectors as families/linear/float_rows.h does, in panels
// of `COLUMNS`, which serve from `ROWS` rows of x on.
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
