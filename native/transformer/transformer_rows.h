// The rows that every instruction set has. `Isa` is its vectors, `target` its name and `lanes` their width as strings.
#pragma once

#include "attention_calls.h"
#include "elementwise.h"
#include "embedding.h"
#include "fused.h"
#include "linear_recurrence.h"
#include "norm.h"
#include "short_convolution.h"
#include "texts.h"

// A row for calls of any sizes; behind `needs`, what measures its scratch, or null, and what prepares its calls.
#define LOWBIT_FLOAT_ROW(name, family, target, lanes, needs, ...) \
  KernelRow { name "_f32_1x1x" lanes "_" target, family, nullptr, 0, needs, 1, 1, __VA_ARGS__ }

#define LOWBIT_TRANSFORMER_ROWS(Isa, target, lanes, needs)                                                             \
  LOWBIT_FLOAT_ROW("attention", "attention", target, lanes, needs, attention_scratch<Isa>, attention_prepare<Isa>),    \
      LOWBIT_FLOAT_ROW("update_and_attend", "update_and_attend", target, lanes, needs, update_and_attend_scratch<Isa>, \
                       update_and_attend_prepare<Isa>),                                                                \
      LOWBIT_FLOAT_ROW("rope_update_and_attend", "rope_update_and_attend", target, lanes, needs,                       \
                       rope_update_and_attend_scratch<update_and_attend_scratch<Isa>>,                                 \
                       rope_update_and_attend_prepare<Isa, update_and_attend_prepare<Isa>>),                           \
      LOWBIT_FLOAT_ROW("swiglu_halves", "swiglu_halves", target, lanes, needs, nullptr,                                \
                       halves_prepare<Isa, SwigluOperation>),                                                          \
      LOWBIT_FLOAT_ROW("geglu_halves", "geglu_halves", target, lanes, needs, nullptr,                                  \
                       halves_prepare<Isa, GegluOperation>),                                                           \
      LOWBIT_FLOAT_ROW("add_rms_norm", "add_rms_norm", target, lanes, needs, nullptr, add_rms_norm_prepare<Isa>),      \
      LOWBIT_FLOAT_ROW("rms_norm", "rms_norm", target, lanes, needs, nullptr, rms_norm_prepare<Isa>),                  \
      LOWBIT_FLOAT_ROW("layer_norm", "layer_norm", target, lanes, needs, nullptr, layer_norm_prepare<Isa>),            \
      LOWBIT_FLOAT_ROW("attend_texts", "attend_texts", target, lanes, needs, attend_texts_scratch<Isa>,                \
                       attend_texts_prepare<Isa>),                                                                     \
      LOWBIT_FLOAT_ROW("short_convolution", "short_convolution", target, lanes, needs, nullptr,                        \
                       short_convolution_prepare<Isa>),                                                                \
      LOWBIT_FLOAT_ROW("linear_recurrence", "linear_recurrence", target, lanes, needs, linear_recurrence_scratch<Isa>, \
                       linear_recurrence_prepare<Isa>),                                                                \
      LOWBIT_FLOAT_ROW("gelu", "gelu", target, lanes, needs, nullptr,                                                  \
                       unary_prepare<Isa, GeluOperation<ErfGegluOperation>>),                                          \
      LOWBIT_FLOAT_ROW("gelu_tanh", "gelu_tanh", target, lanes, needs, nullptr,                                        \
                       unary_prepare<Isa, GeluOperation<GegluOperation>>),                                             \
      LOWBIT_FLOAT_ROW("rope", "rope", target, lanes, needs, nullptr, rope_prepare<Isa>),                              \
      LOWBIT_FLOAT_ROW("swiglu", "swiglu", target, lanes, needs, nullptr, binary_prepare<Isa, SwigluOperation>),       \
      LOWBIT_FLOAT_ROW("add", "add", target, lanes, needs, nullptr, binary_prepare<Isa, AddOperation>),                \
      LOWBIT_FLOAT_ROW("geglu", "geglu", target, lanes, needs, nullptr, binary_prepare<Isa, GegluOperation>),          \
      LOWBIT_FLOAT_ROW("erf_geglu", "erf_geglu", target, lanes, needs, nullptr,                                        \
                       binary_prepare<Isa, ErfGegluOperation>),                                                        \
      LOWBIT_FLOAT_ROW("quick_geglu", "quick_geglu", target, lanes, needs, nullptr,                                    \
                       binary_prepare<Isa, QuickGegluOperation>),                                                      \
      LOWBIT_FLOAT_ROW("reglu", "reglu", target, lanes, needs, nullptr, binary_prepare<Isa, RegluOperation>),          \
      LOWBIT_FLOAT_ROW("squared_reglu", "squared_reglu", target, lanes, needs, nullptr,                                \
                       binary_prepare<Isa, SquaredRegluOperation>),                                                    \
      LOWBIT_FLOAT_ROW("clamped_gate", "clamped_gate", target, lanes, needs, nullptr, clamped_gate_prepare<Isa>),      \
      LOWBIT_FLOAT_ROW("multiply", "multiply", target, lanes, needs, nullptr, binary_prepare<Isa, MultiplyOperation>), \
      LOWBIT_FLOAT_ROW("sigmoid_gate", "sigmoid_gate", target, lanes, needs, nullptr,                                  \
                       binary_prepare<Isa, SigmoidGateOperation>),                                                     \
      LOWBIT_FLOAT_ROW("sigmoid", "sigmoid", target, lanes, needs, nullptr, unary_prepare<Isa, SigmoidOperation>),     \
      LOWBIT_FLOAT_ROW("softplus", "softplus", target, lanes, needs, nullptr, softplus_prepare<Isa>),                  \
      LOWBIT_FLOAT_ROW("scale_rows", "scale_rows", target, lanes, needs, nullptr, scale_rows_prepare<Isa>),            \
      LOWBIT_FLOAT_ROW("scale", "scale", target, lanes, needs, nullptr, unary_prepare<Isa, ScaleOperation>),           \
      LOWBIT_FLOAT_ROW("softcap", "softcap", target, lanes, needs, nullptr, unary_prepare<Isa, SoftcapOperation>),     \
      LOWBIT_FLOAT_ROW("softmax", "softmax", target, lanes, needs, nullptr, softmax_prepare<Isa>),                     \
      LOWBIT_FLOAT_ROW("group_sums", "group_sums", target, lanes, needs, nullptr, group_sums_prepare<Isa>),            \
      LOWBIT_FLOAT_ROW("argmax", "argmax", target, lanes, needs, nullptr, argmax_prepare<Isa>),                        \
      LOWBIT_FLOAT_ROW("embedding", "embedding_float", target, lanes, needs, nullptr, embedding_float_prepare<Isa>)
