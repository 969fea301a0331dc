// The rows that every instruction set has. `Isa` is its vectors, `target` its name and `lanes` their width as strings.
#pragma once

#include "attention.h"
#include "elementwise.h"
#include "embedding.h"
#include "fused.h"
#include "norm.h"

#define LOWBIT_TRANSFORMER_ROWS(Isa, target, lanes, needs)                                                             \
  {"attention_f32_1x1x" lanes "_" target, "attention", nullptr, 0, needs, 1, 1, attention_scratch<Isa>,      \
   attention_prepare<Isa>},                                                                                            \
      {"rope_attention_f32_1x1x" lanes "_" target, "rope_attention", nullptr, 0, needs, 1, 1,                          \
       rope_attention_scratch<attention_scratch<Isa>>, rope_attention_prepare<Isa, attention_prepare<Isa>>},           \
      {"swiglu_halves_f32_1x1x" lanes "_" target, "swiglu_halves", nullptr, 0, needs, 1, 1, nullptr,                   \
       halves_prepare<Isa, SwigluOperation>},                                                                          \
      {"geglu_halves_f32_1x1x" lanes "_" target, "geglu_halves", nullptr, 0, needs, 1, 1, nullptr,                     \
       halves_prepare<Isa, GegluOperation>},                                                                           \
      {"add_rms_norm_f32_1x1x" lanes "_" target, "add_rms_norm", nullptr, 0, needs, 1, 1, nullptr,                     \
       add_rms_norm_prepare<Isa>},                                                                                     \
      {"rms_norm_f32_1x1x" lanes "_" target, "rms_norm", nullptr, 0, needs, 1, 1, nullptr,                   \
       rms_norm_prepare<Isa>},                                                                                         \
      {"rope_f32_1x1x" lanes "_" target, "rope", nullptr, 0, needs, 1, 1, nullptr, rope_prepare<Isa>},       \
      {"swiglu_f32_1x1x" lanes "_" target, "swiglu", nullptr, 0, needs, 1, 1, nullptr,                       \
       binary_prepare<Isa, SwigluOperation>},                                                                          \
      {"add_f32_1x1x" lanes "_" target, "add", nullptr, 0, needs, 1, 1, nullptr,                             \
       binary_prepare<Isa, AddOperation>},                                                                             \
      {"geglu_f32_1x1x" lanes "_" target, "geglu", nullptr, 0, needs, 1, 1, nullptr,                         \
       binary_prepare<Isa, GegluOperation>},                                                                           \
      {"erf_geglu_f32_1x1x" lanes "_" target, "erf_geglu", nullptr, 0, needs, 1, 1, nullptr,                           \
       binary_prepare<Isa, ErfGegluOperation>},                                                                        \
      {"quick_geglu_f32_1x1x" lanes "_" target, "quick_geglu", nullptr, 0, needs, 1, 1, nullptr,                       \
       binary_prepare<Isa, QuickGegluOperation>},                                                                      \
      {"reglu_f32_1x1x" lanes "_" target, "reglu", nullptr, 0, needs, 1, 1, nullptr,                                   \
       binary_prepare<Isa, RegluOperation>},                                                                           \
      {"squared_reglu_f32_1x1x" lanes "_" target, "squared_reglu", nullptr, 0, needs, 1, 1, nullptr,                   \
       binary_prepare<Isa, SquaredRegluOperation>},                                                                    \
      {"scale_f32_1x1x" lanes "_" target, "scale", nullptr, 0, needs, 1, 1, nullptr,                         \
       unary_prepare<Isa, ScaleOperation>},                                                                            \
      {"softcap_f32_1x1x" lanes "_" target, "softcap", nullptr, 0, needs, 1, 1, nullptr,                     \
       unary_prepare<Isa, SoftcapOperation>},                                                                          \
      {"softmax_f32_1x1x" lanes "_" target, "softmax", nullptr, 0, needs, 1, 1, nullptr,                     \
       softmax_prepare<Isa>},                                                                                          \
      {"group_sums_f32_1x1x" lanes "_" target, "group_sums", nullptr, 0, needs, 1, 1, nullptr,                         \
       group_sums_prepare<Isa>},                                                                                       \
      {"argmax_f32_1x1x" lanes "_" target, "argmax", nullptr, 0, needs, 1, 1, nullptr, argmax_prepare<Isa>}, \
  {                                                                                                                    \
    "embedding_f32_1x1x" lanes "_" target, "embedding_float", nullptr, 0, needs, 1, 1, nullptr,              \
        embedding_float_prepare<Isa>                                                                                   \
  }
