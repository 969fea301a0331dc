// Runs of a step and the recurrent states of their sequences, laid out as src/kernels/sequence-table.ts says.
#pragma once

#include <algorithm>
#include <cstring>

#include "../kernel.h"

namespace lowbit {

// A run: rows that hold consecutive positions of one sequence.
struct Run {
  uint32_t row, rows, position, slot;
  // Whether they are of a prompt.
  bool is_prefill;
};
constexpr uint32_t kRunFields = 5;

// Calls body with each run of a table that lies within `rows` rows and `positions` positions. Each field is read once,
// so that the values that were checked are the values that are used.
template <class Body>
void each_run_of(const void* table, uint32_t runs_max, uint32_t rows, uint32_t positions, Body&& body) {
  const auto* numbers = static_cast<const volatile int32_t*>(table);
  const int64_t count = std::min<int64_t>(numbers[0], runs_max);
  int64_t free = 0;
  for (int64_t i = 0; i < count; i++) {
    const volatile int32_t* fields = numbers + 1 + i * kRunFields;
    const int64_t row = fields[0], own = fields[1], position = fields[2], slot = fields[3];
    if (row < free || own < 1 || row + own > rows || position < 0 || position + own > positions || slot < 0) continue;
    free = row + own;
    body(Run{static_cast<uint32_t>(row), static_cast<uint32_t>(own), static_cast<uint32_t>(position),
             static_cast<uint32_t>(slot), fields[4] == 1});
  }
}

// The states of the sequences of a step.
struct StateTable {
  const void* runs;
  // Addresses [slots] of the states to read, and of the states to write.
  const uint64_t* states;
  const uint64_t* next_states;
  // Bytes from such an address to this call's part of the state.
  uintptr_t offset;
  uint32_t rows, runs_max, slots;
};

template <class Arguments>
StateTable state_table(const Arguments& given) {
  return {given.runs,     given.states, given.next_states, given.state_offset, static_cast<uint32_t>(given.rows),
          given.runs_max, given.slots};
}

// Calls body with each run, its state and the address of its next state; and skip(first, end) with rows that belong to
// no run.
template <class Skip, class Body>
void each_state(const StateTable& table, Skip&& skip, Body&& body) {
  uint32_t known = 0;
  each_run_of(table.runs, table.runs_max, table.rows, INT32_MAX, [&](const Run& run) {
    if (run.slot >= table.slots) return;
    if (run.row > known) skip(known, run.row);
    known = run.row + run.rows;
    body(run, reinterpret_cast<const float*>(table.states[run.slot] + table.offset),
         reinterpret_cast<float*>(table.next_states[run.slot] + table.offset));
  });
  if (table.rows > known) skip(known, table.rows);
}

}  // namespace lowbit
