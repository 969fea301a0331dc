// The blocks of a part whose queries share copies of keys and values (prefill). An int4 page, which is one block, is
// expanded to f16 rows once for all queries that see it in 4 bits.
#pragma once

#include "attention_part.h"
#include "int4_pages.h"

namespace lowbit {

// f16 to f32.
template <class Isa>
void floats_of_halves(const uint16_t* from, uint32_t count, float* target) {
  for (uint32_t i = 0; i < count; i += Isa::kLanes) Isa::store(target + i, Isa::load_halves(from + i));
}

// Expands the int4 keys of a head to f16 rows [position][int4_columns].
template <class Isa>
void expand_int4_keys(const Int4Head& head, uint32_t columns, uint16_t* rows) {
  constexpr uint32_t kLanes = Isa::kLanes;
  static_assert(kLanes >= 4);
  const uint8_t* from = head.keys;
  for (uint32_t d = 0; d < columns; d += 4) {
    for (uint32_t position = 0; position < kInt4Positions; position += 32, from += 64) {
      const uint16_t* of_columns = head.key_scales + position / kInt4Shared * 2 * columns + d;
      uint16_t scales[2][kLanes];
      for (uint32_t i = 0; i < kLanes; i++) {
        scales[0][i] = of_columns[i % 4];
        scales[1][i] = of_columns[columns + i % 4];
      }
      const auto step = Isa::load_halves(scales[0]), least = Isa::load_halves(scales[1]);
      int8_t integers[128];
      for (uint32_t i = 0; i < 64; i++) {
        integers[i] = static_cast<int8_t>(from[i] & 15);
        integers[64 + i] = static_cast<int8_t>(from[i] >> 4);
      }
      for (uint32_t i = 0; i < 128; i += kLanes) {
        uint16_t halves[kLanes];
        Isa::store_halves(halves, Isa::multiply_add(Isa::load_integers(integers + i), step, least));
        for (uint32_t c = 0; c < kLanes; c += 4) memcpy(rows + (position + (i + c) / 4) * columns + d, halves + c, 8);
      }
    }
  }
}

// Expands the int4 values of a head to f16 rows [position][int4_columns].
template <class Isa>
void expand_int4_values(const Int4Head& head, uint32_t columns, uint16_t* rows) {
  float scales[2 * kInt4Positions];
  floats_of_halves<Isa>(head.value_scales, 2 * kInt4Positions, scales);
  const uint8_t* from = head.values;
  for (uint32_t position = 0; position < kInt4Positions; position += 4)
    for (uint32_t d = 0; d < columns; d += 32, from += 64) {
      uint32_t fours[16];
      memcpy(fours, from, sizeof fours);
      for (uint32_t i = 0; i < 4; i++) {
        int8_t integers[32];
        for (uint32_t c = 0; c < 16; c++) {
          integers[c] = static_cast<int8_t>(fours[c] >> 8 * i & 15);
          integers[16 + c] = static_cast<int8_t>(fours[c] >> (8 * i + 4) & 15);
        }
        const auto step = Isa::set(scales[position + i]), least = Isa::set(scales[kInt4Positions + position + i]);
        for (uint32_t c = 0; c < 32; c += Isa::kLanes)
          Isa::store_halves(rows + (position + i) * columns + d + c,
                            Isa::multiply_add(Isa::load_integers(integers + c), step, least));
      }
    }
}

// Floats of scratch for the keys and values of a head of an int4 page as f16.
static inline size_t expanded_floats(const AttentionArgs& args) {
  return args.is_int4 ? size_t{kInt4Positions} * int4_columns(args.head_dim) : 0;
}

// A part whose queries share each block's expanded form.
template <class Isa, class Element>
class SharedBlocksPart : public AttentionPart<Isa, Element> {
 public:
  explicit SharedBlocksPart(const AttentionPart<Isa, Element>& part) : AttentionPart<Isa, Element>(part) {}

 protected:
  // Calls body(block, range) for each block in order, with the queries that may see it. For an int4 page that is up to
  // twice: the f16 residual with the queries that read it, and the expanded page with the others.
  template <class Body>
  void each_shared_block(float* expanded, Body&& body) {
    if constexpr (std::is_same_v<Element, uint16_t>)
      if (this->args_.is_int4) return each_page(reinterpret_cast<uint16_t*>(expanded), body);
    this->each_block(
        [&](const CacheBlock<Element>& block, uint32_t, bool) { body(block, QueryRange{0, this->queries()}); });
  }

 private:
  template <class Body>
  void each_page(uint16_t* expanded, Body&& body) {
    CacheBlock<Element> block;
    for (uint32_t start = this->begin_ / kBlockKeys * kBlockKeys; start < this->end_; start += kBlockKeys) {
      const auto [near, far] = this->int4_ranges(start);
      block.next = nullptr;
      if (near.first < near.last) {
        this->find_block(start, &block);
        body(block, near);
      }
      if (far.first < far.last) {
        expand(start, expanded, &block);
        body(block, far);
      }
    }
  }

  void expand(uint32_t start, uint16_t* rows, CacheBlock<Element>* block) {
    const uint32_t columns = int4_columns(this->args_.head_dim), page = start / kInt4Positions;
    const Int4Head head = int4_head(this->args_, this->run_.slot, page, this->kv_first_);
    uint16_t* values = rows + kInt4Positions * columns;
    expand_int4_keys<Isa>(head, columns, rows);
    expand_int4_values<Isa>(head, columns, values);
    block->start = start;
    block->first = std::max(start, this->begin_) - start;
    block->last = kBlockKeys;
    block->dim = this->args_.head_dim;
    block->kv = this->kv_first_;
    for (uint32_t key = 0; key < kBlockKeys; key++) {
      block->keys[key] = rows + key * columns;
      block->values[key] = values + key * columns;
    }
    block->repeat_ends();
  }
};

}  // namespace lowbit
