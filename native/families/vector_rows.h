// Kernels that every instruction set has. `Isa` is its vector type, `target` its name and `lanes` its width as strings.
#pragma once

#include "attention/attention_calls.h"
#include "attention/packed_sequences.h"
#include "attention/rope.h"
#include "attention/rope_attention.h"
#include "embedding/embedding.h"
#include "recurrent/linear_recurrence.h"
#include "recurrent/short_convolution.h"
#include "rows.h"

// A kernel for calls of any size. After `needs` come the function that measures its scratch, or null, and the one that
// prepares its calls.
#define LOWBIT_FLOAT_ROW(name, family, target, lanes, needs, ...) \
  KernelRow { name "_f32_1x1x" lanes "_" target, family, nullptr, 0, needs, 1, 1, __VA_ARGS__ }
#define LOWBIT_DECLARED_ROW(family, target, lanes, needs, ...) \
  LOWBIT_FLOAT_ROW(family, family, target, lanes, needs, nullptr, __VA_ARGS__)

// Attention over pages, where prompts are computed as answers are.
#define LOWBIT_PAGES_ROWS(Isa, target, lanes, needs)                                                               \
  LOWBIT_FLOAT_ROW("update_and_attend", "update_and_attend", target, lanes, needs, update_and_attend_scratch<Isa>, \
                   update_and_attend_prepare<Isa>),                                                                \
      LOWBIT_FLOAT_ROW("rope_update_and_attend", "rope_update_and_attend", target, lanes, needs,                   \
                       rope_update_and_attend_scratch<update_and_attend_scratch<Isa>>,                             \
                       rope_update_and_attend_prepare<Isa, update_and_attend_prepare<Isa>>)

#define LOWBIT_TRANSFORMER_ROWS(Isa, target, lanes, needs)                                                             \
  LOWBIT_DECLARED_ROWS(LOWBIT_DECLARED_ROW, Isa, target, lanes, needs),                                                \
      LOWBIT_FLOAT_ROW("attention", "attention", target, lanes, needs, attention_scratch<Isa>,                         \
                       attention_prepare<Isa>),                                                                        \
      LOWBIT_FLOAT_ROW("attend_packed", "attend_packed", target, lanes, needs, attend_packed_scratch<Isa>,             \
                       attend_packed_prepare<Isa>),                                                                    \
      LOWBIT_FLOAT_ROW("short_convolution", "short_convolution", target, lanes, needs, nullptr,                        \
                       short_convolution_prepare<Isa>),                                                                \
      LOWBIT_FLOAT_ROW("linear_recurrence", "linear_recurrence", target, lanes, needs, linear_recurrence_scratch<Isa>, \
                       linear_recurrence_prepare<Isa>),                                                                \
      LOWBIT_FLOAT_ROW("rope", "rope", target, lanes, needs, nullptr, rope_prepare<Isa>),                              \
      LOWBIT_FLOAT_ROW("embedding", "embedding_float", target, lanes, needs, nullptr, embedding_float_prepare<Isa>)
