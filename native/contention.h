// Detects that other processes want the cores that the pool's threads run on.
#pragma once

#if defined(__linux__)
#include <sys/resource.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace lowbit {

// Involuntary context switches of this thread; 0 where the system does not count them.
inline long switches_to_others() {
#if defined(__linux__)
  rusage usage;
  if (getrusage(RUSAGE_THREAD, &usage) == 0) return usage.ru_nivcsw;
#endif
  return 0;
}

// Counts involuntary context switches of threads while other threads waited for their tiles: about a hundred a second
// beside a busy loop, tens in a calm system. Each counts for a while, and many at a time mean contention.
class Contention {
 public:
  // Starts to count for this thread.
  void begin() { seen() = switches_to_others(); }

  // Adds this thread's switches since it began or last noted.
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
  // Nanoseconds: for how long a switch counts, the sum from which on there is contention, and the largest sum kept.
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
