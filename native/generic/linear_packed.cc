// Linear layers over packed weights of any layout, for CPUs without better kernels: the weights of a panel are decoded,
// then multiplied by plain loops (int8 activations) or baseline vectors (float activations).
#include "../families/linear/arguments.h"
#include "../families/linear/float_rows.h"
#include "../families/linear/packed_rows.h"
#include "../families/linear/panel16_linear.h"
#include "floats.h"

namespace lowbit {
namespace {

using Run = void (*)(const Step&, uint32_t, uint32_t, uint32_t);

struct DecodedLinear {
  Panels weights;
  QuantizedRows rows;
  const float* x;
  float* y;
  // Per thread: values and scales of a panel.
  uint8_t* decoded;
  uint32_t m, rows_per_tile;
};
static_assert(sizeof(DecodedLinear) <= kArgsMax);

// Bytes of a panel decoded to values of type T.
template <class Layout, class T>
size_t decoded_bytes(const Panels& w) {
  return round_up(Layout::kRows * (sizeof(T) * w.padded_k() + 2 * sizeof(float) * w.part_count()), 64);
}

template <class Layout, class T, int Bits>
void decode_panel(const Panels& w, uint32_t panel, size_t group_stride, void* memory, DecodedRow<T>* rows) {
  float* scales = static_cast<float*>(memory);
  float* minima = scales + Layout::kRows * w.part_count();
  T* values = reinterpret_cast<T*>(minima + Layout::kRows * w.part_count());
  for (uint32_t i = 0; i < Layout::kRows; i++) {
    const size_t first = size_t{i} * w.part_count();
    rows[i] = {values + size_t{i} * w.padded_k(), scales + first, minima + first, group_stride};
  }
  Layout::template read<Bits>(w, panel, 0, Layout::kRows, rows);
}

// Most terms |weight| <= 255 times |activation| <= 128 whose sum fits 32 bits.
constexpr uint32_t kExactTerms = 32768;

// One element of y, as defined by src/kernels/families/linear/reference.ts.
inline float dot_quantized(const DecodedLinear& args, uint32_t row, const DecodedRow<int16_t>& weights) {
  const Panels& w = args.weights;
  const QuantizedRows& rows = args.rows;
  const int8_t* x = rows.values + row * rows.stride();
  const int64_t zero = rows.in_blocks ? 0 : rows.zeros[row];
  double total = 0;
  for (uint32_t i = 0; i < rows.block_count; i++) {
    const uint32_t g = i / rows.blocks, start_of = i % rows.blocks * rows.block_length, columns = w.part_columns(g);
    const uint32_t count = start_of < columns ? std::min(rows.block_length, columns - start_of) : 0;
    const int16_t* values = weights.values + size_t{g} * w.part_length() + start_of;
    const int8_t* q = x + size_t{i} * rows.block_length;
    int64_t exact = 0;
    for (uint32_t start = 0; start < count; start += kExactTerms) {
      const uint32_t end = std::min(count, start + kExactTerms);
      int32_t dot = 0, sum = 0;
      for (uint32_t c = start; c < end; c++) {
        dot += values[c] * q[c];
        sum += values[c];
      }
      exact += dot - zero * sum;
    }
    const size_t block = size_t{row} * rows.block_count + i;
    const double factor = rows.numbers[block].factor;
    total += static_cast<double>(weights.scales[g]) * static_cast<double>(exact) * factor;
    if (w.has_minima) {
      const int64_t inputs = rows.numbers[block].sum - zero * count;
      total += static_cast<double>(weights.minima[g]) * static_cast<double>(inputs) * factor;
    }
  }
  return static_cast<float>(rows.in_blocks ? total : total * rows.scales[row]);
}

template <class Layout, int Bits>
void quantized_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread) {
  const DecodedLinear& args = step.as<DecodedLinear>();
  const Panels& w = args.weights;
  if (phase == 0) {
    const uint32_t first = tile * args.rows_per_tile;
    const auto quantize = args.rows.in_blocks ? ScalarQuantizer::quantize_blocks : ScalarQuantizer::quantize_rows;
    return quantize(args.x, w, args.rows, first, std::min(args.m, first + args.rows_per_tile));
  }
  DecodedRow<int16_t> rows[Layout::kRows];
  void* memory = args.decoded + thread * decoded_bytes<Layout, int16_t>(w);
  decode_panel<Layout, int16_t, Bits>(w, tile, w.group_length, memory, rows);
  for (uint32_t i = 0, column = tile * Layout::kRows; i < Layout::kRows && column < w.n; i++, column++) {
    const float bias = Layout::bias(w, column);
    for (uint32_t row = 0; row < args.m; row++)
      args.y[size_t{row} * w.n + column] = dot_quantized(args, row, rows[i]) + bias;
  }
}

template <class Layout, int Bits>
void weight_only_run(const Step& step, uint32_t, uint32_t tile, uint32_t thread) {
  const DecodedLinear& args = step.as<DecodedLinear>();
  const Panels& w = args.weights;
  DecodedRow<float> rows[Layout::kRows];
  void* memory = args.decoded + thread * decoded_bytes<Layout, float>(w);
  decode_panel<Layout, float, Bits>(w, tile, w.group_size, memory, rows);
  float bias[Layout::kRows] = {};
  const uint32_t first = tile * Layout::kRows, count = std::min(Layout::kRows, w.n - first);
  for (uint32_t i = 0; i < count; i++) {
    bias[i] = Layout::bias(w, first + i);
    scale_row(w, rows[i]);
  }
  dot_many_rows<FloatsBaseline>(
      {args.x, rows[0].values, args.y + first, bias, w.k, w.padded_k(), w.n, args.m, count, w.k, false});
}

// Takes the shape from the call, since headers of TorchAO's layout lack it.
template <class Layout>
Panels open_weights(const Call& call) {
  const auto given = arguments_of<PackedLinearArguments>(call);
  return Layout::open(given.weights, {given.n, given.k, given.group_size});
}

template <class Layout>
DecodedLinear read_decoded_linear(const Call& call) {
  const auto given = arguments_of<PackedLinearArguments>(call);
  DecodedLinear args{};
  args.weights = open_weights<Layout>(call);
  args.m = given.m;
  args.x = given.x;
  args.y = given.y;
  return args;
}

template <class Layout, Granularity Activations>
size_t quantized_scratch(const Call& call) {
  const DecodedLinear args = read_decoded_linear<Layout>(call);
  return quantized_bytes(args.m, args.weights, Activations) +
         call.threads * decoded_bytes<Layout, int16_t>(args.weights);
}

template <class Layout>
size_t weight_only_scratch(const Call& call) {
  return call.threads * decoded_bytes<Layout, float>(open_weights<Layout>(call));
}

template <class Layout>
struct Runs {
  template <int Bits>
  static constexpr Run kQuantized = quantized_run<Layout, Bits>;
  template <int Bits>
  static constexpr Run kWeightOnly = weight_only_run<Layout, Bits>;
};

template <class Layout, Granularity Activations>
void quantized_prepare(Step& step, const Call& call) {
  const auto given = arguments_of<PackedLinearArguments>(call);
  constexpr Run kRuns[] = LOWBIT_BY_BITS(Runs<Layout>::template kQuantized);
  DecodedLinear& args = step.init<DecodedLinear>();
  args = read_decoded_linear<Layout>(call);
  uint8_t* scratch = static_cast<uint8_t*>(given.scratch);
  args.rows = quantized_rows(scratch, args.m, args.weights, Activations);
  args.decoded = scratch + quantized_bytes(args.m, args.weights, Activations);
  args.rows_per_tile = std::max(1u, ceil_div(args.m, 4 * call.threads));
  step.phases = 2;
  step.tiles[0] = ceil_div(args.m, args.rows_per_tile);
  step.tiles[1] = args.weights.panel_count;
  step.run = kRuns[args.weights.bits - 1];
}

template <class Layout>
void weight_only_prepare(Step& step, const Call& call) {
  const auto given = arguments_of<PackedLinearArguments>(call);
  constexpr Run kRuns[] = LOWBIT_BY_BITS(Runs<Layout>::template kWeightOnly);
  DecodedLinear& args = step.init<DecodedLinear>();
  args = read_decoded_linear<Layout>(call);
  args.decoded = static_cast<uint8_t*>(given.scratch);
  step.phases = 1;
  step.tiles[0] = args.weights.panel_count;
  step.run = kRuns[args.weights.bits - 1];
}

using Panel16Rows = PanelRows<Panel16Places>;
using Panel32Rows = PanelRows<Panel32Places>;

template <class Layout, Granularity Activations>
constexpr KernelRow quantized_row(const char* name, const char* family, const char* layout, uint32_t bits) {
  return {name,
          family,
          layout,
          bits,
          kBaselineNeeds,
          1,
          Layout::kRows,
          quantized_scratch<Layout, Activations>,
          quantized_prepare<Layout, Activations>};
}

constexpr Granularity kRow = Granularity::kRow, kBlock = Granularity::kBlock;
constexpr KernelRow kRows[] = {
    quantized_row<Panel16Rows, kRow>("linear_a8_wx_1x16x1_" LOWBIT_FLOATS_TARGET, "linear_a8", "panel16",
                                     kBits1To8 | kReadsMinima),
    quantized_row<Panel32Rows, kRow>("linear_a8_wx_1x32x1_" LOWBIT_FLOATS_TARGET, "linear_a8", "panel32",
                                     kBits1To8 | kReadsMinima),
    quantized_row<TorchaoRows, kRow>("linear_a8_wx_1x8x1_" LOWBIT_FLOATS_TARGET, "linear_a8", "torchao_universal",
                                     kBits1To8),
    quantized_row<Panel16Rows, kBlock>("linear_a8b32_wx_1x16x1_" LOWBIT_FLOATS_TARGET, "linear_a8b32", "panel16",
                                       kBits1To8 | kReadsMinima),
    quantized_row<Panel32Rows, kBlock>("linear_a8b32_wx_1x32x1_" LOWBIT_FLOATS_TARGET, "linear_a8b32", "panel32",
                                       kBits1To8 | kReadsMinima),
    quantized_row<TorchaoRows, kBlock>("linear_a8b32_wx_1x8x1_" LOWBIT_FLOATS_TARGET, "linear_a8b32",
                                       "torchao_universal", kBits1To8),
#if !defined(__aarch64__)
    {"linear_f32_wx_1x16x4_" LOWBIT_FLOATS_TARGET, "linear_weight_only", "panel16", kBits1To8 | kReadsMinima,
     kBaselineNeeds, 1, 16, weight_only_scratch<Panel16Rows>, weight_only_prepare<Panel16Rows>},
    {"linear_f32_wx_1x32x4_" LOWBIT_FLOATS_TARGET, "linear_weight_only", "panel32", kBits1To8 | kReadsMinima,
     kBaselineNeeds, 1, 32, weight_only_scratch<Panel32Rows>, weight_only_prepare<Panel32Rows>},
#endif
    {"linear_f32_wx_1x8x4_" LOWBIT_FLOATS_TARGET, "linear_weight_only", "torchao_universal", kBits1To8, kBaselineNeeds,
     1, 8, weight_only_scratch<TorchaoRows>, weight_only_prepare<TorchaoRows>},
};

}  // namespace

KernelRows linear_packed_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
