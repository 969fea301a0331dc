// Rows of families for each instruction set. Written by `npm run families` from src/kernels/families/.
#pragma once

#include "elementwise/add.h"
#include "elementwise/gelu.h"
#include "elementwise/scale.h"
#include "elementwise/scale_rows.h"
#include "elementwise/sigmoid.h"
#include "elementwise/softcap.h"
#include "elementwise/softplus.h"
#include "gate/clamped_gate.h"
#include "gate/gate.h"
#include "gate/gate_halves.h"
#include "norm/add_rms_norm.h"
#include "norm/layer_norm.h"
#include "norm/rms_norm.h"
#include "reduction/argmax.h"
#include "reduction/group_sums.h"
#include "reduction/softmax.h"

// clang-format off
#define LOWBIT_DECLARED_ROWS(ROW, Isa, target, lanes, needs)                     \
  ROW("add", target, lanes, needs, elements_prepare<Isa, Add>),                  \
  ROW("gelu", target, lanes, needs, elements_prepare<Isa, Gelu>),                \
  ROW("scale", target, lanes, needs, elements_prepare<Isa, Scale>),              \
  ROW("scale_rows", target, lanes, needs, rows_prepare<Isa, ScaleRows>),         \
  ROW("sigmoid", target, lanes, needs, elements_prepare<Isa, Sigmoid>),          \
  ROW("softcap", target, lanes, needs, elements_prepare<Isa, Softcap>),          \
  ROW("softplus", target, lanes, needs, rows_prepare<Isa, Softplus>),            \
  ROW("clamped_gate", target, lanes, needs, elements_prepare<Isa, ClampedGate>), \
  ROW("gate", target, lanes, needs, elements_prepare<Isa, Gate>),                \
  ROW("gate_halves", target, lanes, needs, rows_prepare<Isa, GateHalves>),       \
  ROW("add_rms_norm", target, lanes, needs, rows_prepare<Isa, AddRmsNorm>),      \
  ROW("layer_norm", target, lanes, needs, rows_prepare<Isa, LayerNorm>),         \
  ROW("rms_norm", target, lanes, needs, rows_prepare<Isa, RmsNorm>),             \
  ROW("argmax", target, lanes, needs, rows_prepare<Isa, Argmax>),                \
  ROW("group_sums", target, lanes, needs, rows_prepare<Isa, GroupSums>),         \
  ROW("softmax", target, lanes, needs, rows_prepare<Isa, Softmax>)
// clang-format on
