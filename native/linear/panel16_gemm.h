// panel16 linear layers for many rows: weights are unpacked to bytes once for all rows of activations, then multiplied
// in blocks of a few rows by 16 or 32 columns. For the instruction sets of panel16_linear.h; an `Isa` says in kGemmRows
// how many rows its registers have room for.
#pragma once

#include "panel16_linear.h"

namespace lowbit {
namespace {

struct PackedGemm {
  PackedLinear linear;
  uint8_t* scratch;
};
static_assert(sizeof(PackedGemm) <= kArgsMax);

// Panels whose columns fill two vectors.
template <class Isa>
constexpr uint32_t gemm_panels() { return Isa::kRows == 16 ? 2 : 1; }

// Bytes of one unpacked panel: [k / 4][16 rows][4].
inline size_t unpacked_bytes(const Panel16& w) { return 16 * static_cast<size_t>(w.padded_k()); }

// Columns 32 * first .. 32 * last of a panel. What lies `ahead` bytes behind, and as much as the `Isa` says, is fetched.
template <class Isa, int Bits, bool Levels>
inline void unpack_panel(const Panel16& w, uint32_t panel, uint32_t first, uint32_t last, uint8_t* out,
                         size_t ahead = 0) {
  using Bytes = typename Isa::Bytes;
  constexpr int kVectors = Fields<Bits>::kVectors, kFields = Fields<Bits>::kFields;
  constexpr int kVectorBytes = 4 * Isa::kRows;
  const auto levels = Isa::load_levels(w.levels, 1 << (Bits < 4 ? Bits : 4));
  const uint32_t group_runs = w.group_length / 32;
  const uint8_t* group = w.panel(panel) + static_cast<size_t>(first / group_runs) * w.group_bytes;
  for (uint32_t run = first, start = first % group_runs; run < last; start = 0, group += w.group_bytes) {
    const uint8_t* in = group + w.vectors_offset + static_cast<size_t>(start) * 64 * Bits;
    const uint32_t end = std::min(last, run + group_runs - start);
    for (; run < end; run++) {
      Isa::template prefetch<Bits>(in + ahead);
      unroll<8 / kFields>([&](auto) __attribute__((always_inline)) {
        for (int at = 0; at < 64; at += kVectorBytes) {
          Bytes chunk[kVectors];
          for (int v = 0; v < kVectors; v++) chunk[v] = Isa::load_bytes(in + 64 * v + at);
          unroll<kFields>([&](auto f) __attribute__((always_inline)) {
            Bytes u = unpack_field<Isa, Bits, f>(chunk);
            if constexpr (Levels) u = Isa::lookup(levels, u);
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

// Where the two vectors of columns of a block are: two panels, or two parts of one.
template <class Isa>
struct ColumnPair {
  const uint8_t* unpacked[2];
  const uint8_t* group[2];
  uint32_t panel[2];
  int part[2];
};

// `Rows` rows from `row` on by two vectors of columns. Wide: weights of more than 7 bits.
template <class Isa, bool Wide, int Rows>
inline void gemm_block(const PackedLinear& args, const ColumnPair<Isa>& pair, int32_t offset, uint32_t row) {
  using Floats = typename Isa::Floats;
  const Panel16& w = args.weights;
  const int8_t* x = args.rows.values + static_cast<size_t>(row) * w.padded_k();
  const size_t stride = w.padded_k();
  const int32_t* sums = args.rows.sums + static_cast<size_t>(row) * w.groups;
  const uint8_t* unpacked[2] = {pair.unpacked[0], pair.unpacked[1]};
  Floats total[2][Rows];
  for (int v = 0; v < 2; v++)
    for (int m = 0; m < Rows; m++) total[v][m] = Isa::zero_floats();
  for (uint32_t g = 0; g < w.groups; g++, sums++) {
    const uint8_t* group[2] = {pair.group[0] + static_cast<size_t>(g) * w.group_bytes,
                               pair.group[1] + static_cast<size_t>(g) * w.group_bytes};
    typename Isa::Ints sum[2][Rows];
    if (w.has_zeros) {
      for (int v = 0; v < 2; v++)
        for (int m = 0; m < Rows; m++)
          sum[v][m] = Isa::scaled_zeros(group[v] + w.zeros_offset + pair.part[v] * Isa::kRows, offset,
                                        -sums[static_cast<size_t>(m) * w.groups]);
    } else {
      for (int m = 0; m < Rows; m++)
        sum[0][m] = sum[1][m] = Isa::broadcast_int(sums[static_cast<size_t>(m) * w.groups]);
    }
    // 32 columns at once: compilers move every sum to another register and back in each turn of a loop.
    for (const int8_t* end = x + w.group_length; x < end; x += 32, unpacked[0] += 512, unpacked[1] += 512) {
      unroll<8>([&](auto step) __attribute__((always_inline)) {
        const auto u0 = Isa::load_bytes(unpacked[0] + 64 * step), u1 = Isa::load_bytes(unpacked[1] + 64 * step);
        for (int m = 0; m < Rows; m++) {
          int32_t four;
          memcpy(&four, x + m * stride + 4 * step, 4);
          sum[0][m] = Isa::template dot<Wide>(sum[0][m], u0, four);
          sum[1][m] = Isa::template dot<Wide>(sum[1][m], u1, four);
        }
      });
    }
    for (int v = 0; v < 2; v++) {
      const Floats scale = w.f16_scales ? Isa::load_halves(group[v] + 2 * Isa::kRows * pair.part[v])
                                        : Isa::load_floats(group[v] + 4 * Isa::kRows * pair.part[v]);
      for (int m = 0; m < Rows; m++) total[v][m] = Isa::multiply_add(Isa::to_floats(sum[v][m]), scale, total[v][m]);
    }
  }
  for (int v = 0; v < 2; v++) store_part<Isa, Rows>(args, pair.panel[v], pair.part[v], row, total[v]);
}

template <class Isa, bool Wide>
inline void gemm_rows(const PackedLinear& args, const ColumnPair<Isa>& pair, int32_t offset) {
  constexpr int kMax = Isa::kGemmRows;
  even_parts(args.m, kMax, [&](uint32_t row, uint32_t rows) {
    switch (rows) {
      case 1: return gemm_block<Isa, Wide, 1>(args, pair, offset, row);
      case 2: return gemm_block<Isa, Wide, 2>(args, pair, offset, row);
      case 3: return gemm_block<Isa, Wide, 3>(args, pair, offset, row);
      case 4: return gemm_block<Isa, Wide, 4>(args, pair, offset, row);
      case 5: return gemm_block<Isa, Wide, (kMax < 5 ? 1 : 5)>(args, pair, offset, row);
      case 6: return gemm_block<Isa, Wide, (kMax < 6 ? 1 : 6)>(args, pair, offset, row);
      default: return gemm_block<Isa, Wide, (kMax < 7 ? 1 : 7)>(args, pair, offset, row);
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
  const size_t bytes = unpacked_bytes(w);
  uint8_t* unpacked = gemm.scratch + thread * kStep * bytes;
  const uint32_t first = tile * args.panels_per_tile;
  const uint32_t last = std::min(w.panel_count, first + args.panels_per_tile);
  for (uint32_t p = first; p < last; p += kStep) {
    const uint32_t second = std::min(p + kStep, last) - 1;
    for (uint32_t i = 0; i < kStep && p + i < last; i++) 
      unpack_panel<Isa, Bits, Levels>(w, p + i, 0, w.padded_k() / 32, unpacked + i * bytes);
    const uint8_t* other = kStep == 1 ? unpacked + 4 * Isa::kRows : unpacked + (second - p) * bytes;
    const ColumnPair<Isa> pair = {
        {unpacked, other}, {w.panel(p), w.panel(second)}, {p, second}, {0, kStep == 1 ? 1 : 0}};
    gemm_rows<Isa, (Bits == 8 || Levels)>(args, pair, kOffset);
  }
}

template <class Isa>
size_t packed_gemm_scratch(const Call& call) {
  const size_t unpacked = unpacked_bytes(read_panel16(call.buffers[1]));
  return packed_linear_scratch(call) + call.threads * gemm_panels<Isa>() * unpacked;
}

template <class Isa>
struct GemmCode {
  template <int Bits, bool Levels>
  static constexpr auto run() { return packed_gemm_run<Isa, Bits, Levels>; }
};

template <class Isa>
void packed_gemm_prepare(Step& step, const Call& call) {
  PackedGemm& gemm = step.init<PackedGemm>();
  bind_packed_linear(gemm.linear, call);
  gemm.scratch = static_cast<uint8_t*>(call.buffers[3]) + packed_linear_scratch(call);
  split_packed_linear(step, gemm.linear, call.threads, gemm_panels<Isa>());
  step.run = run_for_bits<GemmCode<Isa>>(gemm.linear.weights);
}

}  // namespace
}  // namespace lowbit
