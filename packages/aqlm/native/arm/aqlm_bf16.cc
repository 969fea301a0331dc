// AQLM GEMM with the bf16 matrix products of Armv8.6: weights are decoded once for up to 512 rows of x, without their
// scales, which multiply the sums.
//
// A factor is one bf16, whose rounding makes an error of 2e-3 of a result, or a sum of two, without the product of the
// lower parts: 4e-6, for three times as many products.
#include <arm_neon.h>

#include "../codes.h"
#include "families/linear/float_panels.h"
#include "kernel.h"

namespace lowbit {
namespace aqlm {
namespace {

// Rows of x that share decoded weights, and outputs decoded per work item: half a tile.
constexpr uint32_t kItemRows = 512, kItemColumns = 32;
// Values of k, times parts, per pass, in whole blocks: an item's weights and a block of x stay in the first-level
// cache, sums in the second-level one.
constexpr uint32_t kDepth = 512;
// Rows and outputs of a block of y, also in pairs, and values of k decoded at once: two products.
constexpr uint32_t kSide = 8, kPairs = kSide / 2, kStep = 8;
// Vectors of a step of k of 8 rows of x or 8 outputs: [2 halves of k][pairs][parts], each with two times four values.
template <uint32_t Parts>
constexpr uint32_t kStepVectors = 2 * kPairs * Parts;
constexpr uint32_t kItemBlocks = kItemColumns / kSide;
// Sums of a block of y: [pairs of rows][pairs of outputs], each [2][2].
constexpr uint32_t kBlockVectors = kPairs * kPairs;
constexpr size_t kVectorBytes = 16;

struct Bf16Gemm : Arguments {
  // x as [blocks of 8 rows][steps of k][2][kPairs][parts].
  bfloat16x8_t* rows;
  // Codebooks as f32; as bf16 if there is one codebook of short groups, which needs no sums.
  void* table;
  // Per thread: weights as [kItemBlocks][steps of k][2][kPairs][parts], then sums [blocks of rows][kItemBlocks].
  uint8_t* local;
  size_t local_bytes;
  // Blocks of groups per chunk of k.
  uint32_t chunk_blocks, row_tiles, parts;
  bool is_rounded;

  uint32_t steps() const { return codes.k / kStep; }
  uint32_t step_vectors() const { return kStepVectors<1> * parts; }
  uint32_t row_blocks() const { return ceil_div(m, kSide); }
  size_t panel_vectors() const {
    const uint32_t depth = std::min(codes.k, chunk_blocks * kBlock * codes.in_group);
    return size_t{kItemBlocks} * (depth / kStep) * step_vectors();
  }
  size_t rows_bytes() const { return size_t{row_blocks()} * steps() * step_vectors() * kVectorBytes; }
  size_t table_bytes() const { return round_up((is_rounded ? 2 : 4) * codes.vector_values(), kAlignment); }
};
static_assert(sizeof(Bf16Gemm) <= kArgsMax);

inline bfloat16x8_t rounded(float32x4_t low, float32x4_t high) {
  return vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(low), high);
}

inline float32x4x2_t sum(float32x4x2_t a, float32x4x2_t b) {
  return {vaddq_f32(a.val[0], b.val[0]), vaddq_f32(a.val[1], b.val[1])};
}

// Stores a step of k of a pair of rows: halves of k of both rows together.
template <uint32_t Parts>
inline void store_pair(float32x4x2_t first, float32x4x2_t second, bfloat16x8_t* to) {
  for (int half = 0; half < 2; half++, to += Parts * kPairs) {
    const float32x4_t a = first.val[half], b = second.val[half];
    to[0] = rounded(a, b);
    if constexpr (Parts == 2)
      to[1] = rounded(vsubq_f32(a, vcvtq_low_f32_bf16(to[0])), vsubq_f32(b, vcvtq_high_f32_bf16(to[0])));
  }
}
template <uint32_t Parts>
inline void store_pair(bfloat16x8_t first, bfloat16x8_t second, bfloat16x8_t* to) {
  static_assert(Parts == 1);
  const uint64x2_t a = vreinterpretq_u64_bf16(first), b = vreinterpretq_u64_bf16(second);
  to[0] = vreinterpretq_bf16_u64(vzip1q_u64(a, b));
  to[kPairs] = vreinterpretq_bf16_u64(vzip2q_u64(a, b));
}

template <uint32_t Parts>
void pack_rows(const Bf16Gemm& p, uint32_t block) {
  bfloat16x8_t* to = p.rows + size_t{block} * p.steps() * kStepVectors<Parts>;
  const uint32_t count = std::min(kSide, p.m - block * kSide);
  const float* x = p.x + size_t{block} * kSide * p.codes.k;
  for (uint32_t step = 0; step < p.steps(); step++, x += kStep, to += kStepVectors<Parts>)
    for (uint32_t pair = 0; pair < kPairs; pair++) {
      float32x4x2_t values[2] = {};
      for (uint32_t i = 0; i < 2 && 2 * pair + i < count; i++)
        values[i] = vld1q_f32_x2(x + size_t{2 * pair + i} * p.codes.k);
      store_pair<Parts>(values[0], values[1], to + Parts * pair);
    }
}

inline float32x4x2_t load_vector(const Bf16Gemm& p, size_t at) {
  if (!p.half_vectors) return vld1q_f32_x2(static_cast<const float*>(p.vectors) + at);
  const float16x8_t halves = vreinterpretq_f16_u16(vld1q_u16(static_cast<const uint16_t*>(p.vectors) + at));
  return {vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)};
}

void convert_vectors(const Bf16Gemm& p, uint32_t part) {
  const size_t first = part * kValuesAtOnce, last = std::min(p.codes.vector_values(), first + kValuesAtOnce);
  for (size_t i = first; i < last; i += kStep) {
    const float32x4x2_t values = load_vector(p, i);
    if (p.is_rounded) static_cast<bfloat16x8_t*>(p.table)[i / kStep] = rounded(values.val[0], values.val[1]);
    else vst1q_f32_x2(static_cast<float*>(p.table) + i, values);
  }
}

template <class Code>
const Code* codes_of(const Codes& w, uint32_t block, uint32_t output) {
  return reinterpret_cast<const Code*>(w.tile(block, output / kTile)) + lane_of(output % kTile);
}

// Decodes a group of one output, whose codes are `kTile` apart: `Books` codebooks of vectors of 8 inputs and one
// output.
template <class Code, uint32_t Books, uint32_t Parts>
inline auto short_group(const void* table, const float* second, const Code* codes) {
  if constexpr (Books == 1 && Parts == 1) return static_cast<const bfloat16x8_t*>(table)[codes[0]];
  else {
    const float32x4x2_t first = vld1q_f32_x2(static_cast<const float*>(table) + size_t{codes[0]} * kStep);
    return Books == 1 ? first : sum(first, vld1q_f32_x2(second + size_t{codes[kTile]} * kStep));
  }
}

// Decodes eight inputs of a group of any form; `vectors` points at the first of them.
template <class Code>
inline float32x4x2_t any_group(const Codes& w, const float* vectors, const Code* codes) {
  const size_t length = size_t{w.out_group} * w.in_group, book_length = length * w.entries();
  float32x4x2_t values = vld1q_f32_x2(vectors + (codes[0] & w.mask) * length);
  for (uint32_t book = 1; book < w.codebooks; book++)
    values = sum(values, vld1q_f32_x2(vectors + book * book_length + (codes[book * kTile] & w.mask) * length));
  return values;
}

// Decodes the groups of 8 rows of weights, from `row` on, in a block. `Books`: 1 or 2 codebooks of vectors of 8 inputs
// and one output, whose codes take all values of their type; or 0 for any form.
template <class Code, uint32_t Books, uint32_t Parts>
bfloat16x8_t* decode_block(const Bf16Gemm& p, uint32_t block, uint32_t row, bfloat16x8_t* to) {
  const Codes& w = p.codes;
  const uint32_t groups = w.block_groups(block);
  if constexpr (Books > 0) {
    const Code* codes = codes_of<Code>(w, block, row);
    const void* table = p.table;
    // A pointer of its own: compilers would add a distance they know to each code.
    const float* second = static_cast<const float*>(table) + size_t{w.entries()} * kStep;
    for (uint32_t g = 0; g < groups; g++, codes += Books * kTile, to += kStepVectors<Parts>)
      each_index<kPairs>([&](auto pair) LOWBIT_INLINE {
        const Code* at = codes + 4 * pair;
        store_pair<Parts>(short_group<Code, Books, Parts>(table, second, at),
                          short_group<Code, Books, Parts>(table, second, at + 2), to + Parts * pair);
      });
    return to;
  }
  const Code* codes[kSide];
  const float* vectors[kSide];
  for (uint32_t i = 0; i < kSide; i++) {
    codes[i] = codes_of<Code>(w, block, (row + i) / w.out_group);
    vectors[i] = static_cast<const float*>(p.table) + (row + i) % w.out_group * w.in_group;
  }
  for (uint32_t at = 0; at < groups * w.codebooks * kTile; at += w.codebooks * kTile)
    for (uint32_t c = 0; c < w.in_group; c += kStep, to += kStepVectors<Parts>)
      for (uint32_t i = 0; i < kSide; i += 2)
        store_pair<Parts>(any_group(w, vectors[i] + c, codes[i] + at),
                          any_group(w, vectors[i + 1] + c, codes[i + 1] + at), to + Parts * i / 2);
  return to;
}

// Adds `steps` steps of k to the sums of `Pairs` pairs of rows and 8 outputs.
template <uint32_t Parts, uint32_t Pairs>
void multiply_block(const bfloat16x8_t* x, const bfloat16x8_t* w, uint32_t steps, float32x4_t* sums, bool first) {
  float32x4_t sum[Pairs * kPairs];
  each_index<Pairs * kPairs>([&](auto i) LOWBIT_INLINE { sum[i] = first ? vdupq_n_f32(0) : sums[i]; });
  // Two products per step, one for each half of k.
  for (uint32_t half = 0; half < 2 * steps; half++, x += Parts * kPairs, w += Parts * kPairs) {
    bfloat16x8_t outputs[Parts * kPairs];
    each_index<Parts * kPairs>([&](auto j) LOWBIT_INLINE { outputs[j] = w[j]; });
    each_index<Pairs>([&](auto i) LOWBIT_INLINE {
      const bfloat16x8_t high = x[Parts * i], low = x[Parts * i + Parts - 1];
      each_index<kPairs>([&](auto j) LOWBIT_INLINE {
        float32x4_t& s = sum[i * kPairs + j];
        if constexpr (Parts == 2) {
          s = vbfmmlaq_f32(s, low, outputs[2 * j]);
          s = vbfmmlaq_f32(s, high, outputs[2 * j + 1]);
        }
        s = vbfmmlaq_f32(s, high, outputs[Parts * j]);
      });
    });
  }
  each_index<Pairs * kPairs>([&](auto i) LOWBIT_INLINE { sums[i] = sum[i]; });
}

using Multiply = void (*)(const bfloat16x8_t* x, const bfloat16x8_t* w, uint32_t steps, float32x4_t* sums, bool first);
// multiply_block by the number of pairs of rows.
template <uint32_t Parts>
constexpr Multiply kMultiply[] = {nullptr, multiply_block<Parts, 1>, multiply_block<Parts, 2>, multiply_block<Parts, 3>,
                                  multiply_block<Parts, 4>};

// Scales and biases of 8 rows of weights from `column` on; 0 past the last.
struct Factors {
  float scales[kSide], biases[kSide];
};

Factors factors_of(const Bf16Gemm& p, uint32_t column) {
  Factors f = {};
  for (uint32_t i = 0; i < std::min(kSide, p.codes.n - column); i++) {
    f.scales[i] = float_at(p.scales, p.half_scales, (column + i) / p.codes.out_group);
    f.biases[i] = p.bias ? p.bias[column + i] : 0;
  }
  return f;
}

// Stores a block of y, of which `rows` rows and `columns` outputs exist.
void write_block(const Factors& f, const float32x4_t* sums, uint32_t rows, uint32_t columns, size_t stride, float* y) {
  for (uint32_t i = 0; i < rows; i++, y += stride) {
    float values[kSide];
    for (uint32_t j = 0; j < kSide; j += 4) {
      const float64x2_t a = vreinterpretq_f64_f32(sums[i / 2 * kPairs + j / 2]);
      const float64x2_t b = vreinterpretq_f64_f32(sums[i / 2 * kPairs + j / 2 + 1]);
      const float32x4_t four = vreinterpretq_f32_f64(i % 2 == 0 ? vzip1q_f64(a, b) : vzip2q_f64(a, b));
      vst1q_f32(values + j, vfmaq_f32(vld1q_f32(f.biases + j), four, vld1q_f32(f.scales + j)));
    }
    memcpy(y, values, sizeof(float) * columns);
  }
}

template <class Code, uint32_t Books, uint32_t Parts>
void multiply_item(const Bf16Gemm& p, uint32_t row, uint32_t column, uint8_t* local) {
  const Codes& w = p.codes;
  bfloat16x8_t* panel = reinterpret_cast<bfloat16x8_t*>(local);
  float32x4_t* sums = reinterpret_cast<float32x4_t*>(panel + p.panel_vectors());
  const uint32_t rows = std::min(kItemRows, p.m - row), row_blocks = ceil_div(rows, kSide);
  const uint32_t columns = std::min(kItemColumns, w.n - column), blocks = ceil_div(columns, kSide);
  for (uint32_t begin = 0; begin < w.blocks; begin += p.chunk_blocks) {
    const uint32_t end = std::min(w.blocks, begin + p.chunk_blocks);
    const uint32_t first = begin * kBlock * w.in_group / kStep;
    const uint32_t steps = std::min(w.groups, end * kBlock) * w.in_group / kStep - first;
    bfloat16x8_t* to = panel;
    for (uint32_t j = 0; j < blocks; j++)
      for (uint32_t block = begin; block < end; block++)
        to = decode_block<Code, Books, Parts>(p, block, column + j * kSide, to);
    for (uint32_t i = 0; i < row_blocks; i++) {
      const Multiply multiply = kMultiply<Parts>[std::min(kPairs, ceil_div(rows - i * kSide, 2))];
      const bfloat16x8_t* x = p.rows + (size_t{row / kSide + i} * p.steps() + first) * kStepVectors<Parts>;
      for (uint32_t j = 0; j < blocks; j++)
        multiply(x, panel + size_t{j} * steps * kStepVectors<Parts>, steps,
                 sums + (i * kItemBlocks + j) * kBlockVectors, begin == 0);
    }
  }
  for (uint32_t j = 0; j < columns; j += kSide) {
    const Factors f = factors_of(p, column + j);
    for (uint32_t i = 0; i < rows; i += kSide)
      write_block(f, sums + (i / kSide * kItemBlocks + j / kSide) * kBlockVectors, std::min(kSide, rows - i),
                  std::min(kSide, columns - j), w.n, p.y + size_t{row + i} * w.n + column + j);
  }
}

template <class Code, uint32_t Books, uint32_t Parts>
void bf16_gemm_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread) {
  const Bf16Gemm& p = step.as<Bf16Gemm>();
  if (phase == 1)
    multiply_item<Code, Books, Parts>(p, tile % p.row_tiles * kItemRows, tile / p.row_tiles * kItemColumns,
                                      p.local + thread * p.local_bytes);
  else if (tile < p.row_blocks()) pack_rows<Parts>(p, tile);
  else convert_vectors(p, tile - p.row_blocks());
}

// Whether weights have vectors of 8 inputs and one output, and codes that take all values of their type.
bool is_short(const Codes& w) {
  return w.in_group == kStep && w.out_group == 1 && w.mask == (1u << 8 * w.code_bytes) - 1;
}

template <uint32_t Parts>
Bf16Gemm read_bf16_gemm(const Call& call) {
  Bf16Gemm p{read_arguments(call)};
  p.parts = Parts;
  p.is_rounded = Parts == 1 && is_short(p.codes) && p.codes.codebooks == 1;
  p.chunk_blocks = std::max(1u, kDepth / Parts / (kBlock * p.codes.in_group));
  p.row_tiles = ceil_div(p.m, kItemRows);
  const size_t sums = size_t{std::min(kItemRows / kSide, p.row_blocks())} * kItemBlocks * kBlockVectors;
  p.local_bytes = round_up((p.panel_vectors() + sums) * kVectorBytes, kAlignment);
  return p;
}

template <uint32_t Parts>
size_t bf16_gemm_scratch(const Call& call) {
  const Bf16Gemm p = read_bf16_gemm<Parts>(call);
  return p.table_bytes() + p.rows_bytes() + call.threads * p.local_bytes;
}

template <class Code, uint32_t BooksMax, uint32_t Parts>
void choose_run(Step& step, const Codes& w) {
  step.run = bf16_gemm_run<Code, 0, Parts>;
  if (is_short(w) && w.codebooks == 1) step.run = bf16_gemm_run<Code, 1, Parts>;
  if (is_short(w) && w.codebooks == BooksMax) step.run = bf16_gemm_run<Code, BooksMax, Parts>;
}

template <uint32_t Parts>
void bf16_gemm_prepare(Step& step, const Call& call) {
  const auto given = arguments_of<AqlmArguments>(call);
  Bf16Gemm& p = step.init<Bf16Gemm>();
  p = read_bf16_gemm<Parts>(call);
  uint8_t* scratch = static_cast<uint8_t*>(given.scratch);
  p.table = scratch;
  p.rows = reinterpret_cast<bfloat16x8_t*>(scratch + p.table_bytes());
  p.local = scratch + p.table_bytes() + p.rows_bytes();
  step.phases = 2;
  step.tiles[0] = p.row_blocks() + p.codes.vector_tiles();
  step.tiles[1] = p.row_tiles * ceil_div(p.codes.n, kItemColumns);
  if (p.codes.code_bytes == 1) choose_run<uint8_t, 2, Parts>(step, p.codes);
  else choose_run<uint16_t, 1, Parts>(step, p.codes);
}

#define LOWBIT_AQLM_BF16_ROW(NAME, LAYOUT, PARTS, ROWS)                                             \
  KernelRow {                                                                                       \
    "aqlm_" NAME "_" #ROWS "x32x8_neon_bf16", "aqlm", LAYOUT, 0, kNeon | kBf16, ROWS, kItemColumns, \
        bf16_gemm_scratch<PARTS>, bf16_gemm_prepare<PARTS>                                          \
  }

// Sums of two serve from the number of rows on where decoding takes less time than tables or whole vectors. Rounding to
// bf16 makes up to 2e-2 of the logits of small models, and is left to long prompts.
constexpr KernelRow kRows[] = {
    LOWBIT_AQLM_BF16_ROW("bf16_c8", "aqlm_tiles8", 1, 64),
    LOWBIT_AQLM_BF16_ROW("bf16_cx", "aqlm_tiles", 1, 64),
    LOWBIT_AQLM_BF16_ROW("f32_cx", "aqlm_tiles", 2, 5),
};

}  // namespace
}  // namespace aqlm

KernelRows aqlm_bf16_rows() { return {aqlm::kRows, sizeof aqlm::kRows / sizeof *aqlm::kRows}; }

}  // namespace lowbit
