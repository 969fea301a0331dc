// GEMV over panel32 weights for 2 to 15 rows of activations, and for one row whose weights chains do not serve:
// codebooks, minima and integer scales. Packed weights are loaded and masked once for up to four rows.
//
// A tile is a few quads of a panel by up to four rows: as many as have their sums in registers. All tiles of a panel
// multiply some 1024 columns of activations, which stay in the first-level cache, before the next 1024. `Few` supplies
// an instruction set's products.
#pragma once

#include "panel32_gemm.h"
#include "panel32_links.h"

namespace lowbit {
namespace {

// The bytes that products take: those of a chain's links, or levels of a codebook by fields.
template <int Bits, bool Levels>
struct Packed {
  static constexpr int kFields = Fields<Bits>::kFields, kVectors = Fields<Bits>::kVectors, kUnits = kQuads / kFields;
  static constexpr int kLinks = Levels ? kFields : kChain<Bits, false>.count;
  ChainConstants constants;
  uint8x16_t levels;

  explicit Packed(const Panels& w) : constants(chain_constants<Bits, false>()), levels(load_levels(w)) {}

  // Flips the highest bits back before fields of codebooks are looked up. Links count them in.
  LOWBIT_INLINE void ready(uint8x16_t* bytes) const {
    if constexpr (Levels)
      each_index<kVectors>([&](auto v) LOWBIT_INLINE { bytes[v] = veorq_u8(bytes[v], vdupq_n_u8(0x80)); });
  }

  template <int Link>
  LOWBIT_INLINE int8x16_t part(const uint8x16_t* bytes) const {
    if constexpr (Levels) return vreinterpretq_s8_u8(vqtbl1q_u8(levels, unsigned_field<Bits, Link>(bytes)));
    else return link_part<Bits, false, Link>(constants, bytes);
  }

  // 2^shift_of(Field) * sum s * q of a field over a chunk.
  template <int Field, bool Long>
  LOWBIT_INLINE float32x4_t sum(const int32x4_t* sums) const {
    if constexpr (!Levels) return field_sum<Bits, false, Long, Field>(constants, sums);
    else if constexpr (Long) return vcvtq_f32_s32(sums[Field]);
    else return vsubq_f32(vreinterpretq_f32_s32(sums[Field]), constants.magic);
  }

  static constexpr int shift_of(int field) {
    return Levels ? 0 : first_link<Bits, false>(field).shift - first_link<Bits, false>(field).at;
  }

  static LOWBIT_INLINE void load_starts(const int32_t* starts, int32x4_t* sums) {
    constexpr int kPairs = Levels ? 0 : kLinks / 2;
    each_index<kPairs>([&](auto i) LOWBIT_INLINE { load_fresh<8 * i>(starts, sums[2 * i], sums[2 * i + 1]); });
    each_index<kLinks - 2 * kPairs>(
        [&](auto i) LOWBIT_INLINE { sums[i] = vreinterpretq_s32_s8(load_alone<0>(starts)); });
  }
};

// Most rows of a tile: the sums of more would not fit registers.
template <int Bits>
constexpr int kFewRows = Bits % 2 == 1 ? 2 : 4;

// Units of a tile: the fewest with 8 independent sums, so that products do not wait for each other.
template <int Links, int Rows>
constexpr int kFewUnits = Links * Rows >= 8   ? 1
                          : Links * Rows >= 4 ? 2
                          : Links * Rows >= 2 ? 4
                                              : 8;

// Columns that all tiles of a panel multiply before the next ones.
constexpr uint32_t kFewColumns = 1024;

struct FewPanel : PanelNumbers {
  // Totals of tiles between columns, each tile's in the order of its sums.
  float* totals;
};

// Rows from `row` on by units from `unit` on of panel `index`, chunks first .. last - 1.
struct FewPlace {
  uint32_t index, row, unit, first, last;
};

// Whether scales stay as load_scale_pair gives them, times 2^-112, until a tile's end. Not with blocks of activations,
// whose factors would make products too small.
inline bool has_raw_halves(const Linear32& args) {
  return args.weights.f16_scales && !args.weights.any_offsets() && !args.rows.in_blocks;
}

// What the arithmetic of a call depends on besides scales.
struct FewMode {
  bool has_long, has_zeros, has_minima, in_blocks;

  explicit FewMode(const Linear32& args)
      : has_long(args.has_long_chunks()),
        has_zeros(args.weights.any_zeros()),
        has_minima(args.weights.has_minima),
        in_blocks(args.rows.in_blocks) {}
};

// Where a chunk's numbers lie: scales and zeros of weights, factors and sums of activations.
struct FewNumbers {
  const float *scales, *zeros, *factors, *sums_of_x;

  FewNumbers(const Linear32& args, const FewPanel& panel, const FewPlace& place, size_t scale) {
    const size_t first = size_t{place.first} * args.rows.row_stride + place.row;
    scales = panel.scales + scale;
    zeros = panel.zeros + scale;
    factors = args.rows.factors + first;
    sums_of_x = args.rows.sums + first;
  }

  LOWBIT_INLINE void next(size_t row_stride, size_t scale_stride) {
    scales += scale_stride;
    zeros += scale_stride;
    factors += row_stride;
    sums_of_x += row_stride;
  }
};

template <class Few, int Bits, bool Levels, int Rows>
struct FewTile {
  using Weights = Packed<Bits, Levels>;
  static constexpr int kUnits = kFewUnits<Weights::kLinks, Rows>, kTileQuads = kUnits * Weights::kFields;
  using Tile = typename Few::Isa::template Tile<Rows, kTileQuads>;
  // Vectors of activations for the same columns, and how many sums a link has.
  static constexpr int kBlocks = Rows / Few::kRowsOfSum, kSets = kUnits * Few::kHalves * kBlocks;
  static constexpr int kBits = Bits, kRows = Rows, kRowStep = Few::template kRowStep<Bits>;
  static constexpr int kSums = Tile::kSums;
  static_assert(Weights::kUnits % kUnits == 0);

  static LOWBIT_INLINE void load_starts(const int32_t* starts, size_t stride, int32x4_t* sums) {
    each_index<kUnits * Few::kHalves>([&](auto i) LOWBIT_INLINE {
      each_index<kBlocks>([&](auto block) LOWBIT_INLINE {
        Weights::load_starts(starts + block * stride, sums + (i * kBlocks + block) * Weights::kLinks);
      });
    });
  }

  template <bool Long>
  static LOWBIT_INLINE void to_floats(const Weights& weights, const int32x4_t* sums,
                                                      float32x4_t* values) {
    each_index<kUnits * Few::kHalves>([&](auto i) LOWBIT_INLINE {
      each_index<kBlocks>([&](auto block) LOWBIT_INLINE {
        each_index<Weights::kFields>([&](auto field) LOWBIT_INLINE {
          constexpr int kQuad = i / Few::kHalves * Weights::kFields + field;
          values[(block * kTileQuads + kQuad) * Few::kHalves + i % Few::kHalves] =
              weights.template sum<field, Long>(sums + (i * kBlocks + block) * Weights::kLinks);
        });
      });
    });
  }

  // totals += scale * factor * (values - zero * sum of activations) for a chunk, or with minima: scale * factor *
  // values - offset * sum of activations.
  static LOWBIT_INLINE void add(const FewMode& mode, const FewNumbers& at, float32x4_t* values,
                                                float32x4_t* totals) {
    if (mode.has_zeros)
      each_index<kSums>([&](auto i) LOWBIT_INLINE {
        values[i] = Tile::template subtract_zeros<i>(values[i], at.zeros, at.sums_of_x);
      });
    if (mode.in_blocks)
      each_index<kSums>([&](auto i) LOWBIT_INLINE {
        values[i] = Tile::template multiply_rows<i>(values[i], at.factors);
      });
    each_index<kSums>([&](auto i) LOWBIT_INLINE {
      totals[i] = vfmaq_f32(totals[i], values[i], vld1q_f32(at.scales + 4 * Tile::scale_of(i)));
    });
    if (mode.has_minima)
      each_index<kSums>([&](auto i) LOWBIT_INLINE {
        totals[i] = Tile::template subtract_zeros<i>(totals[i], at.zeros, at.sums_of_x);
      });
  }

  static LOWBIT_INLINE void finish(const Linear32& args, const FewPlace& place,
                                                   const float32x4_t* totals) {
    const float rest = has_raw_halves(args) ? kHalfFactor : 1;
    float32x4_t results[kSums];
    each_index<kSums>([&](auto i) LOWBIT_INLINE {
      constexpr int kField = i / Few::kHalves % kTileQuads % Weights::kFields;
      results[i] = vmulq_n_f32(totals[i], power_of_two(-Weights::shift_of(kField)) * rest);
    });
    Tile::finish(args, place.index, place.unit * Weights::kFields, place.row, results);
  }

  // Adds a chunk's products to the sums and moves `at` and `x` behind the chunk.
  static LOWBIT_INLINE void multiply(const Weights& weights, const uint8_t*& at, const int8_t*& x,
                                                     size_t block_stride, uint32_t length, int32x4_t* sums) {
    if (kMayPair<Bits, Levels> && length == 16) {
      Few::template multiply<FewTile>(weights, at, x, block_stride, sums);
      at += 64 * Bits;
      x += 16 * kRowStep;
      return;
    }
    const uint8_t* end = at + 4 * Bits * length;
    do {
      Few::template multiply<FewTile>(weights, at, x, block_stride, sums);
      Few::template multiply<FewTile>(weights, at + 64 * Bits, x + 16 * kRowStep, block_stride, sums);
      at += 128 * Bits;
      x += 32 * kRowStep;
    } while (at < end);
  }

  static void run(const Linear32& args, const FewPanel& panel, const FewPlace& place) {
    const Panels& w = args.weights;
    const Weights weights(w);
    const FewMode mode(args);
    const uint32_t part_length = w.part_length(), group_length = w.group_length, longest = args.chunk;
    const uint32_t chunks = ceil_div(part_length, longest), part = place.first / chunks, g = part / w.parts;
    const uint32_t quad = place.unit * Weights::kFields, between_groups = w.vectors_offset;
    uint32_t of_part = place.first % chunks * longest, of_group = part % w.parts * part_length + of_part;
    const uint8_t* at = w.panel(place.index) + static_cast<size_t>(g) * w.group_bytes + between_groups +
                        4 * Bits * of_group + 16 * place.unit * Weights::kVectors;
    const size_t padded_k = w.padded_k(), block_stride = kRowStep * padded_k;
    const int8_t* x = args.rows.values + place.row * padded_k + kRowStep * (g * group_length + of_group);
    const size_t start_stride = Levels ? 0 : size_t{4} * args.chunk_count() * Weights::kLinks;
    const int32_t* starts = kStarts[mode.has_long];
    if constexpr (!Levels)
      starts = args.rows.starts + place.row / Few::kRowsOfSum * start_stride + place.first * 4 * Weights::kLinks;
    FewNumbers numbers(args, panel, place, kScaleFloats<typename Few::Isa> * part + 4 * Few::Isa::kScaleCopies * quad);
    const uint32_t row_stride = args.rows.row_stride;
    float* kept = panel.totals + kPanelRows * place.row + 4 * quad * Rows;
    float32x4_t totals[kSums];
    if (place.first == 0) each_index<kSums>([&](auto i) LOWBIT_INLINE { totals[i] = vdupq_n_f32(0); });
    else each_index<kSums>([&](auto i) LOWBIT_INLINE { totals[i] = vld1q_f32(kept + 4 * i); });
    for (uint32_t chunk = place.first; chunk < place.last; chunk++) {
      const uint32_t length = std::min(longest, part_length - of_part);
      int32x4_t sums[kSets * Weights::kLinks];
      load_starts(starts, start_stride, sums);
      multiply(weights, at, x, block_stride, length, sums);
      float32x4_t values[kSums];
      if (mode.has_long) to_floats<true>(weights, sums, values);
      else to_floats<false>(weights, sums, values);
      add(mode, numbers, values, totals);
      if constexpr (!Levels) starts += 4 * Weights::kLinks;
      of_part += length;
      of_group += length;
      const bool ends = of_part == part_length;
      if (ends) of_part = 0;
      numbers.next(row_stride, ends ? kScaleFloats<typename Few::Isa> : 0);
      if (of_group == group_length) {
        of_group = 0;
        at += between_groups;
      }
    }
    if (place.last == args.chunk_count()) finish(args, place, totals);
    else each_index<kSums>([&](auto i) LOWBIT_INLINE { vst1q_f32(kept + 4 * i, totals[i]); });
  }
};

// Multiplies up to `Rows` rows by the chunks of `place`. Returns the number of rows.
template <class Few, int Bits, bool Levels, int Rows>
uint32_t few_rows(const Linear32& args, const FewPanel& panel, FewPlace place) {
  if constexpr (Rows > Few::kRowsOfSum)
    if (round_up(args.m, Few::kRowsOfSum) < place.row + Rows)
      return few_rows<Few, Bits, Levels, Rows - Few::kRowsOfSum>(args, panel, place);
  using Tile = FewTile<Few, Bits, Levels, Rows>;
  for (; place.unit < Tile::Weights::kUnits; place.unit += Tile::kUnits) Tile::run(args, panel, place);
  return Rows;
}

// 2^shift_of(field) of each quad's field, by which sums of the quad are too large.
template <int Bits, bool Levels>
struct FewFactors {
  float of[kQuads];
  constexpr FewFactors() : of() {
    using Weights = Packed<Bits, Levels>;
    for (uint32_t quad = 0; quad < kQuads; quad++) of[quad] = power_of_two(Weights::shift_of(quad % Weights::kFields));
  }
};
template <int Bits, bool Levels>
constexpr FewFactors<Bits, Levels> kFewFactors{};

template <class Few>
inline size_t few_floats(const Linear32& args) {
  return number_floats<typename Few::Isa>(args.weights) + kPanelRows * args.rows.row_stride;
}

template <class Few, int Bits, bool Levels>
void few_panel(const Linear32& args, uint32_t index, float* scratch) {
  const Panels& w = args.weights;
  float* numbers = scratch + kPanelRows * args.rows.row_stride;
  const FewPanel panel{panel_numbers<typename Few::Isa>(w, numbers), scratch};
  using Isa = typename Few::Isa;
  if (!has_raw_halves(args)) read_numbers<Isa>(w, index, panel, kFewFactors<Bits, Levels>.of);
  else if (w.positive_scales) read_halves<Isa, Scales::kPositiveHalves>(w, index, panel.scales);
  else read_halves<Isa, Scales::kHalves>(w, index, panel.scales);
  const uint32_t count = args.chunk_count(),
                 together = std::max(1u, kFewColumns / std::min(args.chunk, w.part_length()));
  for (uint32_t first = 0; first < count; first += together) {
    const uint32_t last = std::min(count, first + together);
    for (uint32_t row = 0; row < args.m;)
      row += few_rows<Few, Bits, Levels, kFewRows<Bits>>(args, panel, {index, row, 0, first, last});
  }
}

template <class Few, int Bits, bool Levels>
void few_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread) {
  const Linear32& args = step.as<Linear32>();
  if (phase == 0) return quantize_rows<Few::template kRowStep<Bits>>(args, tile, kChain<Bits, false>.factors);
  const uint32_t first = tile * args.panels_per_tile;
  const uint32_t last = std::min(args.weights.panel_count, first + args.panels_per_tile);
  float* scratch = reinterpret_cast<float*>(args.unpacked) + thread * few_floats<Few>(args);
  for (uint32_t index = first; index < last; index++) few_panel<Few, Bits, Levels>(args, index, scratch);
}

template <class Few>
struct FewCode {
  template <int Bits, bool Levels>
  static constexpr Run run() {
    return few_run<Few, Bits, Levels>;
  }
};

template <class Few>
size_t carve_few(Linear32& args, uint8_t* base, uint32_t threads) {
  const Panels& w = args.weights;
  const uint32_t row_step = w.bits % 2 == 1 ? Few::template kRowStep<1> : Few::template kRowStep<2>;
  Carver carver{base};
  args.rows.starts_in_twos = Few::kRowsOfSum == 2;
  carve_activations(carver, args, row_step, w.has_levels ? 0 : chain_starts<false>(w));
  args.unpacked = carver.take<uint8_t>(sizeof(float) * threads * few_floats<Few>(args));
  return carver.size;
}

}  // namespace
}  // namespace lowbit
