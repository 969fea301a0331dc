// AQLM for 8-bit codes and several rows of x by lookup tables: an entry is a vector of sums, one for each row of a
// batch; the entry of each code is loaded and added to those of its output. Written once for all instruction sets.
//
// Entries are rounded to a step shared by a run of groups, such that the sums of a run fit 16 bits. The roundings of
// inputs and entries make some 4e-4 of a result.
//
// A `Batch` supplies kRows; V, a vector of kRows sums, and add(a, b); kAtOnce, the number of tables that fit the
// first-level cache; Inputs, a run's inputs in steps with their steps[kRows], and set_inputs for one row of them;
// prepared_bytes and prepare for codebooks, and build_table; add_to_totals, which adds sums as floats, with Steps in
// registers; Isa8, eight floats, and Floats, a vector of floats. For rounding: kFinest, the least step of inputs up to
// 1, and kRunMax, the bound of the sum over a run of lengths of groups times lengths of vectors.
#pragma once

#include "families/linear/float_panels.h"
#include "vector_sizes.h"

namespace lowbit {
namespace aqlm {
namespace {

// Most tables of a run with groups of 8 inputs, and most inputs of a run.
constexpr uint32_t kRunTables = 12, kRunInputs = 256;
// Most tiles whose sums stay in the caches, and fewest work items, given enough blocks.
constexpr uint32_t kChunkTiles = 128, kItems = 16;
// Tiles by which codes are prefetched ahead.
constexpr uint32_t kTilesAhead = 2;

struct Batches : Arguments {
  // Rows of x per batch.
  uint32_t rows;
  // Numbers of batches of rows, chunks of tiles and slices of blocks, a work item being one of each; tiles per chunk,
  // and blocks per slice.
  uint32_t batches, chunk_tiles, chunks, slice_blocks, slices;
  // Groups and codebooks of a run: of these, one group or all codebooks.
  uint32_t run_groups, run_books;
  uint32_t own_bytes;
  // Scratch: prepared codebooks, sums [slices][batches][tiles][64 codes][rows], memory of each thread.
  uint8_t* prepared;
  float* sums;
  uint8_t* own;

  size_t sums_count() const { return size_t{slices} * batches * codes.tiles * kTile * rows; }
  float* tile_sums(uint32_t slice, uint32_t batch, uint32_t tile) const {
    return sums + ((size_t{slice} * batches + batch) * codes.tiles + tile) * kTile * rows;
  }
};

// Memory of a thread: sums of a run [tiles][64 codes], tables [kAtOnce][256].
template <class Batch>
struct RunMemory {
  typename Batch::V* sums;
  typename Batch::V* tables;
};

// Quantizes `groups` groups of rows of x, from `x` on, to a run's inputs. Each step is done for all rows before the
// next: the steps of one row depend on each other.
template <class Batch>
void quantize_rows(const Batches& p, const float* x, uint32_t groups, uint32_t rows, typename Batch::Inputs* inputs) {
  using Isa8 = typename Batch::Isa8;
  const uint32_t length = p.codes.in_group, count = groups * length;
  const size_t stride = p.codes.k;
  const auto vectors = prepared_vectors<typename Batch::Value>(p.prepared);
  const float longest = std::min(*vectors.lengths, *vectors.longest * static_cast<float>(p.run_books));
  float largest[Batch::kRows], none[Batch::kRows], lengths[Batch::kRows];
  for (uint32_t row = 0; row < rows; row++) {
    Magnitudes<Isa8> all;
    for (uint32_t i = 0; i < count; i += 8) all.add(Isa8::load(x + row * stride + i));
    largest[row] = all.largest();
    none[row] = all.zero();
  }
  for (uint32_t row = 0; row < rows; row++) {
    const float unit = 1 / largest[row];
    lengths[row] = 0;
    for (uint32_t i = 0; i < count; i += length)
      lengths[row] += std::sqrt(
          longest_square<Isa8>(length, length, unit, [&](size_t j) { return Isa8::load(x + row * stride + i + j); }));
  }
  for (uint32_t row = 0; row < rows; row++) {
    const float step = largest[row] * std::max(Batch::kFinest, lengths[row] * longest / Batch::kRunMax) + none[row];
    Batch::set_inputs(x + row * stride, count, 1 / step, row, inputs);
    inputs->steps[row] = step * *vectors.step;
  }
}

// Adds to a run's sums, or sets them.
template <class Batch, bool Begins>
struct AddToSums {
  using V = typename Batch::V;
  V* sums;

  void operator()(size_t i, V found) const { sums[i] = Begins ? found : Batch::add(sums[i], found); }
};

// Ends a run: adds its sums as floats to those of the slice's earlier runs.
template <class Batch, bool Begins, bool IsFirst>
struct AddToTotals {
  using V = typename Batch::V;
  V* sums;
  typename Batch::Steps steps;
  float* totals;

  void operator()(size_t i, V found) const {
    const V sum = Begins ? found : Batch::add(sums[i], found);
    Batch::template add_to_totals<IsFirst>(sum, steps, totals + i * Batch::kRows);
  }
};

// Looks up rows of codes of several tiles, `stride` apart, in `Tables` tables, and passes each sum to `add`. Prefetches
// the codes of tiles ahead, and those of the next block, `next` bytes further on.
template <class Batch, uint32_t Tables, class Add>
void add_rows(const uint8_t* codes, size_t stride, size_t next, uint32_t tiles, const typename Batch::V* tables,
              const Add& target) {
  // A local copy: compilers must expect that each stored sum changes the referenced one.
  const Add add = target;
  for (uint32_t tile = 0; tile < tiles; tile++, codes += stride) {
    for (uint32_t t = 0; t < Tables; t++) {
      __builtin_prefetch(codes + next + t * kTile, 0, 2);
      __builtin_prefetch(codes + kTilesAhead * stride + t * kTile);
    }
    for (uint32_t lane = 0; lane < kTile; lane += 8) {
      uint64_t eight[Tables];
      for (uint32_t t = 0; t < Tables; t++) memcpy(eight + t, codes + t * kTile + lane, 8);
      each_index<8>([&](auto i) LOWBIT_INLINE {
        typename Batch::V found = tables[eight[0] >> 8 * i & 255];
        for (uint32_t t = 1; t < Tables; t++)
          found = Batch::add(found, tables[t * kEntries + (eight[t] >> 8 * i & 255)]);
        add(size_t{tile} * kTile + lane + i, found);
      });
    }
  }
}

// Tiles of a chunk.
struct Chunk {
  uint32_t tile, tiles;
};

// Sums the runs of `groups` groups of a block from `first` on: several runs if one group has too many codebooks.
template <class Batch>
void sum_runs(const Batches& p, uint32_t block, uint32_t first, uint32_t groups, Chunk chunk,
              const typename Batch::Inputs& inputs, const RunMemory<Batch>& own, float* totals, bool first_run) {
  const size_t stride = size_t{p.codes.block_groups(block)} * p.codes.codebooks * kTile;
  for (uint32_t book = 0; book < p.codes.codebooks; book += p.run_books, first_run = false) {
    const uint32_t books = std::min(p.run_books, p.codes.codebooks - book), rows = groups * books;
    const uint8_t* codes = p.codes.tile(block, chunk.tile) + (first * p.codes.codebooks + book) * kTile;
    for (uint32_t row = 0, count; row < rows; row += count, codes += count * kTile) {
      count = rows - row < Batch::kAtOnce ? 1 : Batch::kAtOnce;
      for (uint32_t t = 0; t < count; t++)
        Batch::build_table(p, book + (row + t) % books, inputs, (row + t) / books, own.tables + t * kEntries);
      auto add = [&](auto target) {
        const auto add_count =
            count == 1 ? add_rows<Batch, 1, decltype(target)> : add_rows<Batch, Batch::kAtOnce, decltype(target)>;
        add_count(codes, stride, stride * p.codes.tiles, chunk.tiles, own.tables, target);
      };
      const bool begins = row == 0;
      const auto steps = Batch::load_steps(inputs.steps);
      if (row + count < rows) {
        if (begins) add(AddToSums<Batch, true>{own.sums});
        else add(AddToSums<Batch, false>{own.sums});
      } else if (first_run) {
        if (begins) add(AddToTotals<Batch, true, true>{own.sums, steps, totals});
        else add(AddToTotals<Batch, false, true>{own.sums, steps, totals});
      } else {
        if (begins) add(AddToTotals<Batch, true, false>{own.sums, steps, totals});
        else add(AddToTotals<Batch, false, false>{own.sums, steps, totals});
      }
    }
  }
}

template <class Batch>
void batch_item(const Batches& p, uint32_t index, const RunMemory<Batch>& own) {
  constexpr uint32_t kRows = Batch::kRows;
  const uint32_t slice = index % p.slices, batch = index / p.slices / p.chunks;
  const uint32_t first_block = slice * p.slice_blocks,
                 last_block = std::min(p.codes.blocks, first_block + p.slice_blocks);
  const uint32_t tile = index / p.slices % p.chunks * p.chunk_tiles;
  const Chunk chunk = {tile, std::min(p.chunk_tiles, p.codes.tiles - tile)};
  const uint32_t rows = std::min(kRows, p.m - batch * kRows);
  typename Batch::Inputs inputs{};
  float* totals = p.tile_sums(slice, batch, tile);
  for (uint32_t block = first_block; block < last_block; block++)
    for (uint32_t first = 0; first < p.codes.block_groups(block); first += p.run_groups) {
      const uint32_t groups = std::min(p.run_groups, p.codes.block_groups(block) - first);
      const float* x = p.x + size_t{batch} * kRows * p.codes.k + (size_t{block} * kBlock + first) * p.codes.in_group;
      quantize_rows<Batch>(p, x, groups, rows, &inputs);
      sum_runs<Batch>(p, block, first, groups, chunk, inputs, own, totals, block == first_block && first == 0);
    }
}

// Adds the slices and stores y of a vector of outputs, from `place` of a tile on, for a batch of rows.
template <class Isa>
void write_outputs(const Batches& p, uint32_t tile, uint32_t place, uint32_t batch) {
  using V = typename Isa::V;
  constexpr uint32_t kLanes = Isa::kLanes;
  const uint32_t output = tile * kTile + place, count = std::min(kLanes, p.codes.n - output);
  float scales[kLanes] = {};
  for (uint32_t i = 0; i < count; i++) scales[i] = float_at(p.scales, p.half_scales, output + i);
  const V scale = Isa::load(scales), bias = p.bias ? Isa::load_some(p.bias + output, count) : Isa::set(0);
  for (uint32_t first = 0; first < p.rows && batch * p.rows + first < p.m; first += kLanes) {
    V v[kLanes];
    for (uint32_t i = 0; i < kLanes; i++) {
      v[i] = Isa::set(0);
      for (uint32_t slice = 0; slice < p.slices; slice++)
        v[i] = v[i] + Isa::load(p.tile_sums(slice, batch, tile) + lane_of(place + i) * p.rows + first);
    }
    transpose<Isa>(v);
    const uint32_t row = batch * p.rows + first;
    for (uint32_t i = 0; i < std::min(kLanes, p.m - row); i++) {
      const V y = v[i] * scale + bias;
      float* to = p.y + size_t{row + i} * p.codes.n + output;
      // Whole vectors apart: masked stores are slow.
      if (count == kLanes) Isa::store(to, y);
      else Isa::store_some(to, y, count);
    }
  }
}

template <class Batch>
void batches_run(const Step& step, uint32_t phase, uint32_t index, uint32_t thread) {
  const Batches& p = step.as<Batches>();
  if (phase == 0) return Batch::prepare(p);
  if (phase == 1) {
    auto* own = reinterpret_cast<typename Batch::V*>(p.own + size_t{thread} * p.own_bytes);
    return batch_item<Batch>(p, index, {own, own + size_t{p.chunk_tiles} * kTile});
  }
  using Isa = typename Batch::Floats;
  for (uint32_t batch = 0; batch < p.batches; batch++)
    for (uint32_t place = 0; place < kTile && index * kTile + place < p.codes.n; place += Isa::kLanes)
      write_outputs<Isa>(p, index, place, batch);
}

// Splits a product, by its sizes only, and places its scratch at `memory`.
template <class Few, class Many>
Batches split_batches(const Call& call, void* memory) {
  Batches p{read_arguments(call)};
  p.rows = p.m <= Few::kRows ? Few::kRows : Many::kRows;
  p.batches = ceil_div(p.m, p.rows);
  p.chunks = ceil_div(p.codes.tiles, kChunkTiles);
  p.chunk_tiles = ceil_div(p.codes.tiles, p.chunks);
  // Entries grow with the square root of a group's inputs, their bounds with the inputs.
  const uint32_t tables = static_cast<uint32_t>(kRunTables * std::sqrt(8.0f / static_cast<float>(p.codes.in_group)));
  p.run_books = std::min(p.codes.codebooks, tables);
  // Runs no longer than the number of runs in a block requires.
  p.run_groups = ceil_div(kBlock, ceil_div(kBlock, std::max(1u, tables / p.codes.codebooks)));
  p.slice_blocks = ceil_div(p.codes.blocks, std::min(kSlices, ceil_div(kItems, p.batches * p.chunks)));
  p.slices = ceil_div(p.codes.blocks, p.slice_blocks);
  p.own_bytes = 2 * p.rows * (p.chunk_tiles * kTile + std::max(Few::kAtOnce, Many::kAtOnce) * kEntries);
  p.prepared = static_cast<uint8_t*>(memory);
  p.sums = reinterpret_cast<float*>(p.prepared + round_up(Many::prepared_bytes(p.codes), kAlignment));
  p.own = reinterpret_cast<uint8_t*>(p.sums + p.sums_count());
  return p;
}

template <class Few, class Many>
size_t batches_scratch(const Call& call) {
  const Batches p = split_batches<Few, Many>(call, nullptr);
  return reinterpret_cast<uintptr_t>(p.own) + size_t{call.threads} * p.own_bytes;
}

// Batches of one size for few rows, of another for many.
template <class Few, class Many>
void batches_prepare(Step& step, const Call& call) {
  const auto given = arguments_of<AqlmArguments>(call);
  Batches& p = step.init<Batches>();
  p = split_batches<Few, Many>(call, static_cast<void*>(given.scratch));
  step.phases = 3;
  step.tiles[0] = 1;
  step.tiles[1] = p.batches * p.chunks * p.slices;
  step.tiles[2] = p.codes.tiles;
  step.run = p.rows == Few::kRows ? batches_run<Few> : batches_run<Many>;
}

}  // namespace
}  // namespace aqlm
}  // namespace lowbit
