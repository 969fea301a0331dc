// GEMM over panel16 weights with int8 activations, whose products are summed in 16 bits first, for vectors of half a
// panel. Weights of more than 7 bits are two planes of 4 bits: 16 high + low. panel16_linear.h has the formula.
#pragma once

#include "panel16_gemm.h"

namespace lowbit {
namespace {

struct ShortGemm {
  PackedLinear linear;
  // Activations in the order in which blocks read them: [chunks of columns][blocks of rows][columns / 4][rows][4].
  uint8_t* inputs;
  // Scratch of all threads, and bytes of one thread's: a ShortWorkspace.
  uint8_t* scratch;
  size_t thread_bytes;
};
static_assert(sizeof(ShortGemm) <= kArgsMax);

// Rows of a block, and runs (32 columns of a panel) that are unpacked at once: they fit the first-level cache, with a
// block's activations.
constexpr uint32_t kShortRows = 4, kChunkRuns = 32;

// Bytes of a plane of a chunk.
constexpr size_t kPlaneBytes = kChunkRuns * 512;

// Scratch of a thread. weights: two planes of a chunk, [runs][8][16 rows][4]. scales and offsets_of:
// [runs][halves][16], one per half of a run where groups are pairs. Per row: totals of earlier blocks, and sums of the
// block that the chunk is part of, [m][16] each.
struct ShortWorkspace {
  uint8_t* weights;
  float *scales, *offsets, *totals;
  int32_t* sums;

  static size_t bytes(uint32_t m) { return 2 * (kPlaneBytes + 2 * 64 * kChunkRuns) + 2 * 64 * static_cast<size_t>(m); }
  ShortWorkspace(uint8_t* scratch, uint32_t m)
      : weights(scratch),
        scales(reinterpret_cast<float*>(scratch + 2 * kPlaneBytes)),
        offsets(scales + 2 * kChunkRuns * 16),
        totals(offsets + 2 * kChunkRuns * 16),
        sums(reinterpret_cast<int32_t*>(totals + 16 * static_cast<size_t>(m))) {}
};

// Runs `first` .. `last - 1` of a panel: whole groups, or part of one.
struct ShortChunk {
  uint32_t panel, first, last;
};

// End of the chunk that begins with run `first`.
inline uint32_t chunk_end(const Panel16& w, uint32_t first) {
  const uint32_t group_runs = w.group_length / 32, runs = w.padded_k() / 32;
  if (group_runs > kChunkRuns) return std::min(first + kChunkRuns, (first / group_runs + 1) * group_runs);
  return std::min(runs, first + kChunkRuns / group_runs * group_runs);
}

// Address of the activations of the chunk that begins with run `run`, from row `row` on.
inline uint8_t* chunk_inputs(const ShortGemm& gemm, uint32_t run, uint32_t row) {
  const size_t runs = chunk_end(gemm.linear.weights, run) - run;
  return gemm.inputs + 32 * (static_cast<size_t>(run) * gemm.linear.m + runs * row);
}

// Copies row `row` of a block, which has `rows` rows from `first` on, to the order in which the block reads it.
inline void place_row(const ShortGemm& gemm, uint32_t first, uint32_t rows, uint32_t row) {
  const Panel16& w = gemm.linear.weights;
  const uint32_t runs = w.padded_k() / 32;
  const int8_t* in = gemm.linear.rows.values + 32 * static_cast<size_t>(row) * runs;
  for (uint32_t run = 0, end; run < runs; run = end) {
    end = chunk_end(w, run);
    uint8_t* out = chunk_inputs(gemm, run, first) + 4 * (row - first);
    for (uint32_t i = (end - run) * 8; i > 0; i--, in += 4, out += 4 * rows) memcpy(out, in, 4);
  }
}

// Quantizes the blocks of rows that begin in a tile.
template <class Isa>
inline void quantize_tile(const ShortGemm& gemm, uint32_t tile, int32_t offset) {
  const PackedLinear& args = gemm.linear;
  const uint32_t begin = tile * args.rows_per_tile, end = begin + args.rows_per_tile;
  even_parts(args.m, kShortRows, [&](uint32_t first, uint32_t rows) {
    if (first < begin || first >= end) return;
    quantize_range<Isa>(args, first, first + rows, offset);
    for (uint32_t row = first; row < first + rows; row++) place_row(gemm, first, rows, row);
  });
}

template <class Isa, int Bits, bool Levels>
inline void unpack_chunk(const Panel16& w, const ShortChunk& chunk, const ShortWorkspace& work) {
  unpack_panel<Isa, Bits, Levels>(w, chunk.panel, chunk.first, chunk.last, work.weights);
  const uint32_t group_runs = w.group_length / 32;
  size_t at = 0;
  for (uint32_t run = chunk.first; run < chunk.last; run++) {
    const uint32_t g = run / group_runs;
    const uint8_t* group = w.panel(chunk.panel) + g * w.group_bytes;
    for (int i = 0; i < 2 * w.parts; i++, at += 8) {
      const GroupPlace<Isa> place{group, g, i % 2, i / 2};
      const auto scales = group_scales<Isa>(w, place);
      Isa::store_floats(work.scales + at, scales);
      if (w.has_offsets) Isa::store_floats(work.offsets + at, offsets_of<Isa>(w, place, scales, w.bits));
    }
  }
}

// Calls body(v, m) for two vectors of columns and `Rows` rows. Both are constants: compilers keep arrays in memory that
// loops index.
template <int Rows, class Body>
inline LOWBIT_INLINE void each_sum(Body&& body) {
  each_index<2 * Rows>([&](auto i) LOWBIT_INLINE {
    body(std::integral_constant<int, i / Rows>{}, std::integral_constant<int, i % Rows>{});
  });
}

// Products of `Columns` columns with two vectors of weights, `apart` bytes from each other.
template <class Isa, int Steps, int Rows, int Columns = 32>
inline LOWBIT_INLINE void pair_sums(const uint8_t* weights, size_t apart, const uint8_t* x,
                                                    typename Isa::Ints (&sum)[2][Rows]) {
  typename Isa::Ints shorts[2][Rows];
  each_index<Columns / 4>([&](auto step) LOWBIT_INLINE {
    for (int m = 0; m < Rows; m++) {
      int32_t four;
      memcpy(&four, x + 4 * (Rows * step + m), 4);
      for (int v = 0; v < 2; v++)
        add_step<Isa, Steps, step>(Isa::load_bytes(weights + 64 * step + apart * v), Isa::broadcast_int(four),
                                   shorts[v][m], sum[v][m]);
    }
  });
}

// Products of `Columns` columns with the two halves of a panel. Steps 0: weights are two planes.
template <class Isa, int Steps, int Rows, int Columns = 32>
inline LOWBIT_INLINE void run_sums(const uint8_t* weights, const uint8_t* x,
                                                   typename Isa::Ints (&sum)[2][Rows]) {
  if constexpr (Steps > 0) return pair_sums<Isa, Steps, Rows, Columns>(weights, 32, x, sum);
  else
    each_index<2>([&](auto v) LOWBIT_INLINE {
      typename Isa::Ints planes[2][Rows];
      // Keeps compilers from loading activations once for both halves and spilling them.
      __asm__("" : "+r"(x));
      pair_sums<Isa, Columns / 4, Rows, Columns>(weights + 32 * v, kPlaneBytes, x, planes);
      each_index<Rows>(
          [&](auto m) LOWBIT_INLINE { sum[v][m] = Isa::join_planes(planes[0][m], planes[1][m]); });
    });
}

// Extent of a block of activations: one run, several runs, more than a chunk, or half a run (pairs).
enum class ShortBlocks { kRun, kRuns, kPart, kPairs };

// `Rows` rows from `row` on by a chunk.
template <class Isa, int Steps, ShortBlocks Blocks, int Rows>
inline void short_block(const ShortGemm& gemm, const ShortChunk& chunk, const ShortWorkspace& work, uint32_t row) {
  using Ints = typename Isa::Ints;
  const PackedLinear& args = gemm.linear;
  const Panel16& w = args.weights;
  constexpr uint32_t kSets = Blocks == ShortBlocks::kPairs ? 2 : 1;
  const size_t stride = args.rows.block_count;
  const uint32_t block_runs =
      Blocks == ShortBlocks::kRun || Blocks == ShortBlocks::kPairs ? 1 : args.rows.block_length / 32;
  const uint32_t step = Blocks == ShortBlocks::kPart ? chunk.last - chunk.first : block_runs;
  const uint32_t first_block = chunk.first / block_runs;
  const size_t place = row * stride + first_block * kSets;
  const BlockNumbers* numbers = args.rows.numbers + place;
  const float* row_offsets = args.rows.offsets + place;
  const uint8_t *x = chunk_inputs(gemm, chunk.first, row), *weights = work.weights;
  const float *scales = work.scales, *offsets = work.offsets;
  float* totals = work.totals + 16 * row;
  typename Isa::Floats total[2][Rows];
  each_sum<Rows>([&](auto v, auto m) LOWBIT_INLINE {
    total[v][m] = first_block == 0 ? Isa::zero_floats() : Isa::load_floats(totals + 16 * m + 8 * v);
  });
  const auto add_block = [&](const Ints(&sum)[2][Rows], uint32_t runs) LOWBIT_INLINE {
    each_sum<Rows>([&](auto v, auto m) LOWBIT_INLINE {
      const Ints all = Isa::add(sum[v][m], Isa::broadcast_int(numbers[m * stride].sum));
      total[v][m] = add_products<Isa>(all, Isa::load_floats(scales + 8 * v), numbers[m * stride].factor, total[v][m]);
    });
    if (w.has_offsets)
      each_sum<Rows>([&](auto v, auto m) LOWBIT_INLINE {
        total[v][m] = add_offsets<Isa>(row_offsets[m * stride], Isa::load_floats(offsets + 8 * v), total[v][m]);
      });
    scales += 16 * runs;
    offsets += 16 * runs;
    numbers++;
    row_offsets++;
  };
  for (uint32_t run = chunk.first; run < chunk.last;) {
    const uint32_t end = run + step;
    if constexpr (Blocks == ShortBlocks::kPairs) {
      for (int half = 0; half < 2; half++, x += 16 * Rows, weights += 256) {
        Ints sum[2][Rows];
        run_sums<Isa, Steps, Rows, 16>(weights, x, sum);
        add_block(sum, 1);
      }
      run = end;
    } else {
      Ints sum[2][Rows];
      run_sums<Isa, Steps, Rows>(weights, x, sum);
      while (x += 32 * Rows, weights += 512, ++run < end) {
        Ints more[2][Rows];
        run_sums<Isa, Steps, Rows>(weights, x, more);
        each_sum<Rows>([&](auto v, auto m) LOWBIT_INLINE { sum[v][m] = Isa::add(sum[v][m], more[v][m]); });
      }
      if constexpr (Blocks == ShortBlocks::kPart) {
        int32_t* part_sums = work.sums + 16 * row;
        each_sum<Rows>([&](auto v, auto m) LOWBIT_INLINE {
          int32_t* part = part_sums + 16 * m + 8 * v;
          if (chunk.first % block_runs > 0) sum[v][m] = Isa::add(sum[v][m], Isa::load_ints(part));
          Isa::store_ints(part, sum[v][m]);
        });
        if (chunk.last % block_runs > 0) return;
      }
      add_block(sum, step);
    }
  }
  if (32 * chunk.last == w.padded_k())
    each_index<2>([&](auto v) LOWBIT_INLINE { store_part<Isa, Rows>(args, chunk.panel, v, row, total[v]); });
  else
    each_sum<Rows>([&](auto v, auto m) LOWBIT_INLINE { Isa::store_floats(totals + 16 * m + 8 * v, total[v][m]); });
}

// All rows by a chunk. Prefetches the memory that is unpacked next.
template <class Isa, int Steps, ShortBlocks Blocks>
inline void short_rows(const ShortGemm& gemm, const ShortChunk& chunk, const ShortWorkspace& work, const uint8_t* next,
                       size_t next_bytes) {
  const uint32_t m = gemm.linear.m;
  const size_t share = round_up(next_bytes / ceil_div(m, kShortRows) + 1, 64);
  even_parts(m, kShortRows, [&](uint32_t row, uint32_t rows) {
    for (const uint8_t* end = next + share; next < end; next += 64) Isa::prefetch_line(next);
    switch (rows) {
      case 1: return short_block<Isa, Steps, Blocks, 1>(gemm, chunk, work, row);
      case 2: return short_block<Isa, Steps, Blocks, 2>(gemm, chunk, work, row);
      case 3: return short_block<Isa, Steps, Blocks, 3>(gemm, chunk, work, row);
      default: return short_block<Isa, Steps, Blocks, 4>(gemm, chunk, work, row);
    }
  });
}

template <class Isa, int Bits, bool Levels>
void short_gemm_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread) {
  const ShortGemm& gemm = step.as<ShortGemm>();
  if (phase == 0) return quantize_tile<Isa>(gemm, tile, weight_offset<Isa, Bits, Levels>());
  const PackedLinear& args = gemm.linear;
  const Panel16& w = args.weights;
  const ShortWorkspace work(gemm.scratch + thread * gemm.thread_bytes, args.m);
  const uint32_t end = std::min(w.panel_count, (tile + 1) * args.panels_per_tile), runs = w.padded_k() / 32;
  const size_t run_bytes = w.correction_offset / runs, chunk_bytes = kChunkRuns * run_bytes;
  constexpr int kSteps = short_steps<Isa, Bits, Levels>();
  for (uint32_t panel = tile * args.panels_per_tile; panel < end; panel++)
    for (uint32_t first = 0; first < runs; first = chunk_end(w, first)) {
      const ShortChunk chunk{panel, first, chunk_end(w, first)};
      unpack_chunk<Isa, Bits, Levels>(w, chunk, work);
      const uint8_t* next = chunk.last < runs ? w.panel(panel) + chunk.last * run_bytes : w.panel(panel + 1);
      if constexpr (kMayPair<Bits, Levels>)
        if (w.parts == 2) {
          short_rows<Isa, std::min(kSteps, 4), ShortBlocks::kPairs>(gemm, chunk, work, next, chunk_bytes);
          continue;
        }
      if (args.rows.block_length == 32)
        short_rows<Isa, kSteps, ShortBlocks::kRun>(gemm, chunk, work, next, chunk_bytes);
      else if (w.group_length <= 32 * kChunkRuns)
        short_rows<Isa, kSteps, ShortBlocks::kRuns>(gemm, chunk, work, next, chunk_bytes);
      else short_rows<Isa, kSteps, ShortBlocks::kPart>(gemm, chunk, work, next, chunk_bytes);
    }
}

// Bytes of `ShortGemm::inputs`.
inline size_t short_inputs_bytes(const Panel16& w, uint32_t m) {
  return round_up(static_cast<size_t>(m) * w.padded_k(), 64);
}

template <Granularity Activations>
size_t short_gemm_scratch(const Call& call) {
  const auto given = arguments_of<PackedLinearArguments>(call);
  const uint32_t m = given.m;
  return packed_linear_scratch<Activations>(call) + short_inputs_bytes(read_panel16(given.weights, given.n), m) +
         call.threads * ShortWorkspace::bytes(m);
}

template <class Code, Granularity Activations>
void short_gemm_prepare(Step& step, const Call& call) {
  const auto given = arguments_of<PackedLinearArguments>(call);
  ShortGemm& gemm = step.init<ShortGemm>();
  bind_packed_linear(gemm.linear, call, Activations);
  gemm.inputs = static_cast<uint8_t*>(given.scratch) + packed_linear_scratch<Activations>(call);
  gemm.scratch = gemm.inputs + short_inputs_bytes(gemm.linear.weights, gemm.linear.m);
  gemm.thread_bytes = ShortWorkspace::bytes(gemm.linear.m);
  split_packed_linear(step, gemm.linear, call.threads, 1, false);
  const Panel16& w = gemm.linear.weights;
  step.run = has_narrow_levels(w) ? run_for_levels<typename Code::Narrow>(w.bits) : run_for_bits<Code>(w);
}

}  // namespace
}  // namespace lowbit
