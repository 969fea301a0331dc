// GEMM over float weights on AMX, y = x . w^T + bias. Each factor is an exact sum of bf16 parts (split_bf16.h): x and
// f32 weights of three, f16 weights of two, bf16 weights of one. Products of parts below 2^-24 of the whole are left
// out: the error is that of sums in f32. Rows of x that are bf16 have one part that is not zero; others are left out.
#include <algorithm>

#include "../families/linear/arguments.h"
#include "../families/linear/float_call.h"
#include "split_bf16.h"
#include "tiles_amx.h"

namespace lowbit {
namespace {

// Rows of x, columns of y and values of k that a tile of work multiplies at a time: weights, x and sums stay in the
// second-level cache.
constexpr uint32_t kTileRows = 512, kTileColumns = 128, kDepth = 1024;
// Values of k that a product of tiles sums.
constexpr uint32_t kStep = 32;

// Most parts of a factor; x has as many.
constexpr uint32_t kParts = 3;
// Bytes of one step of 16 rows of x.
constexpr uint32_t kRowBytes = kParts * kTileBytes;

// Parts of weights of a type.
constexpr uint32_t parts_of(FloatType type) {
  return type == FloatType::kBf16 ? 1 : type == FloatType::kF16 ? 2 : kParts;
}

struct AmxFloatLinear : FloatCall {
  // x as tiles [blocks of 16 rows][steps of k][parts]. is_bf16: for each block, whether all parts but the first are 0.
  uint8_t* rows;
  uint8_t* is_bf16;
  // Per thread: weights as tiles [16 columns][steps of kDepth][parts], then sums [16 rows][16 columns].
  uint8_t* local;
  uint32_t steps, row_tiles;

  uint32_t row_blocks() const { return 2 * ceil_div(m, 32); }
  size_t flag_bytes() const { return round_up(row_blocks(), 64); }
  size_t rows_bytes() const { return size_t{row_blocks()} * steps * kRowBytes; }
};
static_assert(sizeof(AmxFloatLinear) <= kArgsMax);

constexpr size_t kWeightBytes = kTileColumns / 16 * (kDepth / kStep) * kParts * kTileBytes;
constexpr size_t kSumBytes = kTileRows / 16 * (kTileColumns / 16) * kTileBytes;

inline __m512 load_first(const float* p, uint32_t count) {
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>(count >= 16 ? 0xffff : (1u << count) - 1), p);
}

// Splits up to 32 floats; values from `count` on are 0.
inline ThreeParts split_floats(const float* p, uint32_t count) {
  return split_wholly(load_first(p, count), count > 16 ? load_first(p + 16, count - 16) : _mm512_setzero_ps());
}

// Splits up to 32 f16 values, whose third part is 0.
inline ThreeParts split_halves(const uint16_t* p, uint32_t count) {
  const __m512i all = _mm512_maskz_loadu_epi16(count >= 32 ? 0xffffffffu : (1u << count) - 1, p);
  return split_wholly(_mm512_cvtph_ps(_mm512_castsi512_si256(all)), _mm512_cvtph_ps(_mm512_extracti64x4_epi64(all, 1)));
}

// Splits a block of 16 rows of x.
void split_rows(const AmxFloatLinear& args, uint32_t block) {
  uint8_t* tile = args.rows + size_t{block} * args.steps * kRowBytes;
  // The rest of a value, which may be -0, is 0 where its second part is.
  __m512i left = _mm512_setzero_si512();
  for (uint32_t step = 0; step < args.steps; step++, tile += kRowBytes) {
    const uint32_t c = step * kStep;
    for (uint32_t i = 0; i < 16; i++) {
      const uint32_t row = 16 * block + i;
      ThreeParts split{};
      if (row < args.m) split = split_floats(args.x + size_t{row} * args.k + c, args.k - c);
      for (uint32_t part = 0; part < kParts; part++)
        _mm512_store_si512(tile + part * kTileBytes + 64 * i, split.parts[part]);
      left = _mm512_or_si512(left, split.parts[1]);
    }
  }
  args.is_bf16[block] = _mm512_test_epi16_mask(left, _mm512_set1_epi16(0x7fff)) == 0;
}

inline ThreeParts split_weights(const AmxFloatLinear& args, size_t at, uint32_t count) {
  const uint16_t* words = static_cast<const uint16_t*>(args.weights) + at;
  switch (args.type) {
    case FloatType::kBf16: return {{_mm512_maskz_loadu_epi16(count >= 32 ? 0xffffffffu : (1u << count) - 1, words)}};
    case FloatType::kF16: return split_halves(words, count);
    case FloatType::kF32: return split_floats(static_cast<const float*>(args.weights) + at, count);
  }
  return {};
}

// Packs the weights of 16 columns of y from `column` on, `steps` steps of k from `start` on. Two k of a column are
// neighbours, as products of tiles need them.
void pack_columns(const AmxFloatLinear& args, uint32_t column, uint32_t start, uint32_t steps, uint8_t* tile) {
  const uint32_t count = parts_of(args.type);
  for (uint32_t step = 0; step < steps; step++, tile += count * kTileBytes) {
    const uint32_t c = start + step * kStep;
    __m512i parts[kParts][16];
    for (uint32_t i = 0; i < 16; i++) {
      ThreeParts split{};
      if (column + i < args.n) split = split_weights(args, size_t{column + i} * args.k + c, args.k - c);
      for (uint32_t part = 0; part < count; part++) parts[part][i] = split.parts[part];
    }
    for (uint32_t part = 0; part < count; part++) {
      transpose16(parts[part]);
      for (int i = 0; i < 16; i++) _mm512_store_si512(tile + part * kTileBytes + 64 * i, parts[part][i]);
    }
  }
}

// Adds `steps` steps of k to the sums of 32 rows by 32 columns: the products of parts i of x and j of weights with i +
// j <= 2, the largest last, and only those with i = 0 where x is bf16.
template <uint32_t Count, bool IsBf16>
void multiply_block(const uint8_t* a, size_t a_stride, const uint8_t* b, size_t b_stride, uint32_t steps, uint8_t* sums,
                    bool first) {
  constexpr size_t kNextRows = kTileColumns / 16 * kTileBytes;
  const auto left = [&](uint32_t part) LOWBIT_INLINE {
    load_left(a + part * kTileBytes, a + a_stride + part * kTileBytes);
  };
  const auto right = [&](uint32_t part) LOWBIT_INLINE {
    load_right(b + part * kTileBytes, b + b_stride + part * kTileBytes);
  };
  begin_sums(sums, kNextRows, first);
  for (uint32_t step = 0; step < steps; step++, a += kRowBytes, b += Count * kTileBytes) {
    if constexpr (IsBf16) {
      left(0);
      for (uint32_t part = Count; part-- > 0;) {
        right(part);
        multiply_bf16();
      }
      continue;
    }
    if constexpr (Count == 3) {
      right(2);
      left(0);
      multiply_bf16();
    }
    if constexpr (Count >= 2) {
      right(1);
      if constexpr (Count == 2) left(0);
      multiply_bf16();
      left(1);
      multiply_bf16();
    }
    right(0);
    if constexpr (Count == 1) left(1);
    multiply_bf16();
    left(2);
    multiply_bf16();
    left(0);
    multiply_bf16();
  }
  end_sums(sums, kNextRows);
}

using MultiplyBlock = decltype(&multiply_block<1, false>);

template <bool IsBf16>
MultiplyBlock multiply_of(FloatType type) {
  switch (parts_of(type)) {
    case 1: return multiply_block<1, IsBf16>;
    case 2: return multiply_block<2, IsBf16>;
    default: return multiply_block<kParts, IsBf16>;
  }
}

void write_sums(const AmxFloatLinear& args, uint32_t row, uint32_t column, const uint8_t* sums) {
  for (uint32_t i = row; i < std::min(args.m, row + kTileRows); i++) {
    const uint32_t block = (i - row) / 16 * (kTileColumns / 16);
    for (uint32_t j = column; j < std::min(args.n, column + kTileColumns); j += 16) {
      const __mmask16 mask = static_cast<__mmask16>(args.n - j >= 16 ? 0xffff : (1u << (args.n - j)) - 1);
      __m512 v = _mm512_load_ps(sums + (block + (j - column) / 16) * kTileBytes + (i - row) % 16 * 64);
      if (args.bias) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(mask, args.bias + j));
      _mm512_mask_storeu_ps(args.y + size_t{i} * args.n + j, mask, v);
    }
  }
}

void amx_float_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread) {
  const AmxFloatLinear& args = step.as<AmxFloatLinear>();
  if (phase == 0) return split_rows(args, tile);
  const TileScope scope;
  uint8_t* weights = args.local + thread * (kWeightBytes + kSumBytes);
  uint8_t* sums = weights + kWeightBytes;
  const uint32_t row = tile % args.row_tiles * kTileRows, column = tile / args.row_tiles * kTileColumns;
  const uint32_t blocks = std::min(kTileRows / 16, args.row_blocks() - row / 16);
  const uint32_t groups = 2 * ceil_div(std::min(kTileColumns, args.n - column), 32);
  const size_t row_stride = size_t{args.steps} * kRowBytes;
  const size_t column_stride = kDepth / kStep * parts_of(args.type) * kTileBytes;
  const MultiplyBlock multiplies[] = {multiply_of<false>(args.type), multiply_of<true>(args.type)};
  for (uint32_t start = 0; start < args.steps; start += kDepth / kStep) {
    const uint32_t steps = std::min(kDepth / kStep, args.steps - start);
    for (uint32_t g = 0; g < groups; g++)
      pack_columns(args, column + 16 * g, start * kStep, steps, weights + g * column_stride);
    for (uint32_t b = 0; b < blocks; b += 2) {
      const uint8_t* x = args.rows + (row / 16 + b) * row_stride + size_t{start} * kRowBytes;
      const uint8_t* is_bf16 = args.is_bf16 + row / 16 + b;
      const MultiplyBlock multiply = multiplies[is_bf16[0] & is_bf16[1]];
      for (uint32_t g = 0; g < groups; g += 2) {
        uint8_t* at = sums + (b * (kTileColumns / 16) + g) * kTileBytes;
        multiply(x, row_stride, weights + g * column_stride, column_stride, steps, at, start == 0);
      }
    }
  }
  write_sums(args, row, column, sums);
}

AmxFloatLinear read_amx_float(const Call& call) {
  const auto given = arguments_of<LinearFloatArguments>(call);
  AmxFloatLinear args{read_float_call(call)};
  args.steps = ceil_div(args.k, kStep);
  args.row_tiles = ceil_div(args.m, kTileRows);
  args.rows = static_cast<uint8_t*>(given.scratch);
  args.is_bf16 = args.rows + args.rows_bytes();
  args.local = args.is_bf16 + args.flag_bytes();
  return args;
}

size_t amx_float_scratch(const Call& call) {
  const AmxFloatLinear args = read_amx_float(call);
  return args.rows_bytes() + args.flag_bytes() + call.threads * (kWeightBytes + kSumBytes);
}

void amx_float_prepare(Step& step, const Call& call) {
  AmxFloatLinear& args = step.init<AmxFloatLinear>();
  args = read_amx_float(call);
  step.phases = 2;
  step.tiles[0] = args.row_blocks();
  step.tiles[1] = args.row_tiles * ceil_div(args.n, kTileColumns);
  step.run = amx_float_run;
}

constexpr KernelRow kRows[] = {
    {"linear_f32_f32_128x32x32_amx_bf16", "linear_float", nullptr, 0, kAvx2 | kAvx512 | kAvx512Bf16 | kAmxBf16, 128, 32,
     amx_float_scratch, amx_float_prepare},
};

}  // namespace

KernelRows linear_float_amx_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
