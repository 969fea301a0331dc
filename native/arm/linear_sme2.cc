// GEMM over panel32 weights with int8 activations, by the outer products of SME2 (streaming.h). A tile has as many rows
// as a streaming vector has 32-bit numbers. panel32.h has the formula.
//
// Cores share streaming units, and one thread keeps a unit busy. So as many threads stream as there are units. The
// others compute tiles of the same call by NEON's matrix products, with the same bits.
#include "panel32_gemm.h"
#include "panel32_i8mm.h"
#include "streaming.h"

#include "../kernel.h"

namespace lowbit {
namespace {

struct Streamed32 : Linear32 {
  // What threads that do not stream run.
  Run plain;
  uint32_t streams;
};
static_assert(sizeof(Streamed32) <= kArgsMax);

constexpr uint32_t kRowsMax = 16;

// Stores a row twice: in twos of rows for threads that do not stream, and as [k / 4][streaming_rows()][4 k].
constexpr int kTwoOrders = 3;

template <>
inline void store_values<kTwoOrders>(const Linear32& args, uint32_t row, uint32_t k, int8x16_t q) {
  store_values<2>(args, row, k, q);
  const uint32_t rows = streaming_rows();
  int32_t* tile = reinterpret_cast<int32_t*>(args.rows.streamed + row / rows * rows * size_t{args.weights.padded_k()});
  int32_t* out = tile + k / 4 * rows + streaming_place(row % rows, rows);
  vst1q_lane_s32(out, vreinterpretq_s32_s8(q), 0);
  vst1q_lane_s32(out + rows, vreinterpretq_s32_s8(q), 1);
  vst1q_lane_s32(out + 2 * rows, vreinterpretq_s32_s8(q), 2);
  vst1q_lane_s32(out + 3 * rows, vreinterpretq_s32_s8(q), 3);
}

// Order of an unpacked panel: [pair of streaming vectors][k / 4][2 * streaming_rows()][4 k].
struct StreamingIsa {
  static constexpr size_t kScaleCopies = 1;

  static void store_weights(int8_t* panel, QuadColumns columns, int8x16_t low, int8x16_t high) {
    const uint32_t rows = 2 * streaming_rows(), quads = rows / 4;
    int8_t* pair = panel + columns.quad / quads * rows * columns.padded_k;
    int8_t* at = pair + columns.column * rows + columns.quad % quads * 16;
    vst1q_s8(at, low);
    vst1q_s8(at + 4 * rows, high);
  }
  static void store_scales(float* at, float32x4_t scales) { vst1q_f32(at, scales); }
};

// of[streaming_place(row)] = row.
struct Places {
  uint32_t of[kRowsMax];

  explicit Places(uint32_t rows) {
    for (uint32_t row = 0; row < rows; row++) of[streaming_place(row, rows)] = row;
  }
};

void stream_rows(const Linear32& args, const UnpackedPanel& panel, uint32_t index, uint32_t row, uint32_t end) {
  const Panels& w = args.weights;
  const uint32_t rows = streaming_rows();
  const size_t padded_k = w.padded_k();
  const Places places(rows);
  alignas(64) float totals[kRowsMax][kPanelRows];
  StreamingTile tile{};
  tile.groups = w.part_count();
  tile.group_length = w.part_length();
  tile.chunk = args.chunk;
  tile.chunk_stride = sizeof(float) * args.rows.row_stride;
  tile.flags = (args.rows.in_blocks ? kStreamingFactors : 0) | (w.has_minima    ? kStreamingMinima
                                                                : w.any_zeros() ? kStreamingZeros
                                                                                : 0);
  tile.places = places.of;
  for (; row < end; row += rows) {
    tile.x = args.rows.streamed + row * padded_k;
    tile.factors = args.rows.factors + row;
    tile.sums = args.rows.sums + row;
    for (uint32_t column = 0; column < kPanelRows; column += 2 * rows) {
      tile.weights = panel.vectors + column * padded_k;
      tile.scales = panel.scales + column;
      tile.zeros = panel.zeros + column;
      tile.totals = totals[0] + column;
      multiply_streaming(tile);
    }
    for (uint32_t r = row; r < std::min(args.m, row + rows); r++) {
      float32x4_t quads[kQuads];
      for (uint32_t quad = 0; quad < kQuads; quad++) quads[quad] = vld1q_f32(totals[r - row] + 4 * quad);
      finish_row(args, index, r, quads);
    }
  }
}

template <int Bits, bool Levels>
void stream_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread) {
  const Streamed32& args = step.as<Streamed32>();
  if (phase == 0) return quantize_rows<kTwoOrders>(args, tile, nullptr);
  if (thread >= args.streams) return args.plain(step, phase, tile, thread);
  const UnpackedPanel panel = unpacked_panel<StreamingIsa>(args, thread);
  const auto [index, first, end] = PassTile(args, tile, streaming_rows());
  unpack_panel<StreamingIsa, Bits, Levels>(args.weights, index, panel);
  stream_rows(args, panel, index, first, end);
}

struct StreamCode {
  template <int Bits, bool Levels>
  static constexpr Run run() {
    return stream_run<Bits, Levels>;
  }
};

struct PlainIsa {
  static constexpr size_t kScaleCopies = kI8mmScaleCopies;
};

// Takes an unpacked panel of NEON's size for each thread. Those of threads that stream are smaller and come first, so
// that they do not reach the others'.
size_t carve_streamed(Linear32& args, uint8_t* base, uint32_t threads) {
  Carver carver{base};
  carve_activations(carver, args, streaming_rows(), 0);
  args.rows.streamed = carver.take<int8_t>(size_t{args.rows.row_stride} * args.weights.padded_k());
  args.unpacked = carver.take<uint8_t>(threads * unpacked_bytes<PlainIsa>(args.weights));
  return carver.size;
}

template <Granularity Of>
size_t stream_scratch(const Call& call) {
  Linear32 args;
  read_call(args, call, Of);
  return carve_streamed(args, nullptr, call.threads);
}

template <Granularity Of>
void prepare_stream(Step& step, const Call& call) {
  const auto given = arguments_of<PackedLinearArguments>(call);
  Streamed32& args = step.init<Streamed32>();
  read_call(args, call, Of);
  carve_streamed(args, static_cast<uint8_t*>(given.scratch), call.threads);
  args.plain = i8mm_run(args.weights);
  args.streams = streaming_units();
  split_passes(step, args, streaming_rows(), call.threads);
  step.run = choose_run<StreamCode>(args.weights);
}

constexpr uint32_t kNeeds = kNeon | kDotprod | kI8mm | kSme2;
constexpr KernelRow kRows[] = {
    {"linear_a8_wx_16x32x4_sme2", "linear_a8", "panel32", kBits1To8 | kReadsMinima, kNeeds, 16, 32,
     stream_scratch<Granularity::kRow>, prepare_stream<Granularity::kRow>},
    {"linear_a8b32_wx_16x32x4_sme2", "linear_a8b32", "panel32", kBits1To8 | kReadsMinima, kNeeds, 16, 32,
     stream_scratch<Granularity::kBlock>, prepare_stream<Granularity::kBlock>},
};

}  // namespace

KernelRows linear_sme2_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
