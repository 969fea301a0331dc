// Full int4 pages of keys and values (KIVI, Liu et al. 2024), quantized from f16: x = minimum + scale * n with n of 0
// .. 15. Keys have a scale and a minimum for each column and 32 positions, values for each position.
//
// Bytes of a head's keys: [columns / 4][half h of the page][16 positions i][4 columns], with position 32 h + i in the
// low nibbles and 32 h + 16 + i in the high ones. Bytes of its values: [positions / 4][columns / 32: g][16 columns i][4
// positions], with column 32 g + i in the low nibbles and 32 g + 16 + i in the high ones. Scales and minima are f16. Of
// values: all scales, then all minima; of keys likewise, for the first 32 positions, then for the others.
#pragma once

#include "attention_cache.h"

namespace lowbit {

// Positions of an int4 page: one block.
constexpr uint32_t kInt4Positions = kBlockKeys;
// Positions that share scales of keys, and the number of such halves of a page.
constexpr uint32_t kInt4Shared = 32, kInt4Halves = kInt4Positions / kInt4Shared;
constexpr float kInt4Most = 15;

// Columns of a head, padded to whole groups of 32.
static inline uint32_t int4_columns(uint32_t head_dim) { return round_up(head_dim, 32); }

// Addresses of one KV head in a full page.
struct Int4Head {
  uint8_t* keys;
  uint8_t* values;
  // key_scales: kInt4Halves times [columns] scales and [columns] minima. value_scales: [positions] scales, [positions]
  // minima.
  uint16_t* key_scales;
  uint16_t* value_scales;
};

static inline Int4Head int4_head(const AttentionArgs& args, uint32_t slot, uint32_t page, uint32_t head) {
  const uintptr_t at = args.full_pages[static_cast<size_t>(slot) * args.pages_max + page];
  const size_t columns = int4_columns(args.head_dim), bytes = head * columns * kInt4Positions / 2;
  return {reinterpret_cast<uint8_t*>(at + args.full_keys + bytes),
          reinterpret_cast<uint8_t*>(at + args.full_values + bytes),
          reinterpret_cast<uint16_t*>(at + args.key_scales) + 2 * kInt4Halves * head * columns,
          reinterpret_cast<uint16_t*>(at + args.value_scales) + 2 * head * kInt4Positions};
}

// Scales, their inverses and minima for values from `least` to `most`, a lane each; NaN where these are not finite.
template <class Isa>
struct Int4Scales {
  using V = typename Isa::V;
  V step, least, inverse;

  Int4Scales(V least, V most, V unless_finite) : least(least + Isa::set(0) + unless_finite) {
    uint16_t halves[Isa::kLanes];
    Isa::store_halves(halves, (most - this->least) / Isa::set(kInt4Most));
    step = Isa::load_halves(halves);
    inverse = Isa::choose_less(Isa::set(0), step, Isa::set(1) / step, Isa::set(0));
  }
  V integers(V x) const { return Isa::min(Isa::max((x - least) * inverse, Isa::set(0)), Isa::set(kInt4Most)); }
};

// Packs integers [columns][positions] of a head's keys in page order.
static inline void order_keys(const int8_t* integers, uint32_t columns, uint8_t* target) {
  for (uint32_t d = 0; d < columns; d++)
    for (uint32_t half = 0; half < 2; half++) {
      const int8_t* from = integers + d * kInt4Positions + 32 * half;
      uint8_t* to = target + d / 4 * 128 + 64 * half + d % 4;
      for (uint32_t i = 0; i < 16; i++) to[4 * i] = static_cast<uint8_t>(from[i] | from[16 + i] << 4);
    }
}

// Packs integers [positions][columns] of a head's values in page order.
static inline void order_values(const int8_t* integers, uint32_t columns, uint8_t* target) {
  for (uint32_t position = 0; position < kInt4Positions; position++)
    for (uint32_t d = 0; d < columns; d += 32) {
      const int8_t* from = integers + position * columns + d;
      uint8_t* to = target + position / 4 * 2 * columns + 2 * d + position % 4;
      for (uint32_t i = 0; i < 16; i++) to[4 * i] = static_cast<uint8_t>(from[i] | from[16 + i] << 4);
    }
}

// Quantizes one head of a full page from f16 rows that are `stride` apart. `integers` is scratch for the head.
template <class Isa>
void fill_int4_keys(const uint16_t* rows, size_t stride, uint32_t dim, int8_t* integers, const Int4Head& target) {
  const uint32_t columns = int4_columns(dim);
  memset(integers, 0, columns * kInt4Positions);
  memset(target.key_scales, 0, 4 * kInt4Halves * columns);
  for (uint32_t first = 0; first < kInt4Positions; first += kInt4Shared) {
    const uint16_t* from = rows + first * stride;
    uint16_t* to = target.key_scales + first / kInt4Shared * 2 * columns;
    each_vector<Isa>(dim, [&](size_t d, auto vector) {
      auto least = vector.load(from + d), most = least, finite = Isa::set(0);
      for (uint32_t i = 0; i < kInt4Shared; i++) {
        const auto x = vector.load(from + i * stride + d);
        least = Isa::min(x, least);
        most = Isa::max(x, most);
        finite = Isa::multiply_add(x, Isa::set(0), finite);
      }
      const Int4Scales<Isa> scales(least, most, finite);
      vector.store(to + d, scales.step + finite);
      vector.store(to + columns + d, scales.least);
      const uint32_t count = std::min<uint32_t>(Isa::kLanes, dim - static_cast<uint32_t>(d));
      for (uint32_t i = 0; i < kInt4Shared; i++) {
        int8_t all[Isa::kLanes];
        Isa::store_integers(all, scales.integers(vector.load(from + i * stride + d)));
        for (uint32_t c = 0; c < count; c++) integers[(d + c) * kInt4Positions + first + i] = all[c];
      }
    });
  }
  order_keys(integers, columns, target.keys);
}

template <class Isa>
void fill_int4_values(const uint16_t* rows, size_t stride, uint32_t dim, int8_t* integers, const Int4Head& target) {
  const uint32_t columns = int4_columns(dim);
  memset(integers, 0, columns * kInt4Positions);
  for (uint32_t i = 0; i < kInt4Positions; i++) {
    const uint16_t* row = rows + i * stride;
    auto least = Isa::set(INFINITY), most = Isa::set(-INFINITY), finite = Isa::set(0);
    each_vector<Isa>(dim, [&](size_t d, auto vector) {
      const auto x = vector.load(row + d);
      finite = Isa::multiply_add(x, Isa::set(0), finite);
      // Lanes past the last column repeat the first lane.
      const auto own =
          Isa::choose_less(lane_keys<Isa, 1>(), Isa::set(static_cast<float>(dim - d)), x, Isa::set(Isa::first_lane(x)));
      least = Isa::min(own, least);
      most = Isa::max(own, most);
    });
    const auto unless_finite = Isa::set(Isa::sum(finite));
    const Int4Scales<Isa> scales(Isa::set(0) - Isa::set(Isa::largest(Isa::set(0) - least)),
                                 Isa::set(Isa::largest(most)), unless_finite);
    uint16_t halves[Isa::kLanes];
    Isa::store_halves(halves, scales.step + unless_finite);
    target.value_scales[i] = halves[0];
    Isa::store_halves(halves, scales.least);
    target.value_scales[kInt4Positions + i] = halves[0];
    each_vector<Isa>(dim, [&](size_t d, auto vector) {
      vector.store(integers + i * columns + d, scales.integers(vector.load(row + d)));
    });
  }
  order_values(integers, columns, target.values);
}

// Calls body(first, last) with the ranges of tokens that tile `tile` of `tiles` stores: each has tokens of one page,
// and those of no run before them.
template <class Body>
void each_int4_range(const AttentionArgs& args, uint32_t tile, uint32_t tiles, Body&& body) {
  uint32_t known = 0, index = 0;
  auto range = [&](uint32_t end) {
    if (index++ % tiles == tile) body(known, end);
    known = end;
  };
  each_run(args, [&](const Run& run) {
    const uint32_t end = run.position + run.rows;
    for (uint32_t position = run.position; position < end;) {
      position = std::min(end, (position / kInt4Positions + 1) * kInt4Positions);
      range(run.row + (position - run.position));
    }
  });
  range(args.rows);
}

// Quantizes the pages whose last position one of the tokens first .. last - 1 fills. These are of one page of each run.
template <class Isa>
void fill_int4_pages(const AttentionArgs& args, uint32_t first, uint32_t last, int8_t* integers) {
  each_run(args, [&](const Run& run) {
    const uint32_t end = std::min(last, run.row + run.rows);
    if (end <= std::max(first, run.row)) return;
    const uint32_t position = run.position + (end - run.row);
    if (position % kInt4Positions != 0) return;
    const uint32_t page = position / kInt4Positions - 1;
    const CacheRows<uint16_t> rows = cache_rows<uint16_t>(args, run.slot, page * kInt4Positions);
    for (uint32_t head = 0; head < args.kv_heads; head++) {
      const Int4Head target = int4_head(args, run.slot, page, head);
      const size_t at = static_cast<size_t>(head) * args.head_dim;
      fill_int4_keys<Isa>(rows.keys + at, args.stride(), args.head_dim, integers, target);
      fill_int4_values<Isa>(rows.values + at, args.stride(), args.head_dim, integers, target);
    }
  });
}

}  // namespace lowbit
