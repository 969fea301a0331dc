// Linear layers over float weights with the bf16 matrix products of Armv8.6 for many rows of x. Factors are sums of two
// bf16, of which bf16 weights need only one; products of low parts are left out. Besides that of sums in f32, the error
// is at most 2^-16 * sum |x| |w| with bf16 weights, 3 * 2^-16 with others. Subnormal numbers count as 0.
#include <arm_neon.h>

#include <algorithm>

#include "../families.h"
#include "../linear/float_call.h"
#include "../transformer/vectors.h"

namespace lowbit {
namespace {

// Rows of x and columns of y of a tile of work, and values of k that are multiplied before the next: weights and sums
// of a tile stay in the second cache, a block of x in the first.
constexpr uint32_t kTileRows = 256, kTileColumns = 32, kDepth = 1024;
// A block of y, and values of k of one product.
constexpr uint32_t kBlock = 8, kStep = 4;
// Vectors of a step: those of 8 rows of x or columns of y, as pairs, each a high and a low part.
constexpr uint32_t kStepVectors = kBlock / 2 * 2;
constexpr uint32_t kBlockSums = kBlock * kBlock;

struct Bf16Linear : FloatCall {
  // x as [blocks of 8 rows][steps of k][pairs][high, low].
  bfloat16x8_t* rows;
  // For each thread: weights as [blocks of 8 columns][steps of kDepth][pairs][high, low], then sums [blocks][64].
  uint8_t* local;
  uint32_t steps, row_tiles;

  uint32_t row_blocks() const { return ceil_div(m, kBlock); }
  size_t rows_bytes() const { return size_t{row_blocks()} * steps * kStepVectors * sizeof(bfloat16x8_t); }
};
static_assert(sizeof(Bf16Linear) <= kArgsMax);

constexpr size_t kWeightVectors = kTileColumns / kBlock * (kDepth / kStep) * kStepVectors;
constexpr size_t kSumBytes = sizeof(float) * kTileRows * kTileColumns;
constexpr size_t kLocalBytes = kWeightVectors * sizeof(bfloat16x8_t) + kSumBytes;

struct Parts {
  bfloat16x4_t high, low;
};

// The high part is cut, so that it never overflows; what is left of the value is exact.
inline Parts split(float32x4_t v) {
  const uint32x4_t bits = vreinterpretq_u32_f32(v);
  const float32x4_t high = vreinterpretq_f32_u32(vandq_u32(bits, vdupq_n_u32(0xffff0000)));
  return {vreinterpret_bf16_u16(vshrn_n_u32(bits, 16)), vcvt_bf16_f32(vsubq_f32(v, high))};
}

template <FloatType Type>
inline Parts load_parts(const void* values, size_t at) {
  if constexpr (Type == FloatType::kF32) return split(vld1q_f32(static_cast<const float*>(values) + at));
  const uint16x4_t words = vld1_u16(static_cast<const uint16_t*>(values) + at);
  if constexpr (Type == FloatType::kF16) return split(vcvt_f32_f16(vreinterpret_f16_u16(words)));
  return {vreinterpret_bf16_u16(words), vreinterpret_bf16_u16(vdup_n_u16(0))};
}

// The first `count` of four values; the others are 0.
template <FloatType Type>
inline Parts load_some_parts(const void* values, size_t at, uint32_t count) {
  constexpr size_t kBytes = Type == FloatType::kF32 ? 4 : 2;
  uint32_t some[kStep] = {};
  memcpy(some, static_cast<const uint8_t*>(values) + kBytes * at, kBytes * count);
  return load_parts<Type>(some, 0);
}

// 8 rows of values [count, k] from row `first`, `steps` of k from value `start`; what lies outside is 0.
template <FloatType Type>
void pack_block(const void* values, uint32_t first, uint32_t count, uint32_t k, uint32_t start, uint32_t steps,
                bfloat16x8_t* packed) {
  const Parts none = {vreinterpret_bf16_u16(vdup_n_u16(0)), vreinterpret_bf16_u16(vdup_n_u16(0))};
  for (uint32_t step = 0; step < steps; step++, packed += kStepVectors) {
    const uint32_t c = start + step * kStep, rest = std::min(kStep, k - c);
    for (uint32_t pair = 0; pair < kBlock / 2; pair++) {
      Parts parts[2] = {none, none};
      for (uint32_t i = 0; i < 2; i++) {
        const uint32_t row = first + 2 * pair + i;
        const size_t at = size_t{row} * k + c;
        if (row >= count) continue;
        parts[i] = rest == kStep ? load_parts<Type>(values, at) : load_some_parts<Type>(values, at, rest);
      }
      packed[2 * pair] = vcombine_bf16(parts[0].high, parts[1].high);
      packed[2 * pair + 1] = vcombine_bf16(parts[0].low, parts[1].low);
    }
  }
}

// Adds `steps` of k to the sums of 8 rows and 8 columns: [pairs of rows][pairs of columns][2][2].
template <bool Split>
void multiply_block(const bfloat16x8_t* x, const bfloat16x8_t* w, uint32_t steps, float* sums, bool first) {
  constexpr int kPairs = kBlock / 2;
  float32x4_t sum[kPairs * kPairs];
  each_index<kPairs * kPairs>(
      [&](auto i) LOWBIT_INLINE { sum[i] = first ? vdupq_n_f32(0) : vld1q_f32(sums + 4 * i); });
  for (uint32_t step = 0; step < steps; step++, x += kStepVectors, w += kStepVectors) {
    bfloat16x8_t high[kPairs], low[kPairs];
    each_index<kPairs>([&](auto j) LOWBIT_INLINE {
      high[j] = w[2 * j];
      if constexpr (Split) low[j] = w[2 * j + 1];
    });
    each_index<kPairs>([&](auto i) LOWBIT_INLINE {
      const bfloat16x8_t x_high = x[2 * i], x_low = x[2 * i + 1];
      each_index<kPairs>([&](auto j) LOWBIT_INLINE {
        float32x4_t& s = sum[i * kPairs + j];
        s = vbfmmlaq_f32(s, x_low, high[j]);
        if constexpr (Split) s = vbfmmlaq_f32(s, x_high, low[j]);
        s = vbfmmlaq_f32(s, x_high, high[j]);
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
      const uint32_t pairs = i % kBlock / 2 * (kBlock / 2) + j % kBlock / 2;
      const float bias = args.bias ? args.bias[column + j] : 0;
      y[column + j] = block[j / kBlock * kBlockSums + 4 * pairs + 2 * (i % 2) + j % 2] + bias;
    }
  }
}

template <FloatType Type>
void bf16_linear_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread) {
  const Bf16Linear& args = step.as<Bf16Linear>();
  if (phase == 0) {
    bfloat16x8_t* rows = args.rows + size_t{tile} * args.steps * kStepVectors;
    return pack_block<FloatType::kF32>(args.x, kBlock * tile, args.m, args.k, 0, args.steps, rows);
  }
  auto* weights = reinterpret_cast<bfloat16x8_t*>(args.local + thread * kLocalBytes);
  auto* sums = reinterpret_cast<float*>(weights + kWeightVectors);
  const uint32_t row = tile % args.row_tiles * kTileRows, column = tile / args.row_tiles * kTileColumns;
  const uint32_t blocks = ceil_div(std::min(kTileRows, args.m - row), kBlock);
  const uint32_t groups = ceil_div(std::min(kTileColumns, args.n - column), kBlock);
  for (uint32_t start = 0; start < args.steps; start += kDepth / kStep) {
    const uint32_t steps = std::min(kDepth / kStep, args.steps - start);
    for (uint32_t g = 0; g < groups; g++)
      pack_block<Type>(args.weights, column + kBlock * g, args.n, args.k, start * kStep, steps,
                       weights + size_t{g} * steps * kStepVectors);
    for (uint32_t b = 0; b < blocks; b++) {
      const bfloat16x8_t* x = args.rows + (size_t{row / kBlock + b} * args.steps + start) * kStepVectors;
      for (uint32_t g = 0; g < groups; g++)
        multiply_block<Type != FloatType::kBf16>(x, weights + size_t{g} * steps * kStepVectors, steps,
                                                 sums + b * kBlock * kTileColumns + g * kBlockSums, start == 0);
    }
  }
  write_sums(args, row, column, sums);
}

Bf16Linear read_bf16_linear(const Call& call) {
  Bf16Linear args{read_float_call(call)};
  args.steps = ceil_div(args.k, kStep);
  args.row_tiles = ceil_div(args.m, kTileRows);
  args.rows = buffer_of<bfloat16x8_t>(call, float_linear::kScratch);
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
