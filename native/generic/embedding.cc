// Rows of weights in the panel layouts, one row read and not its panel, and rows of TorchAO's embedding layout, whose
// chunks are described in src/kernels/layout/torchao-bits.ts. Ids out of range give rows of NaN: see
// transformer/embedding.h.
#include "../half.h"
#include "../linear/fields.h"
#include "../panel16.h"
#include "../rows.h"
#include "../transformer/embedding.h"
#include "floats.h"

namespace lowbit {
namespace {

template <class Args>
void split_indices(Step& step, Args& args, uint32_t dim, uint32_t threads) {
  args.per_tile = items_per_tile<FloatsBaseline>(args.indices.count, kTileValues / 4 / std::max(1u, dim), threads);
  step.phases = 1;
  step.tiles[0] = ceil_div(args.indices.count, args.per_tile);
}

struct SharedArgs {
  Panels weights;
  float* y;
  Indices indices;
  uint32_t per_tile;
};
static_assert(sizeof(SharedArgs) <= kArgsMax);

// Where weights 4 step .. 4 step + 3 of row `lane` of a panel are: src/kernels/layout/panel16.ts and panel32.ts.
struct Panel16Places {
  static constexpr uint32_t kRows = 16, kVectorBytes = 64, kFlip = 0;
  template <int Bits>
  static uint32_t byte(uint32_t lane, uint32_t step) {
    return step / Fields<Bits>::kFields * Fields<Bits>::kVectors * kVectorBytes + 4 * lane;
  }
  template <int Bits>
  static int field(uint32_t, uint32_t step) { return step % Fields<Bits>::kFields; }
};

struct Panel32Places {
  static constexpr uint32_t kRows = 32, kVectorBytes = 16, kFlip = 0x80808080;
  template <int Bits>
  static uint32_t byte(uint32_t lane, uint32_t step) {
    const uint32_t unit = lane / 4 / Fields<Bits>::kFields, units = 8 / Fields<Bits>::kFields;
    return (step * units + unit) * Fields<Bits>::kVectors * kVectorBytes + 4 * (lane & 3);
  }
  template <int Bits>
  static int field(uint32_t lane, uint32_t) { return lane / 4 % Fields<Bits>::kFields; }
};

// Four weights of a row, one in each byte, from the lanes of the vectors that have them.
template <int Bits>
inline uint32_t field_of(const uint32_t* words, int index) {
  const Field field = Fields<Bits>::field(index);
  uint32_t value = 0;
  for (int p = 0; p < field.pieces; p++) {
    const FieldPiece& piece = field.piece[p];
    const uint32_t mask = 0x01010101u * ((1u << piece.width) - 1);
    value |= ((words[piece.vector] >> piece.shift) & mask) << piece.at;
  }
  return value;
}

// `count` weights of one group and row.
template <class Places, int Bits>
void read_group(const Panels& w, const uint8_t* vectors, uint32_t lane, int32_t zero, float scale, uint32_t count,
                float* y) {
  constexpr int kVectors = Fields<Bits>::kVectors;
  for (uint32_t start = 0; start < count; start += 4) {
    const uint8_t* at = vectors + Places::template byte<Bits>(lane, start / 4);
    uint32_t words[kVectors];
    for (int v = 0; v < kVectors; v++) {
      memcpy(&words[v], at + Places::kVectorBytes * v, 4);
      words[v] ^= Places::kFlip;
    }
    const uint32_t four = field_of<Bits>(words, Places::template field<Bits>(lane, start / 4));
    for (uint32_t j = 0; j < 4 && start + j < count; j++) {
      const int32_t stored = (four >> (8 * j)) & 255;
      const int32_t level = w.has_levels ? w.levels[stored & 15] : stored - (1 << (Bits - 1));
      y[start + j] = static_cast<float>(level - zero) * scale;
    }
  }
}

template <class Places, int Bits>
void read_row(const Panels& w, uint32_t row, float* y) {
  const uint8_t* group = w.panel(row / Places::kRows);
  const uint32_t lane = row % Places::kRows;
  for (uint32_t start = 0; start < w.k; start += w.group_size, group += w.group_bytes) {
    uint16_t half;
    float scale;
    memcpy(&half, group + 2 * lane, 2);
    memcpy(&scale, group + 4 * lane, 4);
    if (w.f16_scales) scale = half_to_float(half);
    const int32_t zero = w.has_zeros ? static_cast<int8_t>(group[w.zeros_offset + lane]) : 0;
    const uint32_t count = std::min(w.group_size, w.k - start);
    read_group<Places, Bits>(w, group + w.vectors_offset, lane, zero, scale, count, y + start);
  }
}

template <class Places, int Bits>
void shared_run(const Step& step, uint32_t, uint32_t tile, uint32_t) {
  const SharedArgs& args = step.as<SharedArgs>();
  const uint32_t last = std::min(args.indices.count, (tile + 1) * args.per_tile);
  for (uint32_t i = tile * args.per_tile; i < last; i++) {
    const int64_t row = args.indices.at(i);
    float* y = args.y + static_cast<size_t>(i) * args.weights.k;
    if (row < 0 || row >= args.weights.n) fill_nan(y, args.weights.k);
    else read_row<Places, Bits>(args.weights, static_cast<uint32_t>(row), y);
  }
}

using Run = void (*)(const Step&, uint32_t, uint32_t, uint32_t);

// scalars: count, bytes of an index; buffers: packed weights, indices, y.
template <class Places>
void shared_prepare(Step& step, const Call& call) {
  constexpr Run kRuns[] = {shared_run<Places, 1>, shared_run<Places, 2>, shared_run<Places, 3>, shared_run<Places, 4>,
                           shared_run<Places, 5>, shared_run<Places, 6>, shared_run<Places, 7>, shared_run<Places, 8>};
  SharedArgs& args = step.init<SharedArgs>();
  args.weights = read_panels(call.buffers[0], Places::kRows);
  args.indices = {call.buffers[1], static_cast<uint32_t>(call.scalars[0]), call.scalars[1] == 8};
  args.y = static_cast<float*>(call.buffers[2]);
  split_indices(step, args, args.weights.k, call.threads);
  step.run = kRuns[args.weights.bits - 1];
}

// How a chunk of TorchAO's layout is combined: runs of `lanes` values, `Fields` of them to each run of bytes.
template <int Bits>
struct Chunk {
  static constexpr uint32_t kFields = Bits == 8 ? 1 : Bits == 4 ? 2 : Bits % 2 == 0 ? 4 : 8;
  static constexpr uint32_t kBytes = kFields * Bits / 8;
  static constexpr bool halved(uint32_t size) { return size == 64 && (Bits == 1 || Bits == 5); }
  static constexpr uint32_t lanes(uint32_t size) {
    if (halved(size)) return 8;
    if (size == 32 && kFields == 8) return 1;
    const uint32_t all = size / kFields;
    return (Bits == 2 || Bits == 4 || Bits == 6) && all > 16 ? 16 : all;
  }
};

// v = the fields that bytes b hold.
template <int Bits>
void unpack(const uint8_t* b, uint8_t* v) {
  if constexpr (Bits == 8) {
    v[0] = b[0];
  } else if constexpr (Bits == 4) {
    v[0] = b[0] & 15;
    v[1] = b[0] >> 4;
  } else if constexpr (Bits == 1) {
    for (int i = 0; i < 8; i++) v[i] = (b[0] >> (7 - i)) & 1;
  } else if constexpr (Bits == 2) {
    for (int i = 0; i < 4; i++) v[i] = (b[0] >> (6 - 2 * i)) & 3;
  } else if constexpr (Bits == 3) {
    for (int i = 0; i < 3; i++) {
      v[2 * i] = (b[i] >> 3) & 7;
      v[2 * i + 1] = b[i] & 7;
    }
    v[6] = (b[0] >> 6) | ((b[2] >> 5) & 4);
    v[7] = (b[1] >> 6) | ((b[2] >> 4) & 4);
  } else if constexpr (Bits == 5) {
    for (int i = 0; i < 4; i++) {
      v[2 * i] = b[i] & 31;
      v[2 * i + 1] = (b[i] >> 5) | ((b[4] >> (2 * i)) & 3) << 3;
    }
  } else if constexpr (Bits == 6) {
    for (int i = 0; i < 3; i++) v[i] = b[i] & 63;
    v[3] = (b[0] >> 6) | (b[1] >> 6) << 2 | (b[2] >> 6) << 4;
  } else {
    v[7] = 0;
    for (int i = 0; i < 7; i++) {
      v[i] = b[i] & 127;
      v[7] |= (b[i] >> 7) << i;
    }
  }
}

// Chunks of 64 whose fields are half vectors.
template <int Bits>
void unpack_halved(const uint8_t* b, uint8_t* v) {
  if constexpr (Bits == 1) {
    for (int i = 0; i < 4; i++) {
      v[2 * i] = (b[0] >> (3 - i)) & 1;
      v[2 * i + 1] = (b[0] >> (7 - i)) & 1;
    }
  } else {
    constexpr int kLow[] = {0, 1, 4, 5}, kHigh[] = {2, 3, 6, 7};
    for (int i = 0; i < 4; i++) {
      v[kLow[i]] = b[i] & 31;
      v[kHigh[i]] = (b[i] >> 5) | ((b[4] >> (2 * i)) & 3) << 3;
    }
  }
}

// `size` unsigned values of a chunk.
template <int Bits>
void unpack_chunk(const uint8_t* bytes, uint32_t size, uint8_t* values) {
  using C = Chunk<Bits>;
  const uint32_t lanes = C::lanes(size);
  for (uint32_t base = 0; base < size; base += C::kFields * lanes) {
    for (uint32_t j = 0; j < lanes; j++) {
      uint8_t b[C::kBytes], v[C::kFields];
      for (uint32_t t = 0; t < C::kBytes; t++) b[t] = bytes[base * Bits / 8 + t * lanes + j];
      if constexpr (Bits == 1 || Bits == 5) {
        if (C::halved(size)) unpack_halved<Bits>(b, v);
        else unpack<Bits>(b, v);
      } else {
        unpack<Bits>(b, v);
      }
      for (uint32_t i = 0; i < C::kFields; i++) values[base + i * lanes + j] = v[i];
    }
  }
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

// scalars: bits, rows, dim, groups, count, bytes of an index; buffers: packed, scales, zeros, indices, y.
void packed_prepare(Step& step, const Call& call) {
  constexpr Run kRuns[] = {packed_run<1>, packed_run<2>, packed_run<3>, packed_run<4>,
                           packed_run<5>, packed_run<6>, packed_run<7>, packed_run<8>};
  PackedArgs& args = step.init<PackedArgs>();
  args.rows = static_cast<uint32_t>(call.scalars[1]);
  args.dim = static_cast<uint32_t>(call.scalars[2]);
  args.groups = static_cast<uint32_t>(call.scalars[3]);
  args.packed = static_cast<const uint8_t*>(call.buffers[0]);
  args.scales = static_cast<const float*>(call.buffers[1]);
  args.zeros = static_cast<const int8_t*>(call.buffers[2]);
  args.indices = {call.buffers[3], static_cast<uint32_t>(call.scalars[4]), call.scalars[5] == 8};
  args.y = static_cast<float*>(call.buffers[4]);
  split_indices(step, args, args.dim, call.threads);
  step.run = kRuns[static_cast<int>(call.scalars[0]) - 1];
}

constexpr KernelRow kRows[] = {
    {"shared_embedding_wx_1x1x16_" LOWBIT_FLOATS_TARGET, "shared_embedding", "panel16", 0x1fe, kBaselineNeeds, 1, 1,
     nullptr, shared_prepare<Panel16Places>},
    {"shared_embedding_wx_1x1x32_" LOWBIT_FLOATS_TARGET, "shared_embedding", "panel32", 0x1fe, kBaselineNeeds, 1, 1,
     nullptr, shared_prepare<Panel32Places>},
    {"embedding_wx_1x1x1_" LOWBIT_FLOATS_TARGET, "embedding_packed", "torchao_embedding", 0x1fe, kBaselineNeeds, 1, 1,
     nullptr, packed_prepare},
};

}  // namespace

KernelRows embedding_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
