// Linear layers with float activations over panel16 and panel32 weights (weight-only) on NEON: weight_only_call.h has
// the formula. A vector of floats has four rows of a panel, a quad.
#include "../families/linear/float_panels.h"
#include "../families/linear/weight_only_call.h"
#include "../generic/floats.h"
#include "panel32_prepare.h"
#include "panel32_unpack.h"

namespace lowbit {
namespace {

// Reads panel16. each<Bits>(at, body) reads kBytes<Bits> bytes, 4 kSteps<Bits> k of a panel: it calls body(step, quad,
// weights) with the unsigned weights 4 step .. 4 step + 3 of the quad's rows.
struct Panel16Quads {
  static constexpr uint32_t kRows = 16;
  // Rows of activations whose sums, four quads each, stay in registers.
  static constexpr int kRowsMax = 4;
  template <int Bits>
  static constexpr uint32_t kSteps = Fields<Bits>::kFields;
  template <int Bits>
  static constexpr uint32_t kBytes = 64 * Fields<Bits>::kVectors;

  template <int Bits, class Body>
  static LOWBIT_INLINE void each(const uint8_t* at, Body&& body) {
    each_index<kRows / 4>([&](auto quad) LOWBIT_INLINE {
      uint8x16_t bytes[Fields<Bits>::kVectors];
      for (int v = 0; v < Fields<Bits>::kVectors; v++) bytes[v] = vld1q_u8(at + 64 * v + 16 * quad);
      each_index<Fields<Bits>::kFields>(
          [&](auto step) LOWBIT_INLINE { body(step, quad, unsigned_field<Bits, step>(bytes)); });
    });
  }
};

struct Panel32Quads {
  static constexpr uint32_t kRows = 32;
  static constexpr int kRowsMax = 2;
  template <int Bits>
  static constexpr uint32_t kSteps = 1;
  template <int Bits>
  static constexpr uint32_t kBytes = 16 * Bits;

  template <int Bits, class Body>
  static LOWBIT_INLINE void each(const uint8_t* at, Body&& body) {
    constexpr int kFields = Fields<Bits>::kFields, kVectors = Fields<Bits>::kVectors;
    each_index<8 / kFields>([&](auto unit) LOWBIT_INLINE {
      uint8x16_t bytes[kVectors];
      for (int v = 0; v < kVectors; v++)
        bytes[v] = veorq_u8(vld1q_u8(at + 16 * (unit * kVectors + v)), vdupq_n_u8(0x80));
      each_index<kFields>([&](auto f) LOWBIT_INLINE {
        constexpr int kQuad = unit * kFields + f;
        body(std::integral_constant<int, 0>{}, std::integral_constant<int, kQuad>{}, unsigned_field<Bits, f>(bytes));
      });
    });
  }
};

// A quad's weights as unsigned bytes: as stored, or a codebook's levels + 128.
template <bool Levels>
inline LOWBIT_INLINE uint8x16_t stored_weights(uint8x16_t levels, uint8x16_t weights) {
  if constexpr (Levels) return vqtbl1q_u8(levels, weights);
  else return weights;
}

inline uint8x16_t load_raised_levels(const Panels& w) { return veorq_u8(load_levels(w), vdupq_n_u8(0x80)); }

// 2^23 + byte `Byte` of each lane, as floats: the byte becomes the low bits of a float whose last bit counts 1.
constexpr float kByteFloat = 0x1p23f;
template <int Byte>
inline LOWBIT_INLINE float32x4_t byte_floats(uint8x16_t four) {
  constexpr uint8_t j = Byte;
  const uint8x16_t places = {j, 255, 255, 255, j + 4, 255, 255, 255, j + 8, 255, 255, 255, j + 12, 255, 255, 255};
  const uint8x16_t magic = vreinterpretq_u8_f32(vdupq_n_f32(kByteFloat));
  return vreinterpretq_f32_u8(vorrq_u8(vqtbl1q_u8(four, places), magic));
}

// What a quad's byte_floats exceed level - zero by.
template <int Bits, bool Levels>
inline float32x4_t raised_zeros(const Panels& w, const uint8_t* group, uint32_t quad) {
  const float32x4_t offset = vdupq_n_f32(kByteFloat + (Levels ? 128 : 1 << (Bits - 1)));
  return w.any_zeros() ? vaddq_f32(offset, quad_zeros(w, {group, 0, quad, 0})) : offset;
}

// GEMV: multiplies rows row .. row + Rows - 1 of x by a panel.
template <class Places, int Bits, bool Levels, int Rows>
inline void multiply_rows(const WeightOnly& args, uint32_t panel, uint32_t row) {
  constexpr int kCount = Places::kRows / 4;
  const Panels& w = args.weights;
  const size_t stride = args.stride;
  const float* x = args.padded + row * stride;
  const uint8x16_t levels = load_raised_levels(w);
  const uint8_t* group = w.panel(panel);
  float32x4_t total[Rows][kCount];
  for (int i = 0; i < Rows * kCount; i++) total[i / kCount][i % kCount] = vdupq_n_f32(0);
  for (uint32_t g = 0; g < w.groups; g++, group += w.group_bytes) {
    float32x4_t zeros[kCount], sum[Rows][kCount];
    for (int quad = 0; quad < kCount; quad++) zeros[quad] = raised_zeros<Bits, Levels>(w, group, quad);
    for (int i = 0; i < Rows * kCount; i++) sum[i / kCount][i % kCount] = vdupq_n_f32(0);
    const uint8_t* at = group + w.vectors_offset;
    const float* last = x + w.group_length;
    for (; x < last; x += 4 * Places::template kSteps<Bits>, at += Places::template kBytes<Bits>) {
      Places::template each<Bits>(at, [&](auto step, auto quad, uint8x16_t weights) LOWBIT_INLINE {
        const uint8x16_t four = stored_weights<Levels>(levels, weights);
        float32x4_t values[Rows];
        each_index<Rows>([&](auto m) LOWBIT_INLINE { values[m] = vld1q_f32(x + m * stride + 4 * step); });
        each_index<4>([&](auto j) LOWBIT_INLINE {
          const float32x4_t weight = vsubq_f32(byte_floats<j>(four), zeros[quad]);
          each_index<Rows>([&](auto m) LOWBIT_INLINE {
            sum[m][quad] = vfmaq_laneq_f32(sum[m][quad], weight, values[m], j);
          });
        });
      });
    }
    each_index<kCount>([&](auto quad) LOWBIT_INLINE {
      const float32x4_t scale = quad_scales(w, {group, g, static_cast<uint32_t>(quad), 0});
      each_index<Rows>([&](auto m) LOWBIT_INLINE {
        total[m][quad] = vfmaq_f32(total[m][quad], sum[m][quad], scale);
      });
    });
  }
  for (uint32_t quad = 0, column = Places::kRows * panel; quad < kCount && column < w.n; quad++, column += 4) {
    const float32x4_t bias = w.has_bias ? load4(w.panel(panel) + w.bias_offset + 16 * quad) : vdupq_n_f32(0);
    for (int m = 0; m < Rows; m++)
      FloatsBaseline::store_some(args.y + (size_t{row} + m) * w.n + column, vaddq_f32(total[m][quad], bias),
                                 std::min(4u, w.n - column));
  }
}

// Unpacks a panel to panels of kPanelColumns rows of weights: level - zero, [k][kPanelColumns] each, followed by the
// scales of all of them, [groups][kPanelColumns] each.
template <class Places, int Bits, bool Levels>
void unpack_floats(const Panels& w, uint32_t panel, float* out) {
  constexpr int kCount = Places::kRows / 4, kColumns = kPanelColumns<FloatsBaseline>;
  const size_t weight_floats = size_t{kColumns} * w.padded_k(), scale_floats = size_t{kColumns} * w.groups;
  float* scales = out + size_t{Places::kRows} * w.padded_k();
  const uint8x16_t levels = load_raised_levels(w);
  const uint8_t* group = w.panel(panel);
  for (uint32_t g = 0; g < w.groups; g++, group += w.group_bytes) {
    float32x4_t zeros[kCount];
    for (int quad = 0; quad < kCount; quad++) {
      zeros[quad] = raised_zeros<Bits, Levels>(w, group, quad);
      vst1q_f32(scales + 4 * quad / kColumns * scale_floats + g * kColumns + 4 * quad % kColumns,
                quad_scales(w, {group, g, static_cast<uint32_t>(quad), 0}));
    }
    const uint8_t* at = group + w.vectors_offset;
    constexpr uint32_t kStep = 4 * Places::template kSteps<Bits>;
    for (uint32_t c = 0; c < w.group_length; c += kStep, at += Places::template kBytes<Bits>, out += kStep * kColumns) {
      Places::template each<Bits>(at, [&](auto step, auto quad, uint8x16_t weights) LOWBIT_INLINE {
        const uint8x16_t four = stored_weights<Levels>(levels, weights);
        float* to = out + 4 * quad / kColumns * weight_floats + 4 * step * kColumns + 4 * quad % kColumns;
        each_index<4>([&](auto j) LOWBIT_INLINE {
          vst1q_f32(to + j * kColumns, vsubq_f32(byte_floats<j>(four), zeros[quad]));
        });
      });
    }
  }
}

// GEMM: multiplies all rows of x by a panel, unpacked to floats.
template <class Places, int Bits, bool Levels>
void multiply_panels(const WeightOnly& args, uint32_t panel, uint32_t thread) {
  constexpr uint32_t kColumns = kPanelColumns<FloatsBaseline>;
  const Panels& w = args.weights;
  float* floats = args.panels + thread * panel_floats(w, Places::kRows);
  const float* scales = floats + size_t{Places::kRows} * w.padded_k();
  unpack_floats<Places, Bits, Levels>(w, panel, floats);
  const float* bias = reinterpret_cast<const float*>(w.panel(panel) + w.bias_offset);
  const uint32_t first = Places::kRows * panel;
  for (uint32_t i = 0; i < Places::kRows && first + i < w.n; i += kColumns)
    multiply_panel<FloatsBaseline, GroupSums<FloatsBaseline>>(
        {args.padded, args.stride, floats + size_t{i} * w.padded_k(), w.has_bias ? bias + i : nullptr,
         args.y + first + i, w.n, args.m, w.padded_k(), std::min(kColumns, w.n - first - i),
         scales + size_t{i} * w.groups, w.group_length});
}

template <class Places, int Bits, bool Levels>
void weight_only_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread) {
  const WeightOnly& args = step.as<WeightOnly>();
  if (phase == 0) return pad_rows(args, tile);
  const uint32_t first = tile * args.panels_per_tile;
  const uint32_t last = std::min(args.weights.panel_count, first + args.panels_per_tile);
  for (uint32_t panel = first; panel < last; panel++) {
    if (args.m >= kPanelRowsMin) {
      multiply_panels<Places, Bits, Levels>(args, panel, thread);
      continue;
    }
    uint32_t row = 0;
    for (; row + Places::kRowsMax <= args.m; row += Places::kRowsMax)
      multiply_rows<Places, Bits, Levels, Places::kRowsMax>(args, panel, row);
    for (; row < args.m; row++) multiply_rows<Places, Bits, Levels, 1>(args, panel, row);
  }
}

template <class Places>
struct WeightOnlyCode {
  template <int Bits, bool Levels>
  static constexpr Run run() {
    return weight_only_run<Places, Bits, Levels>;
  }
};

template <class Places>
size_t weight_only_scratch(const Call& call) {
  const auto given = arguments_of<PackedLinearArguments>(call);
  return weight_only_scratch_bytes(call, read_panels(given.weights, Places::kRows, given.n), Places::kRows);
}

template <class Places>
void weight_only_prepare(Step& step, const Call& call) {
  const auto given = arguments_of<PackedLinearArguments>(call);
  const Panels w = read_panels(given.weights, Places::kRows, given.n);
  bind_weight_only(step, call, w, 1);
  step.run = choose_run<WeightOnlyCode<Places>>(w);
}

constexpr KernelRow kRows[] = {
    {"linear_f32_wx_1x16x4_neon", "linear_weight_only", "panel16", kBits1To8, kNeon, 1, 16,
     weight_only_scratch<Panel16Quads>, weight_only_prepare<Panel16Quads>},
    {"linear_f32_wx_1x32x4_neon", "linear_weight_only", "panel32", kBits1To8, kNeon, 1, 32,
     weight_only_scratch<Panel32Quads>, weight_only_prepare<Panel32Quads>},
};

}  // namespace

KernelRows linear_weight_only_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
