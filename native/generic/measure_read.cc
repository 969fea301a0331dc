// Benchmark of memory bandwidth, the limit of decode; no operator calls it.
#include "../families/measure/arguments.h"

namespace lowbit {
namespace {

// A tile is read at several places side by side: so a core gets some 40 % more out of memory than from one place.
constexpr size_t kStreams = 8, kStreamBytes = 1 << 15, kTileBytes = kStreams * kStreamBytes;

struct ReadArgs {
  const uint8_t* data;
  uint64_t tiles_per_round;
  uint64_t ahead;
  // Sums [threads], a cache line apart: they keep compilers from dropping the reads.
  uint64_t* sums;
};

void run(const Step& step, uint32_t, uint32_t tile, uint32_t thread) {
  const ReadArgs& args = step.as<ReadArgs>();
  const uint8_t* begin = args.data + tile % args.tiles_per_round * kTileBytes;
  uint64_t sums[8] = {};
  for (const uint8_t* line = begin; line < begin + kStreamBytes; line += 64)
    for (size_t stream = 0; stream < kStreams; stream++) {
      const uint8_t* at = line + stream * kStreamBytes;
      if (args.ahead) __builtin_prefetch(at + args.ahead);
      for (int i = 0; i < 8; i++) {
        uint64_t word;
        __builtin_memcpy(&word, at + 8 * i, 8);
        sums[i] += word;
      }
    }
  for (uint64_t sum : sums) args.sums[8 * thread] += sum;
}

size_t scratch_bytes(const Call& call) { return 64 * call.threads; }

// Reads whole tiles only. Prefetches `ahead` bytes ahead; 0: not at all.
void prepare(Step& step, const Call& call) {
  const auto given = arguments_of<MeasureReadArguments>(call);
  ReadArgs& args = step.init<ReadArgs>();
  args.data = given.data;
  args.tiles_per_round = given.bytes / kTileBytes;
  args.ahead = given.ahead;
  args.sums = static_cast<uint64_t*>(given.scratch);
  step.run = run;
  step.phases = 1;
  step.tiles[0] = static_cast<uint32_t>(args.tiles_per_round * given.rounds);
}

constexpr KernelRow kRows[] = {
    {"measure_read_baseline", "measure_read", nullptr, 0, 0, 1, 1, scratch_bytes, prepare},
};

}  // namespace

KernelRows measure_read_rows() { return {kRows, 1}; }

}  // namespace lowbit
