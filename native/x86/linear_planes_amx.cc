// GEMM over panel16 weights on AMX: int8 activations times weights that are two planes of bytes,
//
//   y = x_scale * step * (256 * (sum high * q) + sum low * q - x_zero * correction) + bias
//
// with one `step` for a row of weights (weight_planes_avx512.h). Both sums go over all of k in 32-bit integers, so that
// groups, zero points and minima cost nothing in the inner loop; a weight costs two products of bytes. Only weights are
// rounded, once. linear_amx.cc serves groups for which exact sums are as fast.
#include "../families/gate/activations.h"
#include "../families/linear/arguments.h"
#include "floats_avx512.h"
#include "planes_call_amx.h"

namespace lowbit {
namespace {

// Where a step's activations and split weights are, and in which direction the next step's are.
struct Operands {
  const int8_t* a0;
  const int8_t* a1;
  const uint8_t* planes;
  ptrdiff_t direction;

  void advance() {
    a0 += direction * kTileBytes;
    a1 += direction * kTileBytes;
    planes += direction * static_cast<ptrdiff_t>(kPlaneStepBytes);
  }
};

// A step of tile instructions. behind() does other work after each: vector units would otherwise idle while tiles are
// loaded and multiplied. Activations are loaded by `stream`, so that they do not evict weights, which many rows use,
// from the first-level cache. So are weights that are used `Once`.
constexpr int kPlaces = 8;
template <int Blocks, bool Once, class Behind>
inline LOWBIT_INLINE void multiply_step(const Operands& at, const uint8_t* planes, Behind&& behind) {
  const auto place = [&](auto index) LOWBIT_INLINE {
    behind(index);
    tile_fence();
  };
  _tile_stream_loadd(4, at.a0, 64);
  place(Place<0>{});
  if (Once) _tile_stream_loadd(6, planes, 64);
  else _tile_loadd(6, planes, 64);
  place(Place<1>{});
  if (Once) _tile_stream_loadd(7, planes + kTileBytes, 64);
  else _tile_loadd(7, planes + kTileBytes, 64);
  place(Place<2>{});
  _tile_dpbssd(0, 4, 6);
  place(Place<3>{});
  _tile_dpbsud(1, 4, 7);
  place(Place<4>{});
  if (Blocks == 2) _tile_stream_loadd(5, at.a1, 64);
  place(Place<5>{});
  if (Blocks == 2) _tile_dpbssd(2, 5, 6);
  place(Place<6>{});
  if (Blocks == 2) _tile_dpbsud(3, 5, 7);
  place(Place<7>{});
}

// In memory, sums of the high plane for 32 rows come first, then those of the low plane.
inline LOWBIT_INLINE void load_sums(const int32_t* sums) {
  load_accumulators(sums, sums + 512, sums + 256, sums + 768);
}

inline LOWBIT_INLINE void store_sums(int32_t* sums) {
  store_accumulators(sums, sums + 512, sums + 256, sums + 768);
  tile_fence();
}

// Turns finished sums of up to 32 rows into results, row by row while tiles multiply.
struct Finisher {
  const int32_t* sums;
  const PanelFactors* factors;
  const float* scales;
  const float* zeros;
  // Results that gate these, row by row; null without gates.
  const float* gates;
  float* y;
  size_t stride;
  uint32_t rows;
  __mmask16 columns;
  bool stream;

  inline LOWBIT_INLINE void one() {
    if (rows == 0) return;
    __m512 value = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sums)), _mm512_load_ps(factors->high));
    value = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sums + 512)), _mm512_load_ps(factors->low), value);
    value = _mm512_fnmadd_ps(_mm512_load_ps(factors->correction), _mm512_set1_ps(*zeros), value);
    value = _mm512_fmadd_ps(value, _mm512_set1_ps(*scales), _mm512_load_ps(factors->bias));
    if (gates) {
      value = Silu::times<FloatsAvx512>(_mm512_load_ps(gates), value);
      gates += 16;
    }
    if (stream) _mm512_stream_ps(y, value);
    else _mm512_mask_storeu_ps(y, columns, value);
    sums += 16;
    scales++;
    zeros++;
    y += stride;
    rows--;
  }
  inline LOWBIT_INLINE void rest() {
    if (rows > 0) finish(*this);
  }

 private:
  // Not inlined: seldom needed.
  static __attribute__((noinline)) void finish(Finisher& finisher) {
    while (finisher.rows > 0) finisher.one();
  }
};

// Splits a chunk of a panel into planes.
template <int Bits, bool Levels>
struct ChunkSplitter {
  using Panel = PanelSplitter<Bits, Levels>;
  static_assert(2 * Panel::kParts == kPlaces);

  Panel splitter;
  // Runs of 32 columns left.
  uint32_t runs;

  // An eighth of the two runs of a step.
  template <int Place>
  inline LOWBIT_INLINE void part(uint8_t* planes) {
    constexpr int kPart = Place % Panel::kParts;
    if (runs == 0) return;
    if (kPart == 0) splitter.begin_run();
    planes += Place / Panel::kParts * (kTileBytes / 2);
    splitter.template part<kPart>(planes, planes + kTileBytes);
    if (kPart == Panel::kParts - 1) runs--;
  }
  inline LOWBIT_INLINE void step(uint8_t* planes) {
    each_index<kPlaces>([&](auto place) LOWBIT_INLINE { this->template part<place>(planes); });
  }
};

// Multiplies the panels at places begin .. end - 1, in the order of work, by rows first .. last - 1 (at most 512),
// whose activations are `tiles`, chunk by chunk of k.
template <int Bits, bool Levels>
class ChunkMultiplier {
 public:
  ChunkMultiplier(const PlanesLinear& a, const int8_t* tiles, uint8_t* scratch, uint32_t begin, uint32_t end)
      : a_(a),
        levels_(a.weights),
        tiles_(tiles),
        planes_(scratch),
        sums_(a.sums(scratch)),
        factors_(a.factors(scratch)),
        gates_(a.gates(scratch)),
        begin_(begin),
        end_(end) {
    finisher_.rows = 0;
  }

  // Multiplies all panels by the chunk that starts at `step`.
  inline LOWBIT_INLINE void chunk(uint32_t step, uint32_t first, uint32_t last) {
    if (step == 0) finisher_.rest();
    step_ = step;
    steps_ = std::min(a_.chunk_steps, a_.steps - step);
    last_ = last;
    const uint32_t pairs = ceil_div(last - first, kPairRows);
    fetch_next_chunk(last - first, pairs * (end_ - begin_) * steps_);
    if (pairs > 1) split_first_panel();
    for (uint32_t p = begin_; p < end_; p++) {
      // The last rows of this panel free its places in the planes, step by step, for the next panel.
      Splitter splitter = splitter_for(pairs > 1 ? p + 1 : p);
      for (uint32_t pair = 0; pair < pairs; pair++) {
        int32_t* sums = begin_pair(p, pair, pairs);
        const uint32_t row = first + kPairRows * pair;
        // Every other pair goes backwards: the planes that were used last are still in the first-level cache.
        const Operands at = operands(kPairRows * pair, (pairs - 1 - pair) % 2 == 0 ? 1 : -1);
        const bool two = row + kRows < last;
        if (pairs == 1 && two) splitter = split_and_multiply<2>(at, splitter);
        else if (pairs == 1) splitter = split_and_multiply<1>(at, splitter);
        else if (pair + 1 < pairs) multiply(at);
        else if (two) splitter = multiply_and_split<2>(at, splitter);
        else splitter = multiply_and_split<1>(at, splitter);
        if (pair + 1 == pairs) keep_sums(pairs > 1 ? p + 1 : p, splitter);
        end_pair(p, row, sums);
      }
    }
  }

  inline LOWBIT_INLINE void finish() { finisher_.rest(); }

 private:
  using Splitter = ChunkSplitter<Bits, Levels>;

  // Reads the panel's scales, which were prefetched while the panel before was split.
  inline LOWBIT_INLINE void begin_panel(uint32_t panel) {
    const __m512 exponents = step_exponents(a_.weights, a_.panel_at(panel), levels_.top);
    _mm512_store_ps(exponents_[panel - begin_], exponents);
    factors_[panel - begin_] = panel_factors(a_.weights, a_.panel_at(panel), exponents);
  }

  // Splitter of a panel; past the last one it splits nothing.
  inline LOWBIT_INLINE Splitter splitter_for(uint32_t panel) {
    if (step_ == 0 && panel < end_) begin_panel(panel);
    const uint32_t known = std::min(panel, end_ - 1);
    const float* exponents = exponents_[known - begin_];
    const PanelSplitter<Bits, Levels> splitter(a_.weights, levels_, a_.panel_at(known), exponents, 2 * step_);
    const uint32_t runs = std::min(2 * steps_, a_.weights.padded_k() / 32 - 2 * step_);
    return {splitter, panel < end_ ? runs : 0};
  }

  // Prefetches the next chunk's activations, a few cache lines at each step of this chunk.
  inline LOWBIT_INLINE void fetch_next_chunk(uint32_t rows, uint32_t all_steps) {
    if (a_.chunk_steps == a_.steps) return;
    const uint32_t next = step_ + steps_ < a_.steps ? step_ / a_.chunk_steps + 1 : 0;
    const uint32_t lines = row_blocks(rows) * static_cast<uint32_t>(a_.block_bytes() / 64);
    fetch_ = tiles_ + next * a_.chunk_bytes();
    fetch_each_ = ceil_div(lines, all_steps);
  }

  inline LOWBIT_INLINE void fetch() {
    for (uint32_t i = 0; i < fetch_each_; i++, fetch_ += 64)
      _mm_prefetch(reinterpret_cast<const char*>(fetch_), _MM_HINT_T1);
  }

  inline LOWBIT_INLINE void split_first_panel() {
    Splitter splitter = splitter_for(begin_);
    for (uint32_t s = 0; s < steps_; s++) splitter.step(planes_ + s * kPlaneStepBytes);
    keep_sums(begin_, splitter);
    tile_fence();
  }

  // Adds the sums of a chunk's weights to the panel's correction.
  inline LOWBIT_INLINE void keep_sums(uint32_t panel, const Splitter& splitter) {
    if (panel == end_) return;
    PanelFactors& f = factors_[panel - begin_];
    __m512 sum = step_ == 0 ? _mm512_setzero_ps() : _mm512_load_ps(f.correction);
    sum = _mm512_fmadd_ps(splitter.splitter.high_sum(), _mm512_load_ps(f.high), sum);
    _mm512_store_ps(f.correction, _mm512_fmadd_ps(splitter.splitter.low_sum(), _mm512_load_ps(f.low), sum));
  }

  inline LOWBIT_INLINE Operands operands(uint32_t row, ptrdiff_t direction) const {
    const int8_t* chunk = tiles_ + step_ / a_.chunk_steps * a_.chunk_bytes();
    const uint32_t start = direction > 0 ? 0 : steps_ - 1;
    const int8_t* a0 = chunk + row / kRows * a_.block_bytes() + start * kTileBytes;
    return {a0, a0 + a_.block_bytes(), planes_ + start * kPlaneStepBytes, direction};
  }

  // Where a pair's sums are: each has its own place, for the next chunk. With a single chunk two places take turns: one
  // is finished while the other is summed.
  inline LOWBIT_INLINE int32_t* begin_pair(uint32_t panel, uint32_t pair, uint32_t pairs) {
    const bool alone = a_.chunk_steps == a_.steps;
    int32_t* sums = sums_ + (alone ? turn_++ % 2 : (panel - begin_) * pairs + pair) * (kSumBytes / 4);
    if (step_ == 0) clear_accumulators();
    else load_sums(sums);
    return sums;
  }

  inline LOWBIT_INLINE void end_pair(uint32_t panel, uint32_t row, int32_t* sums) {
    store_sums(sums);
    if (step_ + steps_ < a_.steps) return;
    finisher_.rest();
    finisher_ = {sums, factors_ + (panel - begin_),      a_.scales + row, a_.zeros + row, nullptr, nullptr,
                 16,   std::min(kPairRows, last_ - row), 0xffff,          false};
    float* gates = gates_ + row % kRowsMax * 16;
    if (a_.gated && panel % 2 == 0) {
      finisher_.y = gates;
      return;
    }
    if (a_.gated) finisher_.gates = gates;
    const uint32_t n = a_.gated ? a_.weights.n / 2 : a_.weights.n, column = 16 * (a_.gated ? panel / 2 : panel);
    finisher_.y = a_.y + static_cast<size_t>(row) * n + column;
    finisher_.stride = n;
    finisher_.columns = first_lanes(static_cast<int>(n - column));
    finisher_.stream = a_.stream;
  }

  // Tiles multiply while vectors finish the rows before. These loops call no functions: those that use vectors end with
  // vzeroupper, which waits for the tiles.
  inline LOWBIT_INLINE void multiply(Operands at) {
    Finisher finisher = finisher_;
    const uint32_t rows_each = ceil_div(kPairRows, steps_);
    for (uint32_t s = 0; s < steps_; s++, at.advance()) {
      multiply_step<2, false>(at, at.planes, [](auto) LOWBIT_INLINE { tile_gap(); });
      for (uint32_t i = 0; i < rows_each; i++) finisher.one();
      fetch();
    }
    finisher_ = finisher;
  }

  // The last rows of a panel. One step after its use, a place in the planes gets the next panel's weights.
  template <int Blocks>
  inline LOWBIT_INLINE Splitter multiply_and_split(Operands at, Splitter splitter) {
    uint8_t* left = planes_;
    multiply_step<Blocks, false>(at, left, [](auto) LOWBIT_INLINE { tile_gap(); });
    for (uint32_t s = 1; s < steps_; s++, left += kPlaneStepBytes) {
      at.advance();
      multiply_step<Blocks, false>(at, left + kPlaneStepBytes, [&](auto place) LOWBIT_INLINE {
        splitter.template part<place>(left);
      });
      fetch();
    }
    splitter.step(left);
    tile_fence();
    return splitter;
  }

  // At most 32 rows use split weights once, from a ring of a few steps that stays in the first-level cache.
  template <int Blocks>
  inline LOWBIT_INLINE Splitter split_and_multiply(Operands at, Splitter splitter) {
    Finisher finisher = finisher_;
    const uint32_t rows_each = ceil_div(kPairRows, steps_);
    uint8_t* next = planes_;
    splitter.step(next);
    tile_fence();
    for (uint32_t s = 0; s < steps_; s++, at.advance()) {
      const uint8_t* ready = next;
      next = planes_ + (s + 1) % kRingSteps * kPlaneStepBytes;
      multiply_step<Blocks, true>(
          at, ready, [&](auto place) LOWBIT_INLINE { splitter.template part<place>(next); });
      for (uint32_t i = 0; i < rows_each; i++) finisher.one();
    }
    finisher_ = finisher;
    return splitter;
  }

  const PlanesLinear& a_;
  const LevelRange<Bits, Levels> levels_;
  const int8_t* tiles_;
  uint8_t* planes_;
  int32_t* sums_;
  PanelFactors* factors_;
  // Results [rows][16] of the gate, which is the panel before.
  float* gates_;
  Finisher finisher_;
  alignas(64) float exponents_[kPanelsMax][16];
  const int8_t* fetch_ = nullptr;
  uint32_t fetch_each_ = 0;
  uint32_t begin_, end_, step_ = 0, steps_ = 0, last_ = 0, turn_ = 0;
};

template <int Bits, bool Levels>
void planes_linear_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread) {
  const PlanesLinear& a = step.as<PlanesLinear>();
  if (phase == 0) {
    if (tile == 0) forget_copies(a);
    return quantize_tiles(a, tile);
  }
  const uint32_t block = tile / a.panel_tiles(), begin = tile % a.panel_tiles() * a.panels_per_tile;
  const uint32_t end = std::min(a.weights.panel_count, begin + a.panels_per_tile);
  const uint32_t first = block * kRowsMax, last = std::min(a.m, first + kRowsMax);
  uint8_t* scratch = a.scratch + thread * a.scratch_bytes;
  ChunkMultiplier<Bits, Levels> multiplier(a, block_tiles(a, block, thread), scratch, begin, end);
  TileScope scope;
  for (uint32_t s = 0; s < a.steps; s += a.chunk_steps) multiplier.chunk(s, first, last);
  multiplier.finish();
  if (a.stream) _mm_sfence();
}

struct PlanesCode {
  template <int Bits, bool Levels>
  static constexpr RunFunction run() {
    return planes_linear_run<Bits, Levels>;
  }
};

template <bool Gated>
void planes_prepare(Step& step, const Call& call) {
  const auto given = arguments_of<PackedLinearArguments>(call);
  PlanesLinear& a = step.init<PlanesLinear>();
  a = plan_call(call, Gated);
  a.x = given.x;
  a.y = given.y;
  a.stream = bypasses_caches(a.y, a.m, a.gated ? a.weights.n / 2 : a.weights.n, kStreamBytes);
  uint8_t* at = static_cast<uint8_t*>(given.scratch);
  a.tiles = reinterpret_cast<int8_t*>(at);
  at += a.tiles_bytes();
  a.scales = reinterpret_cast<float*>(at);
  at += a.row_bytes();
  a.zeros = reinterpret_cast<float*>(at);
  at += a.row_bytes();
  if (a.copies_bytes() > 0) a.copies = reinterpret_cast<int8_t*>(at);
  a.scratch = at + a.copies_bytes();
  step.phases = 2;
  step.tiles[0] = ceil_div(a.m, a.rows_per_tile);
  step.tiles[1] = ceil_div(a.m, kRowsMax) * a.panel_tiles();
  step.run = run_for_bits<PlanesCode>(a.weights);
}

template <bool Gated>
size_t planes_linear_scratch(const Call& call) {
  return planes_scratch(call, Gated);
}

// Longest groups that these kernels serve. Exact sums of longer groups (linear_amx.cc) are about as fast, with 32 rows
// a fifth slower. So the limit is short from 32 rows on and longer from 128 on. With fewer rows linear_amx.cc serves,
// and prefill gives the same results as decode.
constexpr GroupLimit kFewRows = {32, 32}, kManyRows = {128, 224};

constexpr KernelRow kTable[] = {
    {"linear_a8_wx_32x16x64_amx_int8",
     "linear_a8",
     "panel16",
     kBits1To8 | kReadsMinima,
     kAvx2 | kAvx512 | kAvx512Vnni | kAmxInt8,
     32,
     16,
     planes_linear_scratch<false>,
     planes_prepare<false>,
     {kFewRows, kManyRows}},
    {"linear_a8_swiglu_wx_32x32x64_amx_int8",
     "linear_a8_swiglu",
     "panel16",
     kBits1To8 | kReadsMinima,
     kAvx2 | kAvx512 | kAvx512Vnni | kAmxInt8,
     32,
     32,
     planes_linear_scratch<true>,
     planes_prepare<true>,
     {kFewRows, kManyRows}},
};

}  // namespace

KernelRows linear_planes_amx_rows() { return {kTable, sizeof kTable / sizeof *kTable}; }

}  // namespace lowbit
