// Linear layers over panel16 weights with int8 activations, written once for all instruction sets. An `Isa` supplies
// vectors and a few operations; a vector has 16, 8 or 4 rows, so that the 16 rows of a panel are 1, 2 or 4 parts.
//
// For stored unsigned weights u and quantized activations q, with a scale and a zero point for each row of activations:
//
//   y = a_scale * (sum over groups: scale * (sum u * q - (offset + zero) * sum q) - a_zero * correction) + bias
//
// and with a scale for each block of activations:
//
//   y = sum over blocks: (scale * a_scale) * (sum u * q - (offset + zero) * sum q) + bias
//
// offset is what makes weights unsigned, correction the sum of a row's weights. Integer sums are exact. With sums of 16
// bits, -(zero * scale) * sum q is added separately, and so is (offset * scale + minimum) * sum q where there are
// minima.
#pragma once

#include "arguments.h"
#include "panel16_parts.h"
#include "panel16_rows.h"

namespace lowbit {
// Anonymous: each file needs its own copy. The linker would keep one for all, compiled for one file's instructions.
namespace {

template <Granularity Activations>
size_t packed_linear_scratch(const Call& call) {
  const auto given = arguments_of<PackedLinearArguments>(call);
  return quantized_bytes(given.m, read_panel16(given.weights, given.n), Activations);
}

// Multiplies rows row .. row + Rows - 1 of activations by panels first .. first + Panels - 1, of which those past
// `last` repeat it. `Pair`: a stored group is two groups of 16.
template <class Isa, int Bits, bool Levels, bool Pair, int Panels, int Rows>
inline void panel_block(const PackedLinear& args, uint32_t first, uint32_t last, uint32_t row) {
  using Bytes = typename Isa::Bytes;
  using Ints = typename Isa::Ints;
  using Floats = typename Isa::Floats;
  constexpr int kParts = 16 / Isa::kRows, kSets = Pair ? 2 : 1;
  constexpr int kVectors = Fields<Bits>::kVectors, kFields = Fields<Bits>::kFields;
  const Panel16& w = args.weights;
  const uint32_t padded_k = w.padded_k();
  const QuantizedRows& rows = args.rows;
  const int8_t* x[Rows];
  // Current block of each row.
  size_t block[Rows];
  for (int m = 0; m < Rows; m++) {
    x[m] = rows.values + static_cast<size_t>(row + m) * padded_k;
    block[m] = static_cast<size_t>(row + m) * rows.block_count;
  }
  const uint32_t block_length = std::max(32u, rows.block_length);
  const auto levels = levels_of<Isa, Bits>(w);
  const uint8_t* group[Panels];
  for (int p = 0; p < Panels; p++) group[p] = w.panel(std::min(first + p, last));
  Floats total[Panels][kParts][Rows];
  for (int p = 0; p < Panels; p++)
    for (int part = 0; part < kParts; part++)
      for (int m = 0; m < Rows; m++) total[p][part][m] = Isa::zero_floats();

  // Past the end of a panel, prefetching goes on with the panel that is read after it.
  const uint32_t next = first + Panels <= last ? Panels : Panels + args.next_tile_panels - args.panels_per_tile;
  const size_t jump = (next - 1) * w.panel_bytes;
  const uint8_t* const end_of_first = group[0] + w.panel_bytes;

  for (uint32_t g = 0; g < w.groups; g++) {
    // Blocks of the group; each spans kSets of the blocks that `block` counts.
    for (uint32_t i = 0; i < kParts * rows.blocks; i++) {
      const int part = i % kParts;
      const uint32_t set_block = kSets * g * rows.blocks + i / kParts, start = i / kParts * block_length;
      Ints sum[kSets][Panels][Rows];
      for (int set = 0; set < kSets; set++)
        for (int p = 0; p < Panels; p++)
          for (int m = 0; m < Rows; m++)
            sum[set][p][m] = start_of<Isa, Bits, Levels>({w, rows, group[p], part, set}, block[m] + set_block + set);
      uint32_t at = w.vectors_offset + 2 * Bits * start;
      for (uint32_t c = g * w.group_length + start, end = c + block_length; c < end; c += 32, at += 64 * Bits) {
        if (part == 0) {
          const size_t from = at + (group[0] + at + Isa::kAhead >= end_of_first ? jump : 0);
          for (int p = 0; p < Panels; p++) Isa::template prefetch<Bits>(group[p] + from);
        }
        each_index<8 / kFields>([&](auto i) LOWBIT_INLINE {
          for (int p = 0; p < Panels; p++) {
            Bytes chunk[kVectors];
            for (int v = 0; v < kVectors; v++)
              chunk[v] = Isa::load_bytes(group[p] + at + 64 * (i * kVectors + v) + 4 * Isa::kRows * part);
            each_index<kFields>([&](auto f) LOWBIT_INLINE {
              Bytes u = unpack_field<Isa, Bits, f>(chunk);
              if constexpr (Levels) u = Isa::lookup(levels, u);
              else u = Isa::template weight<Bits>(u);
              for (int m = 0; m < Rows; m++) {
                int32_t four;
                memcpy(&four, x[m] + c + 4 * (i * kFields + f), 4);
                Ints& each = sum[kSets * (i * kFields + f) / 8][p][m];
                each = Isa::template dot<is_wide<Isa, Bits, Levels>()>(each, u, four);
              }
            });
          }
        });
      }
      for (int p = 0; p < Panels; p++)
        for (int set = 0; set < kSets; set++) {
          const GroupPlace<Isa> place{group[p], g, part, set};
          const Floats scale = group_scales < Isa, Pair && kMayE4m3<Bits, Levels> > (w, place);
          Floats* totals = total[p][part];
          for (int m = 0; m < Rows; m++)
            totals[m] =
                add_products<Isa>(sum[set][p][m], scale, rows.numbers[block[m] + set_block + set].factor, totals[m]);
          if (!adds_offsets<Isa>(w)) continue;
          const Floats offset = offsets_of<Isa>(w, place, scale, Bits);
          for (int m = 0; m < Rows; m++)
            totals[m] = add_offsets<Isa>(rows.offsets[block[m] + set_block + set], offset, totals[m]);
        }
    }
    for (int p = 0; p < Panels; p++) group[p] += w.group_bytes;
  }

  for (int p = 0; p < Panels; p++)
    for (int part = 0; part < kParts; part++)
      store_part<Isa, Rows>(args, std::min(first + p, last), part, row, total[p][part]);
}

// How many panels are read side by side: as streams from memory, or for independent sums.
template <class Isa, int Rows>
constexpr int panels_at_once() {
  if (Rows == 1) return Isa::kPanels;
  return Isa::kRows < 16 ? 1 : Isa::kNeighbours && Rows == 4 ? 2 : 4;
}

template <class Isa, int Bits, bool Levels, int Rows>
inline void panel_rows(const PackedLinear& args, uint32_t first, uint32_t last, uint32_t row) {
  constexpr int kStep = panels_at_once<Isa, Rows>();
  // Where streams are neighbouring panels, code for several rows would be much longer and no faster.
  if constexpr (Isa::kStreams && (Rows == 1 || !Isa::kNeighbours)) {
    row_streams<Isa, Bits, Levels, kStep, Rows>(args, first, last, row);
  } else {
    if constexpr (kMayPair<Bits, Levels>)
      if (args.weights.parts == 2) {
        for (uint32_t p = first; p < last; p += kStep)
          panel_block<Isa, Bits, Levels, true, kStep, Rows>(args, p, last - 1, row);
        return;
      }
    for (uint32_t p = first; p < last; p += kStep)
      panel_block<Isa, Bits, Levels, false, kStep, Rows>(args, p, last - 1, row);
  }
}

// Splits `count` into parts as even as possible, none larger than `largest`, and calls part(start, size) for each.
template <class Part>
inline void even_parts(uint32_t count, uint32_t largest, Part part) {
  const uint32_t parts = ceil_div(count, largest);
  for (uint32_t i = 0, start = 0; i < parts; i++) {
    const uint32_t end = static_cast<uint32_t>(static_cast<uint64_t>(count) * (i + 1) / parts);
    part(start, end - start);
    start = end;
  }
}

// Multiplies `rows` rows, at most kSharedRows, by a range of panels, two at a time, or one where vectors are halves of
// panels.
template <class Isa, int Bits, bool Levels, RunBlocks Blocks>
inline void shared_panels(const PackedLinear& args, uint32_t first, uint32_t last, uint32_t row, uint32_t rows) {
  in_streams<Isa, kHalves<Isa> ? 1 : 2>(first, last, [&](uint32_t panel, uint32_t stride) {
    const uint32_t step = kHalves<Isa> || stride > 1 ? 1 : 2;
    uint32_t next = panel + step;
    if ((kHalves<Isa> || stride == 1) && next >= last) next += args.next_tile_panels - args.panels_per_tile;
    const auto block = [&](auto count) {
      shared_block<Isa, Bits, Levels, Blocks, count>(args, panel, stride, last - 1, row, rows, next);
    };
    constexpr uint32_t kMost = pass_rows<Isa, Bits, Levels>();
    if constexpr (kHalves<Isa>) {
      if (rows == 2) return block(std::integral_constant<int, 2>{});
      if constexpr (kMost == 4) {
        if (rows == 3) return block(std::integral_constant<int, 3>{});
        if (rows == 4) return block(std::integral_constant<int, 4>{});
      }
    }
    block(std::integral_constant<int, 0>{});
  });
}

// How many rows of activations read the weights once.
template <class Isa>
constexpr uint32_t kRowsAtOnce = std::max(kRegisterRows<Isa>, Isa::kRows == 4 ? 0 : kSharedRows);

// Multiplies all rows by a range of panels.
template <class Isa, int Bits, bool Levels>
inline void panel_range(const PackedLinear& args, uint32_t first, uint32_t last) {
  constexpr int kMost = kRegisterRows<Isa>;
  even_parts(args.m, kRowsAtOnce<Isa>, [&](uint32_t row, uint32_t rows) {
    if constexpr (kRowsAtOnce<Isa> > kMost)
      if (rows > kMost) {
        if constexpr (kMayPair<Bits, Levels>)
          if (args.weights.parts == 2)
            return shared_panels<Isa, Bits, Levels, RunBlocks::kPair>(args, first, last, row, rows);
        // Vectors of 64 bytes have time for the tests that this saves.
        if constexpr (kHalves<Isa>)
          if (args.rows.block_length == 32)
            return shared_panels<Isa, Bits, Levels, RunBlocks::kRun>(args, first, last, row, rows);
        return shared_panels<Isa, Bits, Levels, RunBlocks::kRuns>(args, first, last, row, rows);
      }
    each_index<kMost>([&](auto i) LOWBIT_INLINE {
      if (rows == i + 1) panel_rows<Isa, Bits, Levels, i + 1>(args, first, last, row);
    });
  });
}

// Quantizes rows first .. last - 1, and makes the sums of their blocks for weights that are stored `offset` higher.
template <class Isa>
inline void quantize_range(const PackedLinear& args, uint32_t first, uint32_t last, int32_t offset) {
  const QuantizedRows& rows = args.rows;
  if (rows.in_blocks) Isa::quantize_blocks(args.x, args.weights, rows, first, last);
  else Isa::quantize_rows(args.x, args.weights, rows, first, last);
  if (args.weights.has_zeros && !Isa::kShortSums) return;
  for (size_t i = size_t{first} * rows.block_count; i < size_t{last} * rows.block_count; i++) {
    const int32_t sum = rows.numbers[i].sum;
    if (args.weights.has_offsets) rows.offsets[i] = static_cast<float>(-sum) * rows.numbers[i].factor;
    if (args.weights.odd_zero != 0) rows.odd_sums[i] = -(offset + args.weights.odd_zero) * sum;
    rows.numbers[i].sum = -offset * sum;
  }
}

template <class Isa>
inline void quantize_tile(const PackedLinear& args, uint32_t tile, int32_t offset) {
  const uint32_t first = tile * args.rows_per_tile;
  quantize_range<Isa>(args, first, std::min(args.m, first + args.rows_per_tile), offset);
}

template <class Isa, int Bits, bool Levels>
void packed_linear_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t) {
  const PackedLinear& args = step.as<PackedLinear>();
  if (phase == 0) return quantize_tile<Isa>(args, tile, weight_offset<Isa, Bits, Levels>());
  const uint32_t first = tile * args.panels_per_tile;
  panel_range<Isa, Bits, Levels>(args, first, std::min(args.weights.panel_count, first + args.panels_per_tile));
}

template <class Isa>
struct LinearCode {
  template <int Bits, bool Levels>
  static constexpr auto run() {
    return packed_linear_run<Isa, Bits, Levels>;
  }
};

using RunFunction = void (*)(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread);

// Code::run for a codebook of `bits` bits.
template <class Code>
RunFunction run_for_levels(uint32_t bits) {
  switch (bits) {
    case 1: return Code::template run<1, true>();
    case 2: return Code::template run<2, true>();
    case 3: return Code::template run<3, true>();
    default: return Code::template run<4, true>();
  }
}

// Code::run for the bits of the weights, with or without a codebook.
template <class Code>
RunFunction run_for_bits(const Panel16& w) {
  if (w.has_levels) return run_for_levels<Code>(w.bits);
  switch (w.bits) {
    case 1: return Code::template run<1, false>();
    case 2: return Code::template run<2, false>();
    case 3: return Code::template run<3, false>();
    case 4: return Code::template run<4, false>();
    case 5: return Code::template run<5, false>();
    case 6: return Code::template run<6, false>();
    case 7: return Code::template run<7, false>();
    default: return Code::template run<8, false>();
  }
}

// Chooses the code for these weights. With sums of 16 bits, codebooks whose levels have 7 bits have code of their own,
// and so have weights of 8 bits with activations in blocks, which are -127 .. 127.
template <class Isa>
RunFunction linear_code(const Panel16& w, Granularity activations) {
  if constexpr (Isa::kShortSums) {
    if (has_narrow_levels(w)) return run_for_levels<LinearCode<typename Isa::Narrow>>(w.bits);
    using Signed = LinearCode<typename Isa::Signed>;
    if (activations == Granularity::kBlock && w.has_levels) return run_for_levels<Signed>(w.bits);
    if (activations == Granularity::kBlock && w.bits == 8) return Signed::template run<8, false>();
  }
  return run_for_bits<LinearCode<Isa>>(w);
}

// Phase 0 quantizes rows of activations, phase 1 multiplies panels: in about eight tiles a thread of at most 128 KiB of
// weights each, or in four where a tile is read as streams, which should be long.
static inline void split_packed_linear(Step& step, PackedLinear& args, uint32_t threads, uint32_t panel_step,
                                       bool streams) {
  const Panel16& w = args.weights;
  args.rows_per_tile = std::max(1u, ceil_div(args.m, 4 * threads));
  const uint32_t by_size = std::max<size_t>(1, (128u << 10) / w.panel_bytes);
  const uint32_t by_share = w.panel_count / (8 * threads);
  const uint32_t panels = streams ? w.panel_count / (4 * threads) : std::min(by_size, by_share);
  args.panels_per_tile = static_cast<uint32_t>(round_up(std::max(1u, panels), panel_step));
  args.next_tile_panels = threads * args.panels_per_tile;
  step.phases = 2;
  step.tiles[0] = ceil_div(args.m, args.rows_per_tile);
  step.tiles[1] = ceil_div(w.panel_count, args.panels_per_tile);
}

static inline void bind_packed_linear(PackedLinear& args, const Call& call, Granularity activations) {
  const auto given = arguments_of<PackedLinearArguments>(call);
  args.m = given.m;
  args.x = given.x;
  args.weights = read_panel16(given.weights, given.n);
  args.y = given.y;
  args.rows = quantized_rows(static_cast<void*>(given.scratch), args.m, args.weights, activations);
}

template <class Isa, Granularity Activations>
void packed_linear_prepare(Step& step, const Call& call) {
  PackedLinear& args = step.init<PackedLinear>();
  bind_packed_linear(args, call, Activations);
  split_packed_linear(step, args, call.threads, Isa::kPanels, Isa::kStreams);
  step.run = linear_code<Isa>(args.weights, Activations);
}

// Scale and zero point with which a row of activations becomes int8, as in src/kernels/families/linear/activations.ts.
struct ActivationScale {
  float scale, inverse;
  int32_t zero;

  // Rounds magnitudes under 2^22 half to even, by adding and subtracting 1.5 * 2^23.
  static float round(float value) { return (value + 12582912.0f) - 12582912.0f; }
  int8_t integer(float value) const {
    return static_cast<int8_t>(std::min(127.0f, std::max(-128.0f, round(value * inverse) + static_cast<float>(zero))));
  }
};

// The minimum and the maximum of a row and 0, by the bits of its floats: as unsigned integers, negative floats exceed
// all others, and as signed ones positive floats do. NaNs are beyond infinity, so that a NaN is found, too.
constexpr uint32_t kLowestStart = 0x80000000u;
constexpr int32_t kHighestStart = 0;

static inline float float_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// Scale and zero point from these bits. A row without a finite range (NaN, infinity, more than the largest float) gets
// NaN as scale.
static inline ActivationScale activation_scale(uint32_t lowest, int32_t highest) {
  const float low = float_of_bits(lowest), range = float_of_bits(static_cast<uint32_t>(highest)) - low;
  const float scale = std::max(range / 255.0f + 0.0f * range, 0x1p-126f);
  const float zero = std::min(127.0f, std::max(-128.0f, -128.0f - ActivationScale::round(low / scale)));
  return {scale, 1.0f / scale, static_cast<int32_t>(zero)};
}

// Scale from the bits of a block's largest magnitude. A block with NaN or infinity gets NaN.
static inline ActivationScale block_scale(uint32_t magnitude) {
  const float largest = float_of_bits(magnitude);
  const float scale = std::max(largest / 127.0f + 0.0f * largest, 0x1p-126f);
  return {scale, 1.0f / scale, 0};
}

// Calls block(x, count, at, index) for each block of a row: its values, their number without padding past the group's
// end, the target, and the block's number in the row.
template <class Block>
inline LOWBIT_INLINE void each_block(const float* x, const Panel16& w, const QuantizedRows& rows,
                                                     uint32_t row, Block&& block) {
  int8_t* at = rows.values + row * rows.stride();
  size_t index = static_cast<size_t>(row) * rows.block_count;
  const uint32_t length = rows.block_length;
  for (uint32_t part = 0; part < w.part_count(); part++) {
    const uint32_t columns = w.part_columns(part);
    for (uint32_t c = 0; c < w.part_length(); c += length, at += length, index++) {
      const uint32_t count = c < columns ? std::min(length, columns - c) : 0;
      block(x, count, at, index);
      x += count;
    }
  }
}

// Dynamic quantization of activations, block by block, with an instruction set's vectors: `scale_of(x, k)` gives the
// scale of a row, `largest_bits(x, count)` the bits of the largest magnitude. `integers(scale, x, count, at, length)`
// writes `count` integers and zeros up to `length`, and returns the sum.
template <class Vectors>
struct BlockQuantizer {
  static void quantize_rows(const float* x, const Panel16& w, const QuantizedRows& rows, uint32_t first,
                            uint32_t last) {
    for (uint32_t row = first; row < last; row++) {
      const float* in = x + static_cast<size_t>(row) * w.k;
      const ActivationScale scale = Vectors::scale_of(in, w.k);
      rows.scales[row] = scale.scale;
      rows.zeros[row] = scale.zero;
      each_block(in, w, rows, row, [&](const float* values, uint32_t count, int8_t* at, size_t index) {
        rows.numbers[index] = {Vectors::integers(scale, values, count, at, rows.block_length), 1};
      });
    }
  }

  static void quantize_blocks(const float* x, const Panel16& w, const QuantizedRows& rows, uint32_t first,
                              uint32_t last) {
    for (uint32_t row = first; row < last; row++)
      each_block(x + static_cast<size_t>(row) * w.k, w, rows, row,
                 [&](const float* values, uint32_t count, int8_t* at, size_t index) {
                   const ActivationScale scale = block_scale(Vectors::largest_bits(values, count));
                   rows.numbers[index] = {Vectors::integers(scale, values, count, at, rows.block_length), scale.scale};
                 });
  }
};

struct ScalarVectors {
  static ActivationScale scale_of(const float* x, uint32_t k) {
    uint32_t lowest = kLowestStart;
    int32_t highest = kHighestStart;
    for (uint32_t c = 0; c < k; c++) {
      int32_t bits;
      memcpy(&bits, x + c, sizeof bits);
      lowest = std::max(lowest, static_cast<uint32_t>(bits));
      highest = std::max(highest, bits);
    }
    return activation_scale(lowest, highest);
  }

  static uint32_t largest_bits(const float* x, uint32_t count) {
    uint32_t largest = 0;
    for (uint32_t c = 0; c < count; c++) {
      uint32_t bits;
      memcpy(&bits, x + c, sizeof bits);
      largest = std::max(largest, bits & 0x7fffffffu);
    }
    return largest;
  }

  static int32_t integers(const ActivationScale& scale, const float* x, uint32_t count, int8_t* at, uint32_t length) {
    int32_t sum = 0;
    for (uint32_t c = 0; c < count; c++) sum += at[c] = scale.integer(x[c]);
    memset(at + count, 0, length - count);
    return sum;
  }
};

using ScalarQuantizer = BlockQuantizer<ScalarVectors>;

}  // namespace
}  // namespace lowbit
