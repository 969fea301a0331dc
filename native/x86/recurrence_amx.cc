// Linear recurrences of many rows on AMX, in chunks. With S0 the state before a chunk and e(r, j) what decays from row
// j to row r of it, what the rows add to the state is the solution of a triangular system,
//   u_r = beta_r (v_r - e(r, 0) S0^T k_r) - sum of j < r: beta_r e(r, j) (k_r . k_j) u_j,
// and with it
//   y_r = e(r, 0) S0^T q_r + sum of j <= r: e(r, j) (q_r . k_j) u_j,  S = e(n, 0) S0 + sum of j: e(n, j) k_j u_j^T.
// All but the solution are products of tiles, of floats split in two (split_bf16.h): as exact as 16 bits of the largest
// terms. Flags: see scripts/build-native.js.
#include "../kernel.h"
#include "../transformer/linear_recurrence.h"
#include "floats_avx512.h"
#include "split_bf16.h"
#include "tiles_amx.h"

namespace lowbit {
namespace {

// Rows of a chunk: what one product of tiles adds up.
constexpr uint32_t kChunk = 32;
constexpr uint32_t kTileFloats = kTileBytes / 4;
// A tile in two parts.
constexpr uint32_t kSplitBytes = 2 * kTileBytes;

// Tiles of a head: steps of 32 keys, 16 keys, and 16 columns of values, of each as many as make up pairs.
struct Sizes {
  uint32_t steps, key_tiles, value_tiles;

  explicit Sizes(const LinearRecurrenceArgs& args)
      : steps(ceil_div(args.key_dim, 32)),
        key_tiles(2 * steps),
        value_tiles(2 * ceil_div(args.value_dim, 32)) {}
};

// Parts of one thread's scratch.
struct Workspace {
  float* state;      // [key tiles][value tiles]
  uint8_t* factors;  // The state as right factors: [value tiles][steps], pairs of keys.
  uint8_t* rows;     // Two tiles of keys and two of queries as left factors: [4][steps].
  uint8_t* columns;  // Keys as right factors: [2][steps], pairs of numbers of a key.
  uint8_t* turned;   // Keys, decayed, as left factors: [key tiles], of all rows.
  float* reads;      // S0^T of keys and of queries: [4][value tiles].
  float* products;   // Of keys and of queries with keys: [4][2].
  float* system;     // [rows][rows]: what of the rows before is taken away.
  uint8_t* weights;  // Of u in y, as left factors: [2].
  float* added;      // u: [rows][16 * value tiles].
  uint8_t* addends;  // u as right factors: [value tiles], pairs of rows.
  size_t bytes;

  Workspace(const Sizes& sizes, uint8_t* start) : bytes(0) {
    auto take = [&](size_t count) {
      uint8_t* at = start + bytes;
      bytes += count;
      return at;
    };
    auto floats = [&](size_t tiles) { return reinterpret_cast<float*>(take(tiles * kTileBytes)); };
    state = floats(size_t{sizes.key_tiles} * sizes.value_tiles);
    factors = take(size_t{sizes.value_tiles} * sizes.steps * kSplitBytes);
    rows = take(size_t{4} * sizes.steps * kSplitBytes);
    columns = take(size_t{2} * sizes.steps * kSplitBytes);
    turned = take(size_t{sizes.key_tiles} * kSplitBytes);
    reads = floats(size_t{4} * sizes.value_tiles);
    products = floats(8);
    system = floats(4);
    weights = take(2 * kSplitBytes);
    added = floats(size_t{2} * sizes.value_tiles);
    addends = take(size_t{sizes.value_tiles} * kSplitBytes);
  }
};

inline void store_split(uint8_t* row, const SplitVector& split) {
  _mm512_store_si512(row, split.high);
  _mm512_store_si512(row + kTileBytes, split.low);
}

// Rows of a tile in two parts as columns.
inline void turn_tiles(__m512i* high, __m512i* low, uint8_t* target) {
  transpose16(high);
  transpose16(low);
  for (int i = 0; i < 16; i++) store_split(target + 64 * i, {high[i], low[i]});
}

// Sixteen values from `column` on, 0 beyond `count`.
inline __m512 load_columns(const float* row, uint32_t column, uint32_t count) {
  return column < count ? FloatsAvx512::load_some(row + column, std::min(16u, count - column)) : _mm512_setzero_ps();
}

// The rows of a run for one head.
class RecurrentTiles {
 public:
  RecurrentTiles(const LinearRecurrenceArgs& args, uint32_t head, uint8_t* scratch)
      : args_(args),
        sizes_(args),
        w_(sizes_, scratch),
        head_(head),
        key_head_(static_cast<uint32_t>(static_cast<uint64_t>(head) * args.key_heads / args.heads)) {}

  // False where something that is added is infinite or NaN, which zeros of tiles would not keep from the rows before
  // it.
  bool run(const Run& run, const float* now, float* next) {
    const size_t at = static_cast<size_t>(head_) * args_.key_dim * args_.value_dim;
    each_state_vector([&](uint32_t key, uint32_t column, float* place) {
      const float* row = now + at + static_cast<size_t>(key) * args_.value_dim;
      _mm512_store_ps(place, key < args_.key_dim ? load_columns(row, column, args_.value_dim) : _mm512_setzero_ps());
    });
    const TileScope tiles;
    begin_chunk(run.row, run.row + run.rows);
    for (uint32_t keys = 0; keys < sizes_.key_tiles; keys += 2)
      for (uint32_t c = 0; c < sizes_.value_tiles; c += 2) convert_state(keys, c);
    while (take_rows()) {
    }
    if (!are_finite_) return false;
    each_state_vector([&](uint32_t key, uint32_t column, const float* place) {
      if (key >= args_.key_dim || column >= args_.value_dim) return;
      float* row = next + at + static_cast<size_t>(key) * args_.value_dim;
      FloatsAvx512::store_some(row + column, _mm512_load_ps(place), std::min(16u, args_.value_dim - column));
    });
    return true;
  }

 private:
  // The rows of a chunk; whether there is one after it, which has begun.
  bool take_rows() {
    if (rows_ == kChunk && args_.key_dim % 32 == 0) convert_rows<true>();
    else convert_rows<false>();
    multiply_rows();
    weigh();
    are_finite_ = solve();
    if (!are_finite_) return false;
    add_reads();
    store_rows();
    const bool has_next = ahead_ > 0;
    if (has_next) begin_chunk(first_ + kChunk, first_ + kChunk + ahead_);
    add_to_state(has_next);
    return has_next;
  }

  void begin_chunk(uint32_t first, uint32_t end) {
    first_ = first;
    rows_ = std::min(kChunk, end - first);
    ahead_ = end - first - rows_;
    sum_gates();
  }

  template <class Body>
  void each_state_vector(Body&& body) {
    for (uint32_t key = 0; key < 16 * sizes_.key_tiles; key++)
      for (uint32_t c = 0; c < sizes_.value_tiles; c++) body(key, 16 * c, state_tile(key / 16, c) + 16 * (key % 16));
  }

  float* state_tile(uint32_t keys, uint32_t values) const {
    return w_.state + (size_t{keys} * sizes_.value_tiles + values) * kTileFloats;
  }
  // Of keys, and from row kChunk on of queries.
  float* read(uint32_t row, uint32_t values) const {
    return w_.reads + (size_t{row / 16} * sizes_.value_tiles + values) * kTileFloats + 16 * (row % 16);
  }
  float* product(uint32_t row, uint32_t half) const {
    return w_.products + (row / 16 * 2 + half) * kTileFloats + 16 * (row % 16);
  }
  float* added(uint32_t row, uint32_t values) const {
    return w_.added + 16 * (size_t{row} * sizes_.value_tiles + values);
  }
  uint8_t* step_of(uint8_t* tiles, uint32_t tile, uint32_t step) const {
    return tiles + (size_t{tile} * sizes_.steps + step) * kSplitBytes;
  }
  size_t gate_place(uint32_t row) const { return static_cast<size_t>(first_ + row) * args_.heads + head_; }
  size_t value_place(uint32_t row) const { return gate_place(row) * args_.value_dim; }
  size_t key_place(uint32_t row) const {
    return (static_cast<size_t>(first_ + row) * args_.key_heads + key_head_) * args_.key_dim;
  }
  // Sixteen values of a row of keys or queries; `Whole`: there is no row or number that must be left out.
  template <bool Whole>
  __m512 load_row(const float* from, uint32_t row, uint32_t column) const {
    if (Whole) return _mm512_loadu_ps(from + key_place(row) + column);
    return row < rows_ ? load_columns(from + key_place(row), column, args_.key_dim) : _mm512_setzero_ps();
  }

  // Logarithms are added in double precision: where much decays, differences of sums are small beside them.
  void sum_gates() {
    double sum = 0;
    for (uint32_t row = 0; row < kChunk; row++) {
      if (row < rows_) {
        const float log_decay = args_.log_decay[gate_place(row)];
        // Less than that is no other factor, and no infinity, of which differences are not numbers.
        sum += log_decay < -1000 ? -1000 : log_decay;
      }
      logs_[row] = sum;
      beta_[row] = row < rows_ && args_.beta ? args_.beta[gate_place(row)] : 1;
    }
    for (uint32_t half = 0; half < kChunk; half += 16) {
      _mm512_store_ps(since_first_ + half, decayed_by(half, [](__m512d log) { return log; }));
      _mm512_store_ps(until_last_ + half, decayed_by(half, [&](__m512d log) { return _mm512_set1_pd(sum) - log; }));
    }
  }

  // exp of what is made of the sums of sixteen rows' logarithms.
  template <class Make>
  __m512 decayed_by(uint32_t first, Make&& make) const {
    const __m256 low = _mm512_cvtpd_ps(make(_mm512_load_pd(logs_ + first)));
    const __m256 high = _mm512_cvtpd_ps(make(_mm512_load_pd(logs_ + first + 8)));
    return exp_of<FloatsAvx512>(_mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1));
  }

  template <bool Whole>
  void convert_rows() const {
    for (uint32_t tile = 0; tile < 4; tile++) {
      const float* from = tile < 2 ? args_.k : args_.q;
      for (uint32_t step = 0; step < sizes_.steps; step++) {
        uint8_t* target = step_of(w_.rows, tile, step);
        __m512i high[16], low[16];
        each_index<16>([&](auto i) LOWBIT_INLINE {
          const uint32_t row = 16 * (tile & 1) + i;
          const SplitVector split =
              split_row(load_row<Whole>(from, row, 32 * step), load_row<Whole>(from, row, 32 * step + 16));
          store_split(target + 64 * i, split);
          high[i] = split.high;
          low[i] = split.low;
        });
        if (tile < 2) turn_tiles(high, low, step_of(w_.columns, tile, step));
      }
    }
    // What keys of a row give to the state at the chunk's end.
    for (uint32_t tile = 0; tile < sizes_.key_tiles; tile++) {
      __m512i high[16], low[16];
      each_index<16>([&](auto i) LOWBIT_INLINE {
        auto decayed = [&](uint32_t row) LOWBIT_INLINE {
          return load_row<Whole>(args_.k, row, 16 * tile) * _mm512_set1_ps(until_last_[row]);
        };
        const SplitVector split = split_pairs(decayed(2 * i), decayed(2 * i + 1));
        high[i] = split.high;
        low[i] = split.low;
      });
      turn_tiles(high, low, w_.turned + tile * kSplitBytes);
    }
  }

  // Two by two tiles of the state as factors, and what is left of them at the chunk's end.
  void convert_state(uint32_t keys, uint32_t values) const {
    const __m512 decay = _mm512_set1_ps(since_first_[kChunk - 1]);
    for (uint32_t c = values; c < values + 2; c++) {
      uint8_t* target = step_of(w_.factors, c, keys / 2);
      for (uint32_t tile = keys; tile < keys + 2; tile++) {
        float* place = state_tile(tile, c);
        for (uint32_t i = 0; i < 8; i++, target += 64, place += 32) {
          const __m512 a = _mm512_load_ps(place), b = _mm512_load_ps(place + 16);
          store_split(target, split_pairs(a, b));
          _mm512_store_ps(place, a * decay);
          _mm512_store_ps(place + 16, b * decay);
        }
      }
    }
  }

  // Products of keys and queries with keys, and with the state.
  void multiply_rows() const {
    tile_fence();
    for (uint32_t row = 0; row < 2 * kChunk; row += 32) {
      multiply_steps(row / 16, step_of(w_.columns, 0, 0), step_of(w_.columns, 1, 0));
      store_accumulators(product(row, 0), product(row, 1), product(row + 16, 0), product(row + 16, 1));
    }
    for (uint32_t c = 0; c < sizes_.value_tiles; c += 2)
      for (uint32_t row = 0; row < 2 * kChunk; row += 32) {
        multiply_steps(row / 16, step_of(w_.factors, c, 0), step_of(w_.factors, c + 1, 0));
        store_accumulators(read(row, c), read(row, c + 1), read(row + 16, c), read(row + 16, c + 1));
      }
    tile_fence();
  }

  void multiply_steps(uint32_t tile, const uint8_t* b0, const uint8_t* b1) const {
    const uint8_t *a0 = step_of(w_.rows, tile, 0), *a1 = step_of(w_.rows, tile + 1, 0);
    clear_accumulators();
    for (size_t at = 0; at < sizes_.steps * kSplitBytes; at += kSplitBytes)
      multiply_tiles(a0 + at, a1 + at, b0 + at, b1 + at);
  }

  // The system, and the weights of u in y.
  void weigh() const {
    for (uint32_t row = 0; row < kChunk; row++) {
      __m512 weights[2];
      for (uint32_t half = 0; half < 2; half++) {
        const __m512d own = _mm512_set1_pd(logs_[row]);
        const __m512 decay = decayed_by(16 * half, [&](__m512d log) { return own - log; });
        // Of rows 16 half .. : those up to this one, and those before it.
        const uint32_t before = row < 16 * half ? 0 : (1ull << std::min(16u, row - 16 * half)) - 1;
        const uint32_t until = row < 16 * half ? 0 : 2 * before + 1;
        const __m512 taken = _mm512_set1_ps(-beta_[row]) * decay, scaled = _mm512_set1_ps(args_.scale) * decay;
        weights[half] = _mm512_maskz_mul_ps(static_cast<__mmask16>(until), scaled, load_product(kChunk + row, half));
        _mm512_store_ps(w_.system + kChunk * row + 16 * half,
                        _mm512_maskz_mul_ps(static_cast<__mmask16>(before), taken, load_product(row, half)));
      }
      store_split(w_.weights + row / 16 * kSplitBytes + 64 * (row % 16), split_row(weights[0], weights[1]));
    }
  }

  __m512 load_product(uint32_t row, uint32_t half) const { return _mm512_load_ps(product(row, half)); }

  // Whether all of u is finite.
  bool solve() const {
    uint32_t c = 0;
    for (; c + 8 <= sizes_.value_tiles; c += 8) solve_columns<8>(c);
    for (; c < sizes_.value_tiles; c += 2) solve_columns<2>(c);
    const __m512 zero = _mm512_setzero_ps();
    __m512 unless_finite = zero;
    for (c = 0; c < sizes_.value_tiles; c++) {
      for (uint32_t i = 0; i < 16; i++) {
        const __m512 a = _mm512_load_ps(added(2 * i, c)), b = _mm512_load_ps(added(2 * i + 1, c));
        unless_finite = _mm512_fmadd_ps(b, zero, _mm512_fmadd_ps(a, zero, unless_finite));
        store_split(w_.addends + c * kSplitBytes + 64 * i, split_pairs(a, b));
      }
    }
    return _mm512_cmp_ps_mask(unless_finite, unless_finite, _CMP_UNORD_Q) == 0;
  }

  // u, row by row, of `Count` tiles of columns; rows of the next chunk are fetched meanwhile.
  template <int Count>
  LOWBIT_APART void solve_columns(uint32_t first) const {
    for (uint32_t row = 0; row < kChunk; row++) {
      if (row < ahead_) fetch(kChunk + row);
      __m512 sums[Count];
      const __m512 beta = _mm512_set1_ps(beta_[row]), drop = _mm512_set1_ps(-since_first_[row]);
      each_index<Count>([&](auto c) LOWBIT_INLINE {
        sums[c] = row < rows_ ? load_columns(args_.v + value_place(row), 16 * (first + c), args_.value_dim)
                              : _mm512_setzero_ps();
        if (args_.beta) sums[c] = beta * _mm512_fmadd_ps(drop, _mm512_load_ps(read(row, first + c)), sums[c]);
      });
      for (uint32_t j = 0; args_.beta && j < row; j++) {
        const __m512 factor = _mm512_set1_ps(w_.system[kChunk * row + j]);
        const float* before = added(j, first);
        each_index<Count>([&](auto c) LOWBIT_INLINE {
          sums[c] = _mm512_fmadd_ps(factor, _mm512_load_ps(before + 16 * c), sums[c]);
        });
      }
      each_index<Count>([&](auto c) LOWBIT_INLINE { _mm512_store_ps(added(row, first + c), sums[c]); });
    }
  }

  void fetch(uint32_t row) const {
    fetch_row(args_.q + key_place(row), args_.key_dim);
    fetch_row(args_.k + key_place(row), args_.key_dim);
    fetch_row(args_.v + value_place(row), args_.value_dim);
  }

  // y of all rows, where S0^T q was.
  void add_reads() const {
    for (uint32_t row = 0; row < kChunk; row++) {
      for (uint32_t c = 0; row < rows_ && c < args_.value_dim; c += 16)
        __builtin_prefetch(args_.y + value_place(row) + c, 1);
      const __m512 factor = _mm512_set1_ps(args_.scale * since_first_[row]);
      for (uint32_t c = 0; c < sizes_.value_tiles; c++) {
        float* place = read(kChunk + row, c);
        _mm512_store_ps(place, _mm512_load_ps(place) * factor);
      }
    }
    tile_fence();
    for (uint32_t c = 0; c < sizes_.value_tiles; c += 2) {
      const uint8_t* addends = w_.addends + c * kSplitBytes;
      add_product(w_.weights, addends, read(kChunk, c), read(kChunk + 16, c));
    }
    tile_fence();
  }

  // Tiles become factors of the next chunk one after the other, while others are multiplied.
  void add_to_state(bool has_next) const {
    uint32_t keys_before = 0, values_before = 0;
    for (uint32_t keys = 0; keys < sizes_.key_tiles; keys += 2)
      for (uint32_t c = 0; c < sizes_.value_tiles; c += 2) {
        tile_fence();
        add_product(w_.turned + keys * kSplitBytes, w_.addends + c * kSplitBytes, state_tile(keys, c),
                    state_tile(keys + 1, c));
        tile_fence();
        if (has_next && keys + c > 0) convert_state(keys_before, values_before);
        keys_before = keys;
        values_before = c;
      }
    if (has_next) convert_state(keys_before, values_before);
  }

  // Two by two tiles of sums, each two side by side, of one step.
  static void add_product(const uint8_t* a, const uint8_t* b, float* above, float* below) {
    load_accumulators(above, above + kTileFloats, below, below + kTileFloats);
    multiply_tiles(a, a + kSplitBytes, b, b + kSplitBytes);
    store_accumulators(above, above + kTileFloats, below, below + kTileFloats);
  }

  void store_rows() const {
    for (uint32_t row = 0; row < rows_; row++)
      for (uint32_t c = 0; 16 * c < args_.value_dim; c++)
        FloatsAvx512::store_some(args_.y + value_place(row) + 16 * c, _mm512_load_ps(read(kChunk + row, c)),
                                 std::min(16u, args_.value_dim - 16 * c));
  }

  const LinearRecurrenceArgs& args_;
  const Sizes sizes_;
  const Workspace w_;
  const uint32_t head_, key_head_;
  // Of the chunk: its first row, its rows, and those after it.
  uint32_t first_ = 0, rows_ = 0, ahead_ = 0;
  bool are_finite_ = true;
  alignas(64) double logs_[kChunk];
  // exp of sums of logarithms: up to a row, and from there to the chunk's end.
  alignas(64) float since_first_[kChunk], until_last_[kChunk], beta_[kChunk];
};

// Rows of a run, numbers of a key and of a value, from which on chunks pay.
constexpr uint32_t kFewestRows = 32, kLeastDim = 64;

bool is_for_tiles(const LinearRecurrenceArgs& args, const Run& run) {
  return run.rows >= kFewestRows && args.key_dim >= kLeastDim && args.value_dim >= kLeastDim;
}

size_t thread_bytes(const LinearRecurrenceArgs& args) {
  const size_t columns = 4 * size_t{args.key_dim} * StateColumns<FloatsAvx512>::kCount;
  return std::max(round_up(columns, 64), Workspace(Sizes(args), nullptr).bytes);
}

void amx_run(const Step& step, uint32_t, uint32_t head, uint32_t thread) {
  const LinearRecurrenceArgs& args = step.as<LinearRecurrenceArgs>();
  uint8_t* scratch = reinterpret_cast<uint8_t*>(args.scratch) + thread * thread_bytes(args);
  const size_t columns = args.value_dim;
  each_recurrence(args, head * columns, (head + 1) * columns, [&](const Run& run, const float* now, float* next) {
    if (is_for_tiles(args, run) && RecurrentTiles(args, head, scratch).run(run, now, next)) return;
    for (uint32_t index = head * args.groups; index < (head + 1) * args.groups; index++)
      RecurrentGroup<FloatsAvx512>(args, index, reinterpret_cast<float*>(scratch)).run(run, now, next);
  });
  if (args.streams) FloatsAvx512::end_streams();
}

size_t amx_scratch(const Call& call) { return call.threads * thread_bytes(recurrence_sizes<FloatsAvx512>(call)); }

void amx_prepare(Step& step, const Call& call) {
  linear_recurrence_prepare<FloatsAvx512>(step, call);
  step.tiles[0] = step.as<LinearRecurrenceArgs>().heads;
  step.run = amx_run;
}

constexpr KernelRow kRows[] = {
    {"linear_recurrence_f32_32x1x32_amx", "linear_recurrence", nullptr, 0, kAvx2 | kAvx512 | kAvx512Bf16 | kAmxBf16,
     kFewestRows, 1, amx_scratch, amx_prepare},
};

}  // namespace

KernelRows recurrence_amx_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
