#include "thread_pool.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "contention.h"

#if defined(_WIN32)
#define NOMINMAX
#include <windows.h>
#else
#include <pthread.h>
#endif

namespace lowbit {
namespace {

using Clock = std::chrono::steady_clock;

// How long idle threads spin: the caller needs tens of microseconds between two tokens, and a parked thread takes as
// long to wake.
constexpr auto kIdleSpin = std::chrono::microseconds(300);
// Waiting for tiles of another thread, in pauses, before sleeping. A core that sleeps, rather than yields, is one that
// the system moves the other thread to when that one waits for a busy core.
constexpr int kPausesBeforeSleep = 4000;
// The same while other processes want our cores: short, since the waiting thread holds the core that the other needs.
constexpr int kPausesWhenContended = 200;

inline void pause() {
#if defined(__x86_64__) || defined(_M_X64)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

Contention contention;

struct PhaseRef {
  const Step* step;
  uint32_t step_index;
  uint32_t phase;
  uint32_t tiles;
};

// A stretch: the unit after which threads meet. It is one phase of several tiles, or neighbouring phases of one tile
// each, so that one thread does a row of small calls (a sum, its norm, the norm's quantization) in one turn.
struct Stretch {
  uint32_t first, end, tiles;
};

double now_nanoseconds() { return std::chrono::duration<double, std::nano>(Clock::now().time_since_epoch()).count(); }

// One run of a plan. `ticket` holds the current stretch (high half) and the next tile to take (low half).
struct Job {
  std::vector<PhaseRef> phases;
  std::vector<Stretch> stretches;
  RunOptions options;
  Completion completion;
  // The time at which the phase before ended; kept only when times are asked for.
  double phase_start = 0;
  std::atomic<uint32_t> joined{0};
  alignas(64) std::atomic<uint64_t> ticket{0};
  alignas(64) std::atomic<uint32_t> finished_tiles{0};
  std::atomic<uint32_t> sleepers{0};
  std::mutex sleep_mutex;
  std::condition_variable stretch_ended;

  // Threads beyond the number of tiles of the largest phase would only wait.
  Job(const Plan& plan, const RunOptions& run_options, Completion at_end) : options(run_options), completion(at_end) {
    uint32_t most_tiles = 1;
    for (uint32_t i = 0; i < plan.steps.size(); i++) {
      const Step& step = plan.steps[i];
      for (uint32_t phase = 0; phase < step.phases; phase++) {
        if (step.tiles[phase] == 0) continue;
        add_phase({&step, i, phase, step.tiles[phase]});
        most_tiles = std::max(most_tiles, step.tiles[phase]);
      }
    }
    options.threads = std::max(1u, std::min(options.threads, most_tiles));
    if (options.step_nanoseconds) phase_start = now_nanoseconds();
  }

  void add_phase(const PhaseRef& ref) {
    const uint32_t index = static_cast<uint32_t>(phases.size());
    phases.push_back(ref);
    if (ref.tiles == 1 && !stretches.empty() && stretches.back().tiles == 1) stretches.back().end++;
    else stretches.push_back({index, index + 1, ref.tiles});
  }

  void note_time(const PhaseRef& ref) {
    if (!options.step_nanoseconds) return;
    const double now = now_nanoseconds();
    options.step_nanoseconds[ref.step_index] += now - phase_start;
    phase_start = now;
  }

  bool aborted() const { return options.abort && __atomic_load_n(options.abort, __ATOMIC_RELAXED); }

  // Runs a tile of a phase, or all phases of a stretch of single tiles, and notes the time of the last phase at its
  // end.
  void run_tile(const Stretch& stretch, uint32_t tile, uint32_t thread) {
    for (uint32_t i = stretch.first; i < stretch.end; i++) {
      if (i > stretch.first) {
        if (aborted()) return;
        note_time(phases[i - 1]);
      }
      phases[i].step->run(*phases[i].step, phases[i].phase, tile, thread);
    }
  }

  void finish_stretch(uint64_t index) {
    finished_tiles.store(0, std::memory_order_relaxed);
    note_time(phases[stretches[index].end - 1]);
    uint64_t next = aborted() ? stretches.size() : index + 1;
    // Sequentially consistent with the count of sleepers: a thread that goes to sleep sees the new stretch, or is
    // counted here.
    ticket.store(next << 32, std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_seq_cst) > 0) {
      contention.note();
      std::lock_guard<std::mutex> lock(sleep_mutex);
      stretch_ended.notify_all();
    }
    if (next == stretches.size() && completion.done) completion.done(completion.context);
  }

  bool is_in(uint64_t index) const { return ticket.load(std::memory_order_seq_cst) >> 32 == index; }

  void wait_for_end_of(uint64_t index) {
    const int most_pauses = contention.now() ? kPausesWhenContended : kPausesBeforeSleep;
    for (int pauses = 0; pauses < most_pauses; pauses++) {
      if (!is_in(index)) return;
      pause();
    }
    std::unique_lock<std::mutex> lock(sleep_mutex);
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    stretch_ended.wait(lock, [&] { return !is_in(index); });
    sleepers.fetch_sub(1, std::memory_order_relaxed);
  }

  void work(uint32_t thread) {
    contention.begin();
    for (;;) {
      uint64_t taken = ticket.fetch_add(1, std::memory_order_acq_rel);
      uint64_t index = taken >> 32;
      if (index >= stretches.size()) return;
      uint32_t tile = static_cast<uint32_t>(taken);
      const Stretch& stretch = stretches[index];
      if (tile >= stretch.tiles) {
        wait_for_end_of(index);
        continue;
      }
      run_tile(stretch, tile, thread);
      if (finished_tiles.fetch_add(1, std::memory_order_acq_rel) + 1 == stretch.tiles) finish_stretch(index);
    }
  }
};

class Pool {
 public:
  // Returns false when no thread can take the job.
  bool submit(std::shared_ptr<Job> job) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      needed_ = std::max(needed_.load(), job->options.threads);
      while (thread_count_ < job->options.threads && start_thread()) thread_count_++;
      if (thread_count_ == 0) return false;
      jobs_.push_back(std::move(job));
      version_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    return true;
  }

  void keep(uint32_t threads) {
    std::lock_guard<std::mutex> lock(mutex_);
    kept_.insert(threads);
  }

  void release(uint32_t threads) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      const auto place = kept_.find(threads);
      if (place != kept_.end()) kept_.erase(place);
      needed_ = kept_.empty() ? 0 : *kept_.rbegin();
    }
    wake_.notify_all();
  }

 private:
  // Returns false when the system gives no more threads (std::thread would throw).
  bool start_thread() {
#if defined(_WIN32)
    auto run = [](void* pool) -> DWORD {
      static_cast<Pool*>(pool)->serve();
      return 0;
    };
    HANDLE thread = CreateThread(nullptr, 0, run, this, 0, nullptr);
    return thread && CloseHandle(thread);
#else
    auto run = [](void* pool) -> void* {
      static_cast<Pool*>(pool)->serve();
      return nullptr;
    };
    pthread_t thread;
    return pthread_create(&thread, nullptr, run, this) == 0 && pthread_detach(thread) == 0;
#endif
  }

  // Joins the oldest job that has room; drops jobs that are full.
  std::shared_ptr<Job> join(uint32_t* thread) {
    std::lock_guard<std::mutex> lock(mutex_);
    while (!jobs_.empty()) {
      std::shared_ptr<Job> job = jobs_.front();
      *thread = job->joined++;
      if (*thread + 1 >= job->options.threads) jobs_.pop_front();
      if (*thread < job->options.threads) return job;
    }
    return nullptr;
  }

  void serve() {
    for (;;) {
      uint64_t seen = version_.load(std::memory_order_acquire);
      uint32_t thread = 0;
      if (std::shared_ptr<Job> job = join(&thread)) {
        job->work(thread);
        continue;
      }
      if (spin_for_change(seen) && !is_over()) continue;
      std::unique_lock<std::mutex> lock(mutex_);
      wake_.wait(lock, [&] { return is_over() || version_.load(std::memory_order_acquire) != seen; });
      // A release may lower the number that is kept after a job has raised it: the job still needs this thread.
      if (is_over() && jobs_.empty()) {
        thread_count_--;
        return;
      }
    }
  }

  // Whether there are more threads than anyone keeps or asks for.
  bool is_over() const {
    return thread_count_.load(std::memory_order_relaxed) > needed_.load(std::memory_order_relaxed);
  }

  bool spin_for_change(uint64_t seen) {
    auto end = Clock::now() + kIdleSpin;
    do {
      for (int i = 0; i < 64; i++) {
        if (version_.load(std::memory_order_acquire) != seen) return true;
        pause();
      }
    } while (Clock::now() < end);
    return false;
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Job>> jobs_;
  std::atomic<uint64_t> version_{0};
  std::atomic<uint32_t> thread_count_{0};
  // The largest number of threads that is kept, or that a job has asked for since the last release.
  std::atomic<uint32_t> needed_{0};
  std::multiset<uint32_t> kept_;
};

// Never destroyed: its threads may outlive static destruction.
Pool& pool() {
  static Pool* instance = new Pool();
  return *instance;
}

}  // namespace

void run_plan(const Plan& plan, const RunOptions& options, Completion completion) {
  auto job = std::make_shared<Job>(plan, options, completion);
  if (job->phases.empty()) return completion.done(completion.context);
  if (!pool().submit(job)) job->work(0);
}

void keep_threads(uint32_t threads) { pool().keep(threads); }
void release_threads(uint32_t threads) { pool().release(threads); }

void run_plan_here(const Plan& plan, const RunOptions& options) {
  auto job = std::make_shared<Job>(plan, options, Completion{nullptr, nullptr});
  job->joined = 1;
  if (job->options.threads > 1) pool().submit(job);
  job->work(0);
}

}  // namespace lowbit
