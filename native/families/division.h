// How the work of a call is divided into tiles, for families by rows and by elements. A kernel has its arguments,
// `Args`, and a function of one row, `row<Isa>(args, row)`, or of one vector, `vector<Isa>(args, i, vector)`.
#pragma once

#include <utility>

#include "../call_arguments.h"
#include "../vectors.h"

namespace lowbit {

// The smallest number of values in a tile that pays for handing it to another thread.
constexpr uint32_t kTileValues = 8192;

template <class Args>
struct Divided : Args {
  uint32_t per_tile;
};

template <class Isa, class Kernel>
void rows_run(const Step& step, uint32_t, uint32_t tile, uint32_t) {
  const auto& args = step.as<Divided<typename Kernel::Args>>();
  const size_t first = size_t{tile} * args.per_tile, last = std::min(args.rows, first + args.per_tile);
  for (size_t row = first; row < last; row++) Kernel::template row<Isa>(args, row);
}

// Sets all fields of a step but its function.
template <class Isa, class Args>
Divided<Args>& divide_rows(Step& step, const Call& call) {
  auto& args = step.init<Divided<Args>>();
  static_cast<Args&>(args) = arguments_of<Args>(call);
  args.per_tile = items_per_tile<Isa>(args.rows, kTileValues / std::max<size_t>(1, args.dim), call.threads);
  step.phases = 1;
  step.tiles[0] = static_cast<uint32_t>((args.rows + args.per_tile - 1) / args.per_tile);
  return args;
}

template <class Isa, class Kernel>
void rows_prepare(Step& step, const Call& call) {
  divide_rows<Isa, typename Kernel::Args>(step, call);
  step.run = rows_run<Isa, Kernel>;
}

using RunStep = decltype(Step::run);

template <class Isa, template <uint32_t> class Kernel, uint32_t... I>
RunStep rows_run_of(uint32_t choice, std::integer_sequence<uint32_t, I...>) {
  static constexpr RunStep kRuns[] = {rows_run<Isa, Kernel<I>>...};
  return kRuns[choice];
}

template <class Isa, template <uint32_t> class Kernel>
void rows_prepare(Step& step, const Call& call) {
  const uint32_t choice = choice_of(divide_rows<Isa, typename Kernel<0>::Args>(step, call));
  step.run = rows_run_of<Isa, Kernel>(choice, std::make_integer_sequence<uint32_t, Kernel<0>::kChoices>());
}

template <class Isa, class Kernel>
void elements_run(const Step& step, uint32_t, uint32_t tile, uint32_t) {
  // A copy, which stores through the arguments' pointers cannot change.
  const auto args = step.as<Divided<typename Kernel::Args>>();
  const size_t start = size_t{tile} * args.per_tile;
  each_vector<Isa>(std::min<size_t>(args.per_tile, args.count - start),
                   [&](size_t i, auto vector) LOWBIT_INLINE { Kernel::template vector<Isa>(args, start + i, vector); });
}

template <class Isa, class Args>
Divided<Args>& divide_elements(Step& step, const Call& call) {
  auto& args = step.init<Divided<Args>>();
  static_cast<Args&>(args) = arguments_of<Args>(call);
  // Tiles are whole cache lines, so that no two threads write to one.
  args.per_tile = static_cast<uint32_t>(round_up(items_per_tile<Isa>(args.count, kTileValues, call.threads), 16));
  step.phases = 1;
  step.tiles[0] = static_cast<uint32_t>((args.count + args.per_tile - 1) / args.per_tile);
  return args;
}

template <class Isa, class Kernel>
void elements_prepare(Step& step, const Call& call) {
  divide_elements<Isa, typename Kernel::Args>(step, call);
  step.run = elements_run<Isa, Kernel>;
}

template <class Isa, template <uint32_t> class Kernel, uint32_t... I>
RunStep elements_run_of(uint32_t choice, std::integer_sequence<uint32_t, I...>) {
  static constexpr RunStep kRuns[] = {elements_run<Isa, Kernel<I>>...};
  return kRuns[choice];
}

template <class Isa, template <uint32_t> class Kernel>
void elements_prepare(Step& step, const Call& call) {
  const uint32_t choice = choice_of(divide_elements<Isa, typename Kernel<0>::Args>(step, call));
  step.run = elements_run_of<Isa, Kernel>(choice, std::make_integer_sequence<uint32_t, Kernel<0>::kChoices>());
}

}  // namespace lowbit
