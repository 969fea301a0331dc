// Whether others want the cores that a pool's threads are on.
#pragma once

#if defined(__linux__)
#include <sys/resource.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace lowbit {

// How often the system took this thread off its core for others; 0 where it does not tell.
inline long switches_to_others() {
#if defined(__linux__)
  rusage usage;
  if (getrusage(RUSAGE_THREAD, &usage) == 0) return usage.ru_nivcsw;
#endif
  return 0;
}

// Told by how often threads were taken off their cores while others waited for their tiles: some hundred times a second
// beside a busy loop, some tens in a calm system. Each time counts for a while, and many at once mean contention.
class Contention {
 public:
  // Counts for this thread from now on.
  void begin() { seen() = switches_to_others(); }

  // Takes in what happened to this thread since it began or last noted.
  void note() {
    const long switches = switches_to_others(), count = switches - seen();
    seen() = switches;
    if (count == 0) return;
    const int64_t now = nanoseconds();
    int64_t before = counts_until_.load(std::memory_order_relaxed), after;
    do after = std::min(std::max(now, before) + count * kCounts, now + kMost);
    while (!counts_until_.compare_exchange_weak(before, after, std::memory_order_relaxed));
  }

  bool now() const { return counts_until_.load(std::memory_order_relaxed) - nanoseconds() > kMany; }

 private:
  // For how long each switch counts, how much of that is contention, and how much is kept; in nanoseconds.
  static constexpr int64_t kCounts = 15'000'000, kMany = 4 * kCounts, kMost = 12 * kCounts;

  static int64_t nanoseconds() {
    const auto time = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
  }

  static long& seen() {
    static thread_local long switches = 0;
    return switches;
  }

  std::atomic<int64_t> counts_until_{0};
};

}  // namespace lowbit
