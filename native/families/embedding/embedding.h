// Rows of float tables by token id. Ids out of range give rows of NaN, since a kernel cannot raise errors; operators
// check ids before.
#pragma once

#include <cmath>
#include <cstring>

#include "../../half.h"
#include "../division.h"
#include "arguments.h"

namespace lowbit {

struct Indices {
  const void* data;
  uint32_t count;
  bool wide;

  // Read once, so that the value that was checked is the value that is used.
  int64_t at(uint32_t i) const {
    return wide ? static_cast<const volatile int64_t*>(data)[i] : static_cast<const volatile int32_t*>(data)[i];
  }
};

static inline void fill_nan(float* y, size_t count) {
  for (size_t i = 0; i < count; i++) y[i] = NAN;
}

struct FloatEmbeddingArgs {
  const void* weights;
  float* y;
  Indices indices;
  uint32_t rows, dim, per_tile;
  FloatType type;
};

template <class Isa>
void read_float_row(const FloatEmbeddingArgs& args, size_t start, float* y) {
  const uint16_t* words = static_cast<const uint16_t*>(args.weights) + start;
  switch (args.type) {
    case FloatType::kF32:
      memcpy(y, static_cast<const float*>(args.weights) + start, 4 * static_cast<size_t>(args.dim));
      return;
    case FloatType::kF16:
      each_vector<Isa>(args.dim, [&](size_t i, auto vector) { vector.store(y + i, vector.load(words + i)); });
      return;
    case FloatType::kBf16:
      for (uint32_t i = 0; i < args.dim; i++) y[i] = bf16_to_float(words[i]);
      return;
  }
}

template <class Isa>
void embedding_float_run(const Step& step, uint32_t, uint32_t tile, uint32_t) {
  const FloatEmbeddingArgs& args = step.as<FloatEmbeddingArgs>();
  const uint32_t last = std::min(args.indices.count, (tile + 1) * args.per_tile);
  for (uint32_t i = tile * args.per_tile; i < last; i++) {
    const int64_t row = args.indices.at(i);
    float* y = args.y + static_cast<size_t>(i) * args.dim;
    if (row < 0 || row >= args.rows) fill_nan(y, args.dim);
    else read_float_row<Isa>(args, static_cast<size_t>(row) * args.dim, y);
  }
}

template <class Isa>
void embedding_float_prepare(Step& step, const Call& call) {
  const auto given = arguments_of<EmbeddingFloatArguments>(call);
  FloatEmbeddingArgs& args = step.init<FloatEmbeddingArgs>();
  args.rows = given.rows;
  args.dim = given.dim;
  args.type = static_cast<FloatType>(given.weights_type);
  args.indices = {given.indices, static_cast<uint32_t>(given.count), given.indices_bytes == 8};
  args.weights = given.weights;
  args.y = given.y;
  args.per_tile = items_per_tile<Isa>(args.indices.count, kTileValues / std::max(1u, args.dim), call.threads);
  step.phases = 1;
  step.tiles[0] = ceil_div(args.indices.count, args.per_tile);
  step.run = embedding_float_run<Isa>;
}

}  // namespace lowbit
