// Mixtures of experts: routers, and linear layers by expert, which call the kernels of linear layers.
#include "../families/experts/expert_linear.h"
#include "../families/experts/router.h"
#include "floats.h"

namespace lowbit {
namespace {

#define LOWBIT_EXPERT_ROW(name, family, ...) \
  KernelRow { name "_1x1x1_" LOWBIT_FLOATS_TARGET, family, nullptr, 0, kBaselineNeeds, 1, 1, __VA_ARGS__ }

constexpr KernelRow kRows[] = {
    LOWBIT_EXPERT_ROW("route_f32", "route", route_scratch, route_prepare),
    LOWBIT_EXPERT_ROW("expert_rows_f32", "expert_rows", nullptr, expert_rows_prepare<false>),
    LOWBIT_EXPERT_ROW("combine_experts_f32", "combine_experts", nullptr, expert_rows_prepare<true>),
    LOWBIT_EXPERT_ROW("expert_linear_packed_any", "expert_linear_packed", expert_linear_scratch<packed_call>,
                      expert_linear_prepare<packed_call>),
    LOWBIT_EXPERT_ROW("expert_linear_float_any", "expert_linear_float", expert_linear_scratch<float_call>,
                      expert_linear_prepare<float_call>),
};

}  // namespace

KernelRows expert_kernel_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
