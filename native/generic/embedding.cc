// Embedding lookups in weights packed for linear layers, where only the row is read and not its panel, and in TorchAO's
// embedding layout. Ids out of range give rows of NaN: see families/embedding/embedding.h.
#include "../families/embedding/embedding.h"
#include "../families/linear/packed_rows.h"
#include "floats.h"

namespace lowbit {
namespace {

template <class Args>
void split_indices(Step& step, Args& args, uint32_t dim, uint32_t threads) {
  args.per_tile = items_per_tile<FloatsBaseline>(args.indices.count, kTileValues / 4 / std::max(1u, dim), threads);
  step.phases = 1;
  step.tiles[0] = ceil_div(args.indices.count, args.per_tile);
}

template <class Layout>
struct SharedArgs {
  Panels weights;
  float* y;
  // Scales and minima of a row, per thread.
  float* scales;
  Indices indices;
  // Row of the table that is the first of the weights, and all rows of the table.
  uint32_t first, rows;
  uint32_t per_tile;
};

template <class Layout, int Bits>
void shared_run(const Step& step, uint32_t, uint32_t tile, uint32_t thread) {
  const auto& args = step.as<SharedArgs<Layout>>();
  const Panels& w = args.weights;
  float* scales = args.scales + size_t{thread} * 2 * w.part_count();
  const uint32_t last = std::min(args.indices.count, (tile + 1) * args.per_tile);
  for (uint32_t i = tile * args.per_tile; i < last; i++) {
    const int64_t row = args.indices.at(i);
    float* y = args.y + size_t{i} * w.k;
    if (row < 0 || row >= args.rows) {
      fill_nan(y, w.k);
      continue;
    }
    if (row < args.first || row - args.first >= w.n) {
      std::fill_n(y, w.k, 0.0f);
      continue;
    }
    const DecodedRow<float> target{y, scales, scales + w.part_count(), w.group_size};
    const uint32_t at = static_cast<uint32_t>(row - args.first);
    Layout::template read<Bits>(w, at / Layout::kRows, at % Layout::kRows, 1, &target);
    scale_row(w, target);
  }
}

using Run = void (*)(const Step&, uint32_t, uint32_t, uint32_t);

template <class Layout>
Panels open_table(const Call& call) {
  const auto given = arguments_of<SharedEmbeddingArguments>(call);
  return Layout::open(given.weights, {given.n, given.k, given.group_size});
}

template <class Layout>
size_t shared_scratch(const Call& call) {
  return size_t{8} * open_table<Layout>(call).part_count() * call.threads;
}

template <class Layout>
struct SharedRuns {
  template <int Bits>
  static constexpr Run kRun = shared_run<Layout, Bits>;
};

template <class Layout>
void shared_prepare(Step& step, const Call& call) {
  const auto given = arguments_of<SharedEmbeddingArguments>(call);
  constexpr Run kRuns[] = LOWBIT_BY_BITS(SharedRuns<Layout>::template kRun);
  auto& args = step.init<SharedArgs<Layout>>();
  args.weights = open_table<Layout>(call);
  args.indices = {given.indices, static_cast<uint32_t>(given.count), given.indices_bytes == 8};
  args.y = given.y;
  args.scales = static_cast<float*>(given.scratch);
  args.first = given.first;
  args.rows = given.rows;
  split_indices(step, args, args.weights.k, call.threads);
  step.run = kRuns[args.weights.bits - 1];
}

struct PackedArgs {
  const uint8_t* packed;
  const float* scales;
  const int8_t* zeros;
  float* y;
  Indices indices;
  uint32_t rows, dim, groups, per_tile;
};

// Bytes before the first row: the header of TorchAO's packed weights.
constexpr size_t kTorchaoHeader = 64;

template <int Bits>
void read_packed_row(const PackedArgs& args, size_t row, float* y) {
  constexpr int32_t kOffset = Bits < 8 ? 1 << (Bits - 1) : 0;
  const uint8_t* bytes = args.packed + kTorchaoHeader + row * args.dim * Bits / 8;
  const uint32_t group_size = args.dim / args.groups;
  uint8_t values[128];
  for (uint32_t start = 0, size = 0; start < args.dim; start += size) {
    const uint32_t left = args.dim - start;
    size = left >= 128 ? 128 : left >= 64 ? 64 : 32;
    unpack_chunk<Bits>(bytes + static_cast<size_t>(start) * Bits / 8, size, values);
    for (uint32_t c = 0; c < size;) {
      const uint32_t group = (start + c) / group_size;
      const uint32_t end = std::min(size, (group + 1) * group_size - start);
      const float scale = args.scales[row * args.groups + group];
      const int32_t zero = args.zeros[row * args.groups + group] + kOffset;
      for (; c < end; c++) {
        const int32_t q = Bits == 8 ? static_cast<int8_t>(values[c]) : values[c];
        y[start + c] = static_cast<float>(q - zero) * scale;
      }
    }
  }
}

template <int Bits>
void packed_run(const Step& step, uint32_t, uint32_t tile, uint32_t) {
  const PackedArgs& args = step.as<PackedArgs>();
  const uint32_t last = std::min(args.indices.count, (tile + 1) * args.per_tile);
  for (uint32_t i = tile * args.per_tile; i < last; i++) {
    const int64_t row = args.indices.at(i);
    float* y = args.y + static_cast<size_t>(i) * args.dim;
    if (row < 0 || row >= args.rows) fill_nan(y, args.dim);
    else read_packed_row<Bits>(args, static_cast<size_t>(row), y);
  }
}

void packed_prepare(Step& step, const Call& call) {
  const auto given = arguments_of<EmbeddingPackedArguments>(call);
  constexpr Run kRuns[] = LOWBIT_BY_BITS(packed_run);
  PackedArgs& args = step.init<PackedArgs>();
  args.rows = given.rows;
  args.dim = given.dim;
  args.groups = given.groups;
  args.packed = given.packed;
  args.scales = given.scales;
  args.zeros = given.zeros;
  args.indices = {given.indices, static_cast<uint32_t>(given.count), given.indices_bytes == 8};
  args.y = given.y;
  split_indices(step, args, args.dim, call.threads);
  step.run = kRuns[given.bits - 1];
}

constexpr KernelRow kRows[] = {
    {"shared_embedding_wx_1x1x16_" LOWBIT_FLOATS_TARGET, "shared_embedding", "panel16", kBits1To8 | kReadsMinima,
     kBaselineNeeds, 1, 1, shared_scratch<PanelRows<Panel16Places>>, shared_prepare<PanelRows<Panel16Places>>},
    {"shared_embedding_wx_1x1x32_" LOWBIT_FLOATS_TARGET, "shared_embedding", "panel32", kBits1To8 | kReadsMinima,
     kBaselineNeeds, 1, 1, shared_scratch<PanelRows<Panel32Places>>, shared_prepare<PanelRows<Panel32Places>>},
    {"shared_embedding_wx_1x1x8_" LOWBIT_FLOATS_TARGET, "shared_embedding", "torchao_universal", kBits1To8,
     kBaselineNeeds, 1, 1, shared_scratch<TorchaoRows>, shared_prepare<TorchaoRows>},
    {"embedding_wx_1x1x1_" LOWBIT_FLOATS_TARGET, "embedding_packed", "torchao_embedding", kBits1To8, kBaselineNeeds, 1,
     1, nullptr, packed_prepare},
};

}  // namespace

KernelRows embedding_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
