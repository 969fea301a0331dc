// A pool of threads that work through plans. Tiles are taken one by one, and a phase ends when its tiles are done, not
// when all threads have arrived: a thread that the system holds back delays nobody unless it holds a tile.
#pragma once

#include <atomic>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "kernel.h"

namespace lowbit {

// Steps in order. The memory that their arguments point to must outlive the plan's runs.
struct Plan {
  std::vector<Step> steps;
};

// Is called when a plan has ended.
struct Completion {
  void (*done)(void* context);
  void* context;
};

struct RunOptions {
  // At least 1.
  uint32_t threads;
  // When not null, ends the plan early between phases once it is not 0.
  const int32_t* abort = nullptr;
  // When not null, an element for each step, to which the nanoseconds that the step took are added.
  double* step_nanoseconds = nullptr;
};

// Starts a plan on threads of the process-wide pool, as many as the system gives, and returns at once; runs it on this
// thread where the system gives none. `plan` and the memory that the options point to must live until `done` is called.
void run_plan(const Plan& plan, const RunOptions& options, Completion completion);

// Keeps `threads` threads alive for a caller that will run plans on so many, until it releases them. Idle threads
// beyond the largest number that is still kept end.
void keep_threads(uint32_t threads);
void release_threads(uint32_t threads);

// Runs a plan on this thread and on threads of the pool; returns when the plan has ended.
void run_plan_here(const Plan& plan, const RunOptions& options);

// The number of physical cores, of performance cores where the system tells them apart; at most the number that the
// container's CPU quota keeps busy.
uint32_t default_threads();

// That number for some of Linux's CPUs, read from /proc and /sys under `root`, which ends with a slash; at least 1.
// CPUs without files count as cores.
uint32_t count_cores(const std::string& root, const std::set<uint32_t>& cpus);

}  // namespace lowbit
