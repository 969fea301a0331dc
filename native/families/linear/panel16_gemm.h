// GEMM over panel16 weights with int8 activations: a panel is unpacked to bytes once for all rows of activations, then
// multiplied in blocks of `Isa::kGemmRows` rows, whose sums fit registers, by 16 or 32 columns. panel16_linear.h has
// the formula and the instruction sets.
#pragma once

#include "panel16_linear.h"

namespace lowbit {
namespace {

struct PackedGemm {
  PackedLinear linear;
  uint8_t* scratch;
};
static_assert(sizeof(PackedGemm) <= kArgsMax);

// Panels that fill two vectors of columns.
template <class Isa>
constexpr uint32_t gemm_panels() {
  return Isa::kRows == 16 ? 2 : 1;
}

// Bytes of one unpacked panel: [k / 4][16 rows][4].
inline size_t unpacked_bytes(const Panel16& w) { return 16 * static_cast<size_t>(w.padded_k()); }

// What is added to the levels of a stored group's rows: in columns 0 to 15 and in those from 16 on, which are another
// group in pairs of groups of 16.
template <class Isa>
struct GroupShifts {
  static constexpr int kParts = 16 / Isa::kRows;
  typename Isa::Bytes of[2][kParts];

  inline LOWBIT_INLINE void load(const Panel16& w, const uint8_t* group) {
    const int32_t shift = static_cast<uint8_t>(-w.odd_zero) * 0x01010101;
    for (int set = 0; set < 2; set++)
      for (int part = 0; part < kParts; part++)
        of[set][part] = w.odd_zero == 0
                            ? Isa::broadcast_int(0)
                            : Isa::odd_ints(group + 16 * (w.parts == 2 ? set : 0) + Isa::kRows * part, shift, 0);
  }
};

// Unpacks columns 32 * first .. 32 * last - 1 of a panel. Prefetches what is `ahead` bytes further on, as the `Isa`
// does it.
template <class Isa, int Bits, bool Levels>
inline void unpack_panel(const Panel16& w, uint32_t panel, uint32_t first, uint32_t last, uint8_t* out,
                         size_t ahead = 0) {
  using Bytes = typename Isa::Bytes;
  constexpr int kVectors = Fields<Bits>::kVectors, kFields = Fields<Bits>::kFields;
  constexpr int kVectorBytes = 4 * Isa::kRows;
  const auto levels = levels_of<Isa, Bits>(w);
  const uint32_t group_runs = w.group_length / 32;
  const uint8_t* group = w.panel(panel) + static_cast<size_t>(first / group_runs) * w.group_bytes;
  for (uint32_t run = first, start = first % group_runs; run < last; start = 0, group += w.group_bytes) {
    const uint8_t* in = group + w.vectors_offset + static_cast<size_t>(start) * 64 * Bits;
    const uint32_t end = std::min(last, run + group_runs - start);
    GroupShifts<Isa> shifts;
    if constexpr (Levels) shifts.load(w, group);
    for (; run < end; run++) {
      Isa::template prefetch<Bits>(in + ahead);
      each_index<8 / kFields>([&](auto i) LOWBIT_INLINE {
        for (int at = 0; at < 64; at += kVectorBytes) {
          Bytes chunk[kVectors];
          for (int v = 0; v < kVectors; v++) chunk[v] = Isa::load_bytes(in + 64 * v + at);
          each_index<kFields>([&](auto f) LOWBIT_INLINE {
            Bytes u = unpack_field<Isa, Bits, f>(chunk);
            if constexpr (Levels)
              u = Isa::add_bytes(Isa::lookup(levels, u), shifts.of[i * kFields + f >= 4 ? 1 : 0][at / kVectorBytes]);
            else u = Isa::template weight<Bits>(u);
            Isa::store_bytes(out + 64 * f + at, u);
          });
        }
        in += 64 * kVectors;
        out += 64 * kFields;
      });
    }
  }
}

// Bytes of a group's 16 scales as floats.
constexpr size_t kScaleBytes = 64;

// Bytes of a group's scales, 16 floats, and of the minima that may follow, as they are subtracted from each weight. And
// bytes of an unpacked panel with these for all groups.
inline size_t scale_stride(const Panel16& w) { return kScaleBytes * (w.has_minima ? 2 : 1); }
inline size_t gemm_panel_bytes(const Panel16& w) { return unpacked_bytes(w) + scale_stride(w) * w.part_count(); }

// Gathers a panel's scales, which are among its weights, in one stream, which all rows of activations read.
template <class Isa>
inline void unpack_scales(const Panel16& w, uint32_t panel, uint8_t* out) {
  const uint8_t* group = w.panel(panel);
  for (uint32_t g = 0; g < w.groups; g++, group += w.group_bytes)
    for (int set = 0; set < w.parts; set++, out += scale_stride(w))
      for (int part = 0; part < 16 / Isa::kRows; part++) {
        const GroupPlace<Isa> place{group, g, part, set};
        const auto scale = group_scales<Isa>(w, place);
        float* to = reinterpret_cast<float*>(out) + Isa::kRows * part;
        Isa::store_floats(to, scale);
        if (w.has_minima) Isa::store_floats(to + 16, offsets_of<Isa>(w, place, scale, w.bits));
      }
}

// A vector of columns of a block: a panel, or part of one. Zero points are as they are packed.
struct GemmColumns {
  const uint8_t *unpacked, *scales, *zeros;
  uint32_t panel;
  int part;
};

// Adds the products of `Columns` columns to the sums. It is unrolled over the columns: in a loop, compilers move each
// sum to another register and back in every turn.
template <class Isa, int Columns, int Rows>
inline LOWBIT_INLINE void add_bytes(typename Isa::Ints (*sum)[Rows], const uint8_t* const* weights,
                                                    const int8_t* x, size_t stride) {
  each_index<Columns / 4>([&](auto step) LOWBIT_INLINE {
    const auto u0 = Isa::load_bytes(weights[0] + 64 * step), u1 = Isa::load_bytes(weights[1] + 64 * step);
    for (int m = 0; m < Rows; m++) {
      int32_t four;
      memcpy(&four, x + m * stride + 4 * step, 4);
      sum[0][m] = Isa::template dot<true>(sum[0][m], u0, four);
      sum[1][m] = Isa::template dot<true>(sum[1][m], u1, four);
    }
  });
}

// Multiplies `Rows` rows from `row` on by two vectors of columns. `Short`: groups have `Columns` columns: 32, or 16.
template <class Isa, bool Short, int Columns, int Rows>
inline void gemm_block(const PackedGemm& gemm, const GemmColumns* columns, int32_t offset, uint32_t row) {
  using Ints = typename Isa::Ints;
  using Floats = typename Isa::Floats;
  const PackedLinear& args = gemm.linear;
  const Panel16& w = args.weights;
  const QuantizedRows& rows = args.rows;
  const size_t stride = w.padded_k(), block_stride = rows.block_count, group_bytes = w.group_bytes;
  const uint32_t length = Short ? Columns : rows.block_length, blocks = rows.blocks;
  const bool has_zeros = w.has_zeros, has_minima = w.has_minima;
  const size_t next_scales = scale_stride(w);
  const int8_t* x = rows.values + row * stride;
  const BlockNumbers* numbers = rows.numbers + row * block_stride;
  const float* offsets = rows.offsets + row * block_stride;
  const uint8_t* unpacked[2] = {columns[0].unpacked, columns[1].unpacked};
  const uint8_t* scales[2] = {columns[0].scales, columns[1].scales};
  const uint8_t* zeros[2] = {columns[0].zeros, columns[1].zeros};
  Floats total[2][Rows];
  for (int v = 0; v < 2; v++)
    for (int m = 0; m < Rows; m++) total[v][m] = Isa::zero_floats();
  for (uint32_t i = 0, of_group = 0; i < block_stride; i++, numbers++) {
    Ints sum[2][Rows];
    if (has_zeros) {
      for (int v = 0; v < 2; v++)
        for (int m = 0; m < Rows; m++) sum[v][m] = Isa::scaled_zeros(zeros[v], offset, -numbers[m * block_stride].sum);
    } else {
      for (int m = 0; m < Rows; m++) sum[0][m] = sum[1][m] = Isa::broadcast_int(numbers[m * block_stride].sum);
    }
    const int8_t* end = x + length;
    do {
      add_bytes<Isa, Columns>(sum, unpacked, x, stride);
      x += Columns;
      unpacked[0] += 16 * Columns;
      unpacked[1] += 16 * Columns;
    } while (!Short && x < end);
    const bool ends = Short || ++of_group == blocks;
    if (ends) of_group = 0;
    for (int v = 0; v < 2; v++) {
      const Floats scale = Isa::load_floats(scales[v]);
      for (int m = 0; m < Rows; m++)
        total[v][m] = add_products<Isa>(sum[v][m], scale, numbers[m * block_stride].factor, total[v][m]);
      if (has_minima)
        for (int m = 0; m < Rows; m++)
          total[v][m] =
              add_offsets<Isa>(offsets[i + m * block_stride], Isa::load_floats(scales[v] + kScaleBytes), total[v][m]);
      if (!ends) continue;
      scales[v] += next_scales;
      zeros[v] += group_bytes;
    }
  }
  store_part<Isa, Rows>(args, columns[0].panel, columns[0].part, row, total[0]);
  store_part<Isa, Rows>(args, columns[1].panel, columns[1].part, row, total[1]);
}

template <class Isa, int Rows>
inline void block_of_rows(const PackedGemm& gemm, const GemmColumns* columns, int32_t offset, uint32_t row) {
  // With wide vectors, a good part of a short group's time goes into converting its sums to floats.
  constexpr bool kGroupsMatter = Isa::kRows == 16;
  const Panel16& w = gemm.linear.weights;
  if (w.parts == 2) return gemm_block<Isa, true, 16, Rows>(gemm, columns, offset, row);
  if (kGroupsMatter && w.group_length == 32) gemm_block<Isa, kGroupsMatter, 32, Rows>(gemm, columns, offset, row);
  else gemm_block<Isa, false, 32, Rows>(gemm, columns, offset, row);
}

template <class Isa>
inline void gemm_rows(const PackedGemm& gemm, const GemmColumns* columns, int32_t offset) {
  constexpr int kMax = Isa::kGemmRows;
  even_parts(gemm.linear.m, kMax, [&](uint32_t row, uint32_t rows) {
    switch (rows) {
      case 1: return block_of_rows<Isa, 1>(gemm, columns, offset, row);
      case 2: return block_of_rows<Isa, 2>(gemm, columns, offset, row);
      case 3: return block_of_rows<Isa, 3>(gemm, columns, offset, row);
      case 4: return block_of_rows<Isa, 4>(gemm, columns, offset, row);
      case 5: return block_of_rows<Isa, (kMax < 5 ? 1 : 5)>(gemm, columns, offset, row);
      case 6: return block_of_rows<Isa, (kMax < 6 ? 1 : 6)>(gemm, columns, offset, row);
      default: return block_of_rows<Isa, (kMax < 7 ? 1 : 7)>(gemm, columns, offset, row);
    }
  });
}

template <class Isa, int Bits, bool Levels>
void packed_gemm_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread) {
  const PackedGemm& gemm = step.as<PackedGemm>();
  const PackedLinear& args = gemm.linear;
  const Panel16& w = args.weights;
  constexpr int32_t kOffset = weight_offset<Isa, Bits, Levels>();
  if (phase == 0) return quantize_tile<Isa>(args, tile, kOffset);
  constexpr uint32_t kStep = gemm_panels<Isa>();
  constexpr int kParts = 16 / Isa::kRows;
  const size_t bytes = gemm_panel_bytes(w), scales = unpacked_bytes(w);
  uint8_t* unpacked = gemm.scratch + thread * kStep * bytes;
  const uint32_t first = tile * args.panels_per_tile;
  const uint32_t last = std::min(w.panel_count, first + args.panels_per_tile);
  for (uint32_t p = first; p < last; p += kStep) {
    for (uint32_t i = 0; i < kStep && p + i < last; i++) {
      unpack_panel<Isa, Bits, Levels>(w, p + i, 0, w.padded_k() / 32, unpacked + i * bytes);
      unpack_scales<Isa>(w, p + i, unpacked + i * bytes + scales);
    }
    GemmColumns columns[2];
    for (int v = 0; v < 2; v++) {
      const uint32_t panel = std::min(p + v / kParts, last - 1);
      const int part = v % kParts;
      const uint8_t* from = unpacked + (panel - p) * bytes + 4 * Isa::kRows * part;
      columns[v] = {from, from + scales, w.panel(panel) + w.zeros_offset + Isa::kRows * part, panel, part};
    }
    gemm_rows<Isa>(gemm, columns, kOffset);
  }
}

template <class Isa, Granularity Activations>
size_t packed_gemm_scratch(const Call& call) {
  const auto given = arguments_of<PackedLinearArguments>(call);
  const size_t panels = call.threads * gemm_panels<Isa>();
  return packed_linear_scratch<Activations>(call) + panels * gemm_panel_bytes(read_panel16(given.weights, given.n));
}

template <class Isa>
struct GemmCode {
  template <int Bits, bool Levels>
  static constexpr auto run() {
    return packed_gemm_run<Isa, Bits, Levels>;
  }
};

template <class Isa, Granularity Activations>
void packed_gemm_prepare(Step& step, const Call& call) {
  const auto given = arguments_of<PackedLinearArguments>(call);
  PackedGemm& gemm = step.init<PackedGemm>();
  bind_packed_linear(gemm.linear, call, Activations);
  gemm.scratch = static_cast<uint8_t*>(given.scratch) + packed_linear_scratch<Activations>(call);
  split_packed_linear(step, gemm.linear, call.threads, gemm_panels<Isa>(), false);
  step.run = run_for_bits<GemmCode<Isa>>(gemm.linear.weights);
}

}  // namespace
}  // namespace lowbit
