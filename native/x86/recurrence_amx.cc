// Linear recurrences (linear_recurrence.h) with the delta rule over long runs on AMX, in chunks of n rows (Yang et al.
// 2024). With S0 the state before a chunk and e(r, j) the decay from row j to row r, the updates u of the rows solve a
// triangular system:
//
//   u_r = beta_r (v_r - e(r, 0) S0^T k_r) - sum over j < r of beta_r e(r, j) (k_r . k_j) u_j
//   y_r = e(r, 0) S0^T q_r + sum over j <= r of e(r, j) (q_r . k_j) u_j
//   S   = e(n, 0) S0 + sum over j of k_j (e(n, j) u_j)^T
//
// The system is inverted in floats, row by row. All else is products of tiles, whose floats are sums of two bf16
// (split_bf16.h): as exact as 16 bits of the largest terms. In products that sum over rows, the two bf16 of a pair are
// of rows that are 16 apart, so that words of keys as right factors serve as left factors, too. Flags: see
// scripts/native/build.js.
#include "recurrence_chunks_amx.h"

namespace lowbit {
namespace {

// Processes the chunks of one head.
class HeadTiles {
 public:
  HeadTiles(const LinearRecurrenceArgs& args, const Sizes& sizes, const Workspace& w, uint32_t head, float* state)
      : args_(args),
        sizes_(sizes),
        w_(w),
        head_(head),
        state_(state) {}

  void load(const float* now) const {
    const float* from = now + place_of_state();
    each_state_vector([&](uint32_t key, uint32_t column, float* place) {
      const bool is_there = key < args_.key_dim;
      const float* row = from + static_cast<size_t>(key) * args_.value_dim;
      _mm512_store_ps(place, is_there ? load_columns(row, column, args_.value_dim) : _mm512_setzero_ps());
    });
  }

  void store(float* next) const {
    each_state_vector([&](uint32_t key, uint32_t column, const float* place) {
      if (key >= args_.key_dim) return;
      float* row = next + place_of_state() + static_cast<size_t>(key) * args_.value_dim;
      store_columns(row, column, args_.value_dim, _mm512_load_ps(place));
    });
  }

  // Processes a chunk. Returns false where an update u is not finite: products of tiles would give it to earlier rows,
  // too, as 0 * u is NaN.
  bool take(const Chunk& chunk, const ChunkKeys& keys, RowsAhead ahead) const {
    const ChunkGates gates(args_, chunk, head_);
    weigh(gates);
    if (args_.beta) invert();
    const __m512 decay = _mm512_set1_ps(gates.since_first[kChunk - 1]);
    for (uint32_t tile = 0; tile < sizes_.key_tiles; tile += 2) convert_state(0, tile, decay, ahead);
    for (uint32_t pair = 0; pair < sizes_.pairs; pair++) {
      tile_fence();
      for (uint32_t row = args_.beta ? 0 : 2; row < 4; row += 2) {
        keys.multiply_steps(row, w_.factors);
        store_sums(read(row), read(row + 1));
      }
      tile_fence();
      if (!add_values(chunk, gates, pair)) return false;
      add_reads(gates);
      add_to_state(pair, decay, ahead);
      store_rows(chunk, pair);
    }
    return true;
  }

 private:
  size_t place_of_state() const { return static_cast<size_t>(head_) * args_.key_dim * args_.value_dim; }
  size_t value_place(uint32_t row) const { return (static_cast<size_t>(row) * args_.heads + head_) * args_.value_dim; }
  // Two by two tiles of the state.
  float* state_tiles(uint32_t pair, uint32_t keys) const {
    return state_ + (size_t{pair} * sizes_.key_tiles + keys) * 2 * kTileFloats;
  }
  // S0^T k of two tiles of rows, and from tile 2 on S0^T q.
  float* read(uint32_t tile) const { return w_.reads + 2 * tile * kTileFloats; }
  // Address of a row in sums of two by two tiles.
  static float* row_of(float* sums, uint32_t row, uint32_t c) {
    return sums + (row / 16 * 2 + c) * kTileFloats + 16 * (row % 16);
  }

  template <class Body>
  void each_state_vector(Body&& body) const {
    for (uint32_t key = 0; key < 16 * sizes_.key_tiles; key++)
      for (uint32_t c = 0; c < 2 * sizes_.pairs; c++) body(key, 16 * c, row_of(state_tiles(c / 2, 0), key, c % 2));
  }

  // Computes the system, and the weights e(r, j) (q_r . k_j) of u in y.
  LOWBIT_APART void weigh(const ChunkGates& gates) const {
    for (uint32_t row = 0; row < kChunk; row++) {
      const __m512d own = _mm512_set1_pd(gates.logs[row]);
      const __m512 factor = _mm512_set1_ps(-gates.beta[row]), scale = _mm512_set1_ps(args_.scale);
      __m512 weights[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
      for (uint32_t half = 0; half <= row / 16; half++) {
        const __m512 decay = gates.decayed_by(16 * half, [&](__m512d log) { return own - log; });
        // Masks of rows 16 * half ..: those up to this row, and those before it.
        const uint32_t before = (1u << std::min(16u, row - 16 * half)) - 1, until = 2 * before + 1;
        weights[half] = _mm512_maskz_mul_ps(static_cast<__mmask16>(until), scale * decay, product(kChunk + row, half));
        if (args_.beta)
          _mm512_store_ps(w_.system + kChunk * row + 16 * half,
                          _mm512_maskz_mul_ps(static_cast<__mmask16>(before), factor * decay, product(row, half)));
      }
      store_split(row_of_two(w_.weights, row), split_pairs(weights[0], weights[1]));
    }
  }

  __m512 product(uint32_t row, uint32_t half) const { return _mm512_load_ps(row_of(w_.products, row, half)); }
  static uint8_t* row_of_two(uint8_t* tiles, uint32_t row) { return tiles + row / 16 * kSplitBytes + 64 * (row % 16); }

  // Inverts the system row by row; two sums of each row run in parallel.
  LOWBIT_APART void invert() const {
    const __m512 zero = _mm512_setzero_ps();
    for (uint32_t row = 0; row < kChunk; row++) {
      const float* system = w_.system + kChunk * row;
      float* to = w_.inverse + kChunk * row;
      __m512 low = _mm512_load_ps(system), high = row < 16 ? zero : _mm512_load_ps(system + 16), low2 = zero;
      uint32_t j = 0;
      for (; j < std::min(row, 16u); j++) low = add_row(system, j, 0, low);
      for (; j < row; j++) {
        low2 = add_row(system, j, 0, low2);
        high = add_row(system, j, 16, high);
      }
      low = low + low2;
      _mm512_store_ps(to, low);
      _mm512_store_ps(to + 16, high);
      store_split(row_of_two(w_.taken, row), split_pairs(low, high));
    }
  }

  __m512 add_row(const float* system, uint32_t j, uint32_t column, __m512 sum) const {
    return _mm512_fmadd_ps(_mm512_set1_ps(system[j]), _mm512_load_ps(w_.inverse + kChunk * j + column), sum);
  }

  // Converts two by two tiles of the state to factors, and decays them to the chunk's end.
  void convert_state(uint32_t pair, uint32_t keys, __m512 decay, RowsAhead& ahead) const {
    for (uint32_t c = 0; c < 2; c++) {
      uint8_t* target = w_.factors + (size_t{c} * sizes_.steps + keys / 2) * kSplitBytes;
      for (uint32_t tile = keys; tile < keys + 2; tile++) {
        float* place = state_tiles(pair, tile) + c * kTileFloats;
        for (uint32_t i = 0; i < 8; i++, target += 64, place += 32) {
          ahead.fetch();
          const __m512 a = _mm512_load_ps(place), b = _mm512_load_ps(place + 16);
          store_split(target, split_pairs(a, b));
          _mm512_store_ps(place, a * decay);
          _mm512_store_ps(place + 16, b * decay);
        }
      }
    }
  }

  // Computes u of a pair of value tiles; returns whether all of it is finite.
  LOWBIT_APART bool add_values(const Chunk& chunk, const ChunkGates& gates, uint32_t pair) const {
    const __m512 zero = _mm512_setzero_ps();
    __m512 unless_finite = zero;
    auto keep = [&](uint32_t i, uint32_t c, __m512 a, __m512 b) LOWBIT_INLINE {
      unless_finite = _mm512_fmadd_ps(b, zero, _mm512_fmadd_ps(a, zero, unless_finite));
      store_split(w_.addends + c * kSplitBytes + 64 * i, split_pairs(a, b));
      store_split(w_.lasting + c * kSplitBytes + 64 * i,
                  split_pairs(a * _mm512_set1_ps(gates.until_last[i]), b * _mm512_set1_ps(gates.until_last[16 + i])));
    };
    auto value = [&](uint32_t row, uint32_t c) LOWBIT_INLINE {
      const __m512 v = row < chunk.rows
                           ? load_columns(args_.v + value_place(chunk.first + row), 32 * pair + 16 * c, args_.value_dim)
                           : zero;
      if (!args_.beta) return v;
      const __m512 known = _mm512_load_ps(row_of(w_.reads, row, c)), since = _mm512_set1_ps(gates.since_first[row]);
      const __m512 u = _mm512_set1_ps(gates.beta[row]) * _mm512_fnmadd_ps(since, known, v);
      _mm512_store_ps(row_of(w_.added, row, c), u);
      return u;
    };
    for (uint32_t i = 0; i < 16; i++)
      for (uint32_t c = 0; c < 2; c++) {
        const __m512 a = value(i, c), b = value(16 + i, c);
        if (args_.beta) store_split(w_.given + c * kSplitBytes + 64 * i, split_pairs(a, b));
        else keep(i, c, a, b);
      }
    if (args_.beta) {
      tile_fence();
      add_product(w_.taken, w_.given, w_.added);
      tile_fence();
      for (uint32_t i = 0; i < 16; i++)
        for (uint32_t c = 0; c < 2; c++)
          keep(i, c, _mm512_load_ps(row_of(w_.added, i, c)), _mm512_load_ps(row_of(w_.added, 16 + i, c)));
    }
    return _mm512_cmp_ps_mask(unless_finite, unless_finite, _CMP_UNORD_Q) == 0;
  }

  // Computes y of all rows in place of S0^T q.
  void add_reads(const ChunkGates& gates) const {
    for (uint32_t row = 0; row < kChunk; row++) {
      const __m512 factor = _mm512_set1_ps(args_.scale * gates.since_first[row]);
      for (uint32_t c = 0; c < 2; c++) {
        float* place = row_of(read(2), row, c);
        _mm512_store_ps(place, _mm512_load_ps(place) * factor);
      }
    }
    tile_fence();
    add_product(w_.weights, w_.addends, read(2));
    tile_fence();
  }

  // Converts the next pair's tiles while tiles are multiplied.
  void add_to_state(uint32_t pair, __m512 decay, RowsAhead& ahead) const {
    for (uint32_t keys = 0; keys < sizes_.key_tiles; keys += 2) {
      tile_fence();
      add_product(w_.turned + keys * kSplitBytes, w_.lasting, state_tiles(pair, keys));
      tile_fence();
      if (pair + 1 < sizes_.pairs) convert_state(pair + 1, keys, decay, ahead);
    }
  }

  void store_rows(const Chunk& chunk, uint32_t pair) const {
    for (uint32_t row = 0; row < chunk.rows; row++)
      for (uint32_t c = 0; c < 2; c++)
        store_columns(args_.y + value_place(chunk.first + row), 32 * pair + 16 * c, args_.value_dim,
                      _mm512_load_ps(row_of(read(2), row, c)));
  }

  const LinearRecurrenceArgs& args_;
  const Sizes& sizes_;
  const Workspace& w_;
  const uint32_t head_;
  float* const state_;
};

// Heads `first` .. `end` - 1 of a tile of work.
struct HeadRange {
  uint32_t first, end;

  HeadRange(const LinearRecurrenceArgs& args, uint32_t tile)
      : first(tile * args.per_tile),
        end(std::min(args.heads, first + args.per_tile)) {}
};

// Processes a run for some heads. Returns a bit for each head that is left to other kernels (see HeadTiles::take).
uint32_t run_tiles(const LinearRecurrenceArgs& args, const HeadRange& heads, uint8_t* scratch, const Run& run,
                   const float* now, float* next) {
  const Sizes sizes(args);
  const Workspace w(sizes, scratch);
  auto head_tiles = [&](uint32_t head) {
    return HeadTiles(args, sizes, w, head, w.states + (head - heads.first) * sizes.state_tiles() * kTileFloats);
  };
  uint32_t left = 0;
  for (uint32_t head = heads.first; head < heads.end; head++) head_tiles(head).load(now);
  {
    const TileScope tiles;
    const uint32_t end = run.row + run.rows;
    for (uint32_t row = run.row; row < end; row += kChunk) {
      const Chunk chunk(row, end);
      for (uint32_t head = heads.first; head < heads.end; head++) {
        const ChunkKeys keys(args, sizes, w, key_head_of(args, head));
        if (head == heads.first || key_head_of(args, head - 1) != key_head_of(args, head)) keys.take(chunk);
        const bool is_last = head + 1 == heads.end;
        const RowsAhead ahead(args, is_last ? row + kChunk : row, is_last ? std::min(kChunk, chunk.ahead) : chunk.rows,
                              is_last ? heads.first : head + 1,
                              !is_last && key_head_of(args, head + 1) == key_head_of(args, head),
                              16 * sizes.key_tiles * sizes.pairs);
        const uint32_t bit = 1u << (head - heads.first);
        if (!(left & bit) && !head_tiles(head).take(chunk, keys, ahead)) left |= bit;
      }
    }
  }
  for (uint32_t head = heads.first; head < heads.end; head++)
    if (!(left >> (head - heads.first) & 1)) head_tiles(head).store(next);
  return left;
}

// Fewest rows of a run, and least key and value dimensions, for which chunks pay.
constexpr uint32_t kFewestRows = 32, kLeastDim = 64;

bool is_for_tiles(const LinearRecurrenceArgs& args, const Run& run) {
  return run.rows >= kFewestRows && args.key_dim >= kLeastDim && args.value_dim >= kLeastDim;
}

size_t thread_bytes(const LinearRecurrenceArgs& args) {
  const size_t columns = 4 * size_t{args.key_dim} * StateColumns<FloatsAvx512>::kCount;
  return std::max(round_up(columns, 64), Workspace(Sizes(args), nullptr).bytes);
}

void amx_run(const Step& step, uint32_t, uint32_t tile, uint32_t thread) {
  const LinearRecurrenceArgs& args = step.as<LinearRecurrenceArgs>();
  const HeadRange heads(args, tile);
  uint8_t* scratch = reinterpret_cast<uint8_t*>(args.scratch) + thread * thread_bytes(args);
  const size_t columns = args.value_dim;
  each_recurrence(args, heads.first * columns, heads.end * columns, [&](const Run& run, const float* now, float* next) {
    uint32_t left = ~0u;
    if (is_for_tiles(args, run)) left = run_tiles(args, heads, scratch, run, now, next);
    for (uint32_t head = heads.first; head < heads.end; head++)
      for (uint32_t i = 0; left >> (head - heads.first) & 1 && i < args.groups; i++)
        RecurrentGroup<FloatsAvx512>(args, head * args.groups + i, reinterpret_cast<float*>(scratch))
            .run(run, now, next);
  });
  if (args.streams) FloatsAvx512::end_streams();
}

size_t amx_scratch(const Call& call) { return call.threads * thread_bytes(recurrence_sizes<FloatsAvx512>(call)); }

void amx_prepare(Step& step, const Call& call) {
  linear_recurrence_prepare<FloatsAvx512>(step, call);
  LinearRecurrenceArgs& args = step.init<LinearRecurrenceArgs>();
  // per_tile counts heads here.
  args.per_tile = std::clamp(args.heads / call.threads, 1u, kHeadsMost);
  step.tiles[0] = ceil_div(args.heads, args.per_tile);
  step.run = amx_run;
}

constexpr KernelRow kRows[] = {
    {"linear_recurrence_f32_32x1x32_amx", "linear_recurrence", nullptr, 0, kAvx2 | kAvx512 | kAvx512Bf16 | kAmxBf16,
     kFewestRows, 1, amx_scratch, amx_prepare},
};

}  // namespace

KernelRows recurrence_amx_rows() { return {kRows, sizeof kRows / sizeof *kRows}; }

}  // namespace lowbit
