// GEMM over float weights, y = x . w^T + bias, by the bf16 matrix products of Armv8.6 (bfmmla). Each factor is an exact
// sum of bf16 parts: x and f32 weights of three, f16 weights of two, bf16 weights of one. Products of parts below 2^-21
// of the whole are left out. Subnormal numbers count as 0.
#include <arm_neon.h>

#include <algorithm>

#include "../families/linear/arguments.h"
#include "../families/linear/float_call.h"
#include "../vectors.h"

namespace lowbit {
namespace {

// Rows of x, columns of y and values of k that a tile multiplies at a time: weights and sums stay in the second-level
// cache, a block of x in the first-level one.
constexpr uint32_t kTileRows = 256, kTileColumns = 32, kDepth = 1024;
// Rows and columns of a block of y, and values of k that one instruction multiplies.
constexpr uint32_t kBlock = 8, kStep = 4;
// Pairs of rows, and of columns, of a block; and parts of x, the most that weights have.
constexpr uint32_t kPairs = kBlock / 2, kParts = 3;
constexpr uint32_t kBlockSums = kBlock * kBlock;

// bf16 parts of a weight.
template <FloatType Type>
constexpr uint32_t kPartsOf = Type == FloatType::kBf16  ? 1
                              : Type == FloatType::kF16 ? 2
                                                        : kParts;

struct Bf16Linear : FloatCall {
  // x as [blocks of 8 rows][k / 4][parts][pairs] of vectors [2 rows][4 k].
  bfloat16x8_t* rows;
  // Per thread: weights as [blocks of 8 columns][kDepth / 4][parts][pairs], then sums [blocks][64].
  uint8_t* local;
  uint32_t steps, row_tiles;

  uint32_t row_blocks() const { return ceil_div(m, kBlock); }
  size_t rows_bytes() const { return size_t{row_blocks()} * steps * kParts * kPairs * sizeof(bfloat16x8_t); }
};
static_assert(sizeof(Bf16Linear) <= kArgsMax);

constexpr size_t kWeightVectors = kTileColumns / kBlock * (kDepth / kStep) * kParts * kPairs;
constexpr size_t kSumBytes = sizeof(float) * kTileRows * kTileColumns;
constexpr size_t kLocalBytes = kWeightVectors * sizeof(bfloat16x8_t) + kSumBytes;

struct Parts {
  bfloat16x4_t parts[kParts];
};

// Values truncated to bf16, which cannot overflow as rounding could. The rest, v - first_part(v), is exact.
inline float32x4_t first_part(float32x4_t v) {
  return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(v), vdupq_n_u32(0xffff0000)));
}

inline bfloat16x4_t as_bf16(float32x4_t v) { return vreinterpret_bf16_u16(vshrn_n_u32(vreinterpretq_u32_f32(v), 16)); }

// Splits values into parts, largest first, whose sums are the values.
inline Parts split(float32x4_t v) {
  const float32x4_t first = first_part(v), rest = vsubq_f32(v, first), second = first_part(rest);
  return {{as_bf16(first), as_bf16(second), as_bf16(vsubq_f32(rest, second))}};
}

template <FloatType Type>
inline Parts load_parts(const void* values, size_t at) {
  if constexpr (Type == FloatType::kF32) return split(vld1q_f32(static_cast<const float*>(values) + at));
  const uint16x4_t words = vld1_u16(static_cast<const uint16_t*>(values) + at);
  if constexpr (Type == FloatType::kF16) return split(vcvt_f32_f16(vreinterpret_f16_u16(words)));
  return {{vreinterpret_bf16_u16(words)}};
}

// Splits the first `count` of four values; the others are 0.
template <FloatType Type>
inline Parts load_some_parts(const void* values, size_t at, uint32_t count) {
  constexpr size_t kBytes = Type == FloatType::kF32 ? 4 : 2;
  uint32_t some[kStep] = {};
  memcpy(some, static_cast<const uint8_t*>(values) + kBytes * at, kBytes * count);
  return load_parts<Type>(some, 0);
}

// Packs the first `Count` parts of 8 rows, from row `first` of values [count, k] on, and of `steps` steps of k from
// `start` on. Values beyond `count` and k are 0.
template <FloatType Type, uint32_t Count>
void pack_block(const void* values, uint32_t first, uint32_t count, uint32_t k, uint32_t start, uint32_t steps,
                bfloat16x8_t* packed) {
  const bfloat16x4_t none = vreinterpret_bf16_u16(vdup_n_u16(0));
  for (uint32_t step = 0; step < steps; step++, packed += Count * kPairs) {
    const uint32_t c = start + step * kStep, rest = std::min(kStep, k - c);
    for (uint32_t pair = 0; pair < kPairs; pair++) {
      Parts rows[2] = {{{none, none, none}}, {{none, none, none}}};
      for (uint32_t i = 0; i < 2; i++) {
        const uint32_t row = first + 2 * pair + i;
        const size_t at = size_t{row} * k + c;
        if (row >= count) continue;
        rows[i] = rest == kStep ? load_parts<Type>(values, at) : load_some_parts<Type>(values, at, rest);
      }
      for (uint32_t part = 0; part < Count; part++)
        packed[part * kPairs + pair] = vcombine_bf16(rows[0].parts[part], rows[1].parts[part]);
    }
  }
}

// sums [pairs of rows][pairs of columns][2][2] of a block += x_i . w_j over `steps` steps, for parts i of x and j of
// the `Count` parts of weights with i + j <= 2.
template <uint32_t Count>
void multiply_block(const bfloat16x8_t* x, const bfloat16x8_t* w, uint32_t steps, float* sums, bool first) {
  float32x4_t sum[kPairs * kPairs];
  each_index<kPairs * kPairs>(
      [&](auto i) LOWBIT_INLINE { sum[i] = first ? vdupq_n_f32(0) : vld1q_f32(sums + 4 * i); });
  for (uint32_t step = 0; step < steps; step++, x += kParts * kPairs, w += Count * kPairs) {
    each_index<Count>([&](auto part) LOWBIT_INLINE {
      bfloat16x8_t columns[kPairs];
      each_index<kPairs>([&](auto j) LOWBIT_INLINE { columns[j] = w[part * kPairs + j]; });
      each_index<(kParts - part) * kPairs>([&](auto at) LOWBIT_INLINE {
        const bfloat16x8_t rows = x[at];
        each_index<kPairs>([&](auto j) LOWBIT_INLINE {
          float32x4_t& s = sum[at % kPairs * kPairs + j];
          s = vbfmmlaq_f32(s, rows, columns[j]);
        });
      });
    });
  }
  each_index<kPairs * kPairs>([&](auto i) LOWBIT_INLINE { vst1q_f32(sums + 4 * i, sum[i]); });
}

void write_sums(const Bf16Linear& args, uint32_t row, uint32_t column, const float* sums) {
  for (uint32_t i = 0; i < std::min(kTileRows, args.m - row); i++) {
    const float* block = sums + i / kBlock * kBlock * kTileColumns;
    float* y = args.y + size_t{row + i} * args.n;
    for (uint32_t j = 0; j < std::min(kTileColumns, args.n - column); j++) {
      const uint32_t pairs = i % kBlock / 2 * kPairs + j % kBlock / 2;
      const float bias = args.bias ? args.bias[column + j] : 0;
      y[column + j] = block[j / kBlock * kBlockSums + 4 * pairs + 2 * (i % 2) + j % 2] + bias;
    }
  }
}

template <FloatType Type>
void bf16_linear_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread) {
  constexpr uint32_t kCount = kPartsOf<Type>;
  constexpr size_t kVectors = kCount * kPairs;
  const Bf16Linear& args = step.as<Bf16Linear>();
  if (phase == 0) {
    bfloat16x8_t* rows = args.rows + size_t{tile} * args.steps * kParts * kPairs;
    return pack_block<FloatType::kF32, kParts>(args.x, kBlock * tile, args.m, args.k, 0, args.steps, rows);
  }
  auto* weights = reinterpret_cast<bfloat16x8_t*>(args.local + thread * kLocalBytes);
  auto* sums = reinterpret_cast<float*>(weights + kWeightVectors);
  const uint32_t row = tile % args.row_tiles * kTileRows, column = tile / args.row_tiles * kTileColumns;
  const uint32_t blocks = ceil_div(std::min(kTileRows, args.m - row), kBlock);
  const uint32_t groups = ceil_div(std::min(kTileColumns, args.n - column), kBlock);
  for (uint32_t start = 0; start < args.steps; start += kDepth / kStep) {
    const uint32_t steps = std::min(kDepth / kStep, args.steps - start);
    for (uint32_t g = 0; g < groups; g++)
      pack_block<Type, kCount>(args.weights, column + kBlock * g, args.n, args.k, start * kStep, steps,
                               weights + g * steps * kVectors);
    for (uint32_t b = 0; b < blocks; b++) {
      const bfloat16x8_t* x = args.rows + (size_t{row / kBlock + b} * args.steps + start) * kParts * kPairs;
      for (uint32_t g = 0; g < groups; g++)
        multiply_block<kCount>(x, weights + g * steps * kVectors, steps,
                               sums + b * kBlock * kTileColumns + g * kBlockSums, start == 0);
    }
  }
  write_sums(args, row, column, sums);
}

Bf16Linear read_bf16_linear(const Call& call) {
  const auto given = arguments_of<LinearFloatArguments>(call);
  Bf16Linear args{read_float_call(call)};
  args.steps = ceil_div(args.k, kStep);
  args.row_tiles = ceil_div(args.m, kTileRows);
  args.rows = static_cast<bfloat16x8_t*>(given.scratch);
  args.local = reinterpret_cast<uint8_t*>(args.rows) + args.rows_bytes();
  return args;
}

size_t bf16_linear_scratch(const Call& call) {
  return read_bf16_linear(call).rows_bytes() + call.threads * kLocalBytes;
}

void bf16_linear_prepare(Step& step, const Call& call) {
  Bf16Linear& args = step.init<Bf16Linear>();
  args = read_bf16_linear(call);
  step.phases = 2;
  step.tiles[0] = args.row_blocks();
  step.tiles[1] = args.row_tiles * ceil_div(args.n, kTileColumns);
  switch (args.type) {
    case FloatType::kF32: step.run = bf16_linear_run<FloatType::kF32>; break;
    case FloatType::kF16: step.run = bf16_linear_run<FloatType::kF16>; break;
    case FloatType::kBf16: step.run = bf16_linear_run<FloatType::kBf16>; break;
  }
}

constexpr KernelRow kRows[] = {
    {"linear_f32_f32_128x8x4_neon_bf16", "linear_float", nullptr, 0, kNeon | kBf16, 128, 8, bf16_linear_scratch,
     bf16_linear_prepare},
};

}  // namespace

KernelRows linear_float_bf16_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
