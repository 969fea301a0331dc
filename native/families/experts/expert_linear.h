// A linear layer with a matrix for each expert (mixture of experts). The router decides at run time which rows go to
// which expert. The first phase makes, for each expert that has rows, a step of the linear kernel for that number of
// rows; the other phases run the tiles of all these steps. Each tile of this kernel takes tiles of the steps from a
// shared counter until none is left.
#pragma once

#include <cmath>
#include <cstring>

#include "../linear/arguments.h"
#include "arguments.h"
#include "routing.h"

namespace lowbit {
namespace {

constexpr uint32_t kExpertChoices = 8, kExpertPhases = kPhasesMax - 1;

struct ExpertCall {
  const float* x;
  const uint8_t* weights;
  const float* bias;
  const int32_t* starts;
  float* y;
  uint8_t* scratch;
  size_t part_bytes, scratch_bytes;
  uint32_t places, experts, n, k, threads;
  // Group size of packed weights, type of floats.
  uint32_t form;
  bool is_packed;
  // The header of the first expert's matrix as it was when the call was checked, without its checksums and codebook.
  uint8_t header[40];
  uint32_t from[kExpertChoices];
  const KernelRow* rows[kExpertChoices];

  // The largest number of steps.
  uint32_t steps_max() const { return std::min(places, experts); }
};
static_assert(sizeof(ExpertCall) <= kArgsMax);

// State that the phases share, at the start of the scratch. Behind it lie the steps, the ends of their tiles in each
// phase, and the scratch of the steps.
struct ExpertState {
  alignas(64) uint32_t next_tile[kExpertPhases];
  alignas(64) uint32_t steps;
};

inline Step* steps_of(const ExpertCall& args) { return reinterpret_cast<Step*>(args.scratch + sizeof(ExpertState)); }
inline uint32_t* ends_of(const ExpertCall& args, uint32_t phase) {
  return reinterpret_cast<uint32_t*>(steps_of(args) + args.steps_max()) + size_t{phase} * args.steps_max();
}
inline size_t state_bytes(const ExpertCall& args) {
  const size_t step_bytes = sizeof(Step) + kExpertPhases * sizeof(uint32_t);
  return round_up(sizeof(ExpertState) + args.steps_max() * step_bytes, 64);
}

// Calls f with the call of an expert's linear layer: m rows, from place `first` of the routing on.
template <class F>
inline auto with_call(const ExpertCall& args, uint32_t expert, size_t first, uint32_t m, void* scratch, F f) {
  const float* x = args.x + first * args.k;
  float* y = args.y + first * args.n;
  const uint8_t* weights = args.weights + expert * args.part_bytes;
  if (args.is_packed) {
    PackedLinearArguments to{x, weights, y, m, args.n, args.k, args.form, scratch};
    return f(CallOf<PackedLinearArguments>(to).call(args.threads));
  }
  const float* bias = args.bias ? args.bias + size_t{expert} * args.n : nullptr;
  LinearFloatArguments to{x, weights, bias, y, m, args.k, args.n, args.form, scratch};
  return f(CallOf<LinearFloatArguments>(to).call(args.threads));
}

inline size_t step_scratch(const ExpertCall& args, const KernelRow& row, uint32_t m) {
  if (!row.scratch_bytes) return 0;
  return with_call(args, 0, 0, m, nullptr, [&](const Call& call) { return round_up(row.scratch_bytes(call), 64); });
}

inline const KernelRow& row_for(const ExpertCall& args, uint32_t m) {
  uint32_t choice = 0;
  while (choice + 1 < kExpertChoices && args.from[choice + 1] <= m) choice++;
  return *args.rows[choice];
}

// An upper bound, in bytes, of the scratch of all steps together, however the router spreads the places over experts.
// Row counts are bounded in ranges that end at a power of two, each by the largest scratch of its kernels. For any
// price of a row, the sum over experts is at most places * price + experts * max(scratch of a step - rows * price); the
// least such bound over the prices that are tried is taken.
inline size_t most_scratch(const ExpertCall& args) {
  constexpr uint32_t kRanges = 21;
  double bytes[kRanges], rows[kRanges];
  for (uint32_t range = 0; range < kRanges; range++) {
    const uint32_t last = 1u << range, first = range == 0 ? 1 : last / 2 + 1;
    rows[range] = first;
    bytes[range] = 0;
    for (uint32_t choice = 0; choice < kExpertChoices; choice++) {
      const bool serves = args.from[choice] <= last && (choice + 1 == kExpertChoices || args.from[choice + 1] > first);
      if (serves)
        bytes[range] = std::max(bytes[range], static_cast<double>(step_scratch(args, *args.rows[choice], last)));
    }
  }
  double least = HUGE_VAL;
  for (uint32_t priced = 0; priced < kRanges; priced++) {
    const double price = bytes[priced] / rows[priced];
    double above = 0;
    for (uint32_t range = 0; range < kRanges && rows[range] <= args.places; range++)
      above = std::max(above, bytes[range] - price * rows[range]);
    least = std::min(least, price * args.places + above * args.steps_max());
  }
  return static_cast<size_t>(std::ceil(least));
}

// Whether an expert's packed matrix has the header that the first expert's had when it was checked. Headers of panels
// also hold what differs between matrices: checksums, the codebook, and whether no scale is negative. TorchAO's header
// is eight integers.
inline bool is_alike(const ExpertCall& args, uint32_t expert) {
  if (!args.is_packed) return true;
  const uint8_t* header = args.weights + expert * args.part_bytes;
  auto same = [&](int from, int to) { return memcmp(header + from, args.header + from, to - from) == 0; };
  const bool is_torchao = memcmp(args.header, "LBW1", 4) != 0;
  return is_torchao ? same(0, 32) : same(0, 15) && same(16, 28) && same(32, 40);
}

inline void add_step(const ExpertCall& args, ExpertState& state, uint32_t expert, size_t first, uint32_t m,
                     size_t& used) {
  const KernelRow* row = &row_for(args, m);
  size_t bytes = step_scratch(args, *row, m);
  if (used + bytes > args.scratch_bytes) bytes = step_scratch(args, *(row = args.rows[0]), m);
  if (!is_alike(args, expert) || used + bytes > args.scratch_bytes) {
    std::fill_n(args.y + first * args.n, size_t{m} * args.n, NAN);
    return;
  }
  const uint32_t index = state.steps++;
  Step& step = steps_of(args)[index];
  step = {};
  with_call(args, expert, first, m, args.scratch + used, [&](const Call& call) { row->prepare(step, call); });
  used += bytes;
  for (uint32_t phase = 0; phase < kExpertPhases; phase++) {
    const uint32_t before = index == 0 ? 0 : ends_of(args, phase)[index - 1];
    ends_of(args, phase)[index] = before + (phase < step.phases ? step.tiles[phase] : 0);
  }
}

inline void make_steps(const ExpertCall& args) {
  ExpertState& state = *reinterpret_cast<ExpertState*>(args.scratch);
  state = {};
  size_t used = state_bytes(args);
  uint32_t first = 0;
  // The first expert's header says how much scratch steps need.
  const uint32_t experts = is_alike(args, 0) ? args.experts : 0;
  for (uint32_t expert = 0; expert < experts; expert++) {
    const int32_t stored = args.starts[expert + 1];
    const uint32_t end = stored < 0 ? 0 : std::min(static_cast<uint32_t>(stored), args.places);
    if (end <= first) continue;
    add_step(args, state, expert, first, end - first, used);
    first = end;
  }
  // Places after the last expert's: damaged routings only, since a router gives each place to an expert.
  std::fill_n(args.y + size_t{first} * args.n, size_t{args.places - first} * args.n, NAN);
}

inline void expert_linear_run(const Step& call, uint32_t phase, uint32_t, uint32_t thread) {
  const ExpertCall& args = call.as<ExpertCall>();
  if (phase == 0) return make_steps(args);
  ExpertState& state = *reinterpret_cast<ExpertState*>(args.scratch);
  const Step* steps = steps_of(args);
  const uint32_t* ends = ends_of(args, phase - 1);
  for (uint32_t index = 0; index < state.steps;) {
    const uint32_t tile = __atomic_fetch_add(&state.next_tile[phase - 1], 1u, __ATOMIC_RELAXED);
    while (index < state.steps && tile >= ends[index]) index++;
    if (index == state.steps) return;
    steps[index].run(steps[index], phase - 1, tile - (index == 0 ? 0 : ends[index - 1]), thread);
  }
}

// Arguments that both families of expert layers have.
template <class Arguments>
ExpertCall expert_call(const Arguments& given, uint32_t threads) {
  ExpertCall args{};
  args.places = given.places;
  args.experts = given.experts;
  args.n = given.n;
  args.k = given.k;
  args.part_bytes = given.part_bytes;
  args.threads = threads;
  args.x = given.x;
  args.weights = static_cast<const uint8_t*>(given.weights);
  args.starts = given.routing;
  args.y = given.y;
  args.scratch = static_cast<uint8_t*>(given.scratch);
  for (uint32_t i = 0; i < kExpertChoices; i++) {
    args.from[i] = given.from[i];
    args.rows[i] = kernel_row(given.kernels[i]);
  }
  return args;
}

inline ExpertCall packed_call(const Call& call) {
  const auto given = arguments_of<ExpertLinearPackedArguments>(call);
  ExpertCall args = expert_call(given, call.threads);
  args.is_packed = true;
  args.form = given.group_size;
  return args;
}

inline ExpertCall float_call(const Call& call) {
  const auto given = arguments_of<ExpertLinearFloatArguments>(call);
  ExpertCall args = expert_call(given, call.threads);
  args.form = given.weights_type;
  args.bias = given.bias;
  return args;
}

inline bool can_run(const ExpertCall& args) {
  for (const KernelRow* row : args.rows)
    if (!row) return false;
  return true;
}

template <ExpertCall (*read)(const Call& call)>
size_t expert_linear_scratch(const Call& call) {
  const ExpertCall args = read(call);
  return can_run(args) ? state_bytes(args) + most_scratch(args) : 0;
}

template <ExpertCall (*read)(const Call& call)>
void expert_linear_prepare(Step& step, const Call& call) {
  ExpertCall& args = step.init<ExpertCall>();
  args = read(call);
  if (!can_run(args)) return;
  args.scratch_bytes = state_bytes(args) + most_scratch(args);
  if (args.is_packed) memcpy(args.header, args.weights, sizeof args.header);
  step.phases = kPhasesMax;
  step.tiles[0] = 1;
  for (uint32_t phase = 1; phase < kPhasesMax; phase++) step.tiles[phase] = call.threads;
  step.run = expert_linear_run;
}

}  // namespace
}  // namespace lowbit
