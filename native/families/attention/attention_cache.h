// The arguments of attention, and where keys and values lie: in one contiguous KV cache, which counts as a single page,
// or in pages of several sequences. New keys and values are stored from here.
#pragma once

#include "../embedding/embedding.h"
#include "../runs.h"
#include "attention_scores.h"

namespace lowbit {

struct AttentionArgs {
  const float* q;
  // New keys and values; null where the cache holds them already.
  const float* k;
  const float* v;
  float* y;
  float* scratch;
  // Addresses of a contiguous cache, or byte offsets in a page. Of int4 pages: keys and values of the f16 residual,
  // scales of full pages.
  uintptr_t keys, values, key_scales, value_scales;
  // Block table [slots][pages_max] of page addresses; null for a contiguous cache.
  const uint64_t* pages;
  // int4 only: block table of full pages, and byte offsets of their keys and values.
  const uint64_t* full_pages;
  uintptr_t full_keys, full_values;
  // With pages: the number of runs, then [run][kRunFields] int32. With a contiguous cache: the first token's position,
  // int64.
  const void* runs;
  // Attention sinks, [heads] scores without a value; or null.
  const float* sinks;
  uint32_t rows, heads, kv_heads, head_dim, window;
  // Most positions of a sequence.
  uint32_t capacity;
  // log2 of the positions of a page.
  uint32_t page_shift;
  uint32_t pages_max, runs_max;
  // Query heads per KV head.
  uint32_t group;
  // Pairs of dimensions that rope_update_and_attend rotates in a head.
  uint32_t half;
  ScoreRule rule;
  uint32_t threads;
  bool is_int4;
  // Whether prefill runs use the kernel that copies keys and values.
  bool copies_for_prefill;
  // Tokens of a part whose queries share copies of keys, and of a tile of phase 0.
  uint32_t rows_per_tile, stored_per_tile;
  // Floats of a thread's scratch; and most tokens of a step whose keys may be shared among threads (split-K).
  size_t thread_floats;
  uint32_t split_rows;

  size_t stride() const { return static_cast<size_t>(kv_heads) * head_dim; }
  // First position that a query at `position` sees: the start of its window.
  uint32_t first_seen(uint32_t position) const { return window > 0 && position >= window ? position - window + 1 : 0; }
};
static_assert(sizeof(AttentionArgs) + 3 * sizeof(void*) <= kArgsMax);

// Calls body with each run whose tokens and positions are within the call's. Each run is read from memory once.
template <class Body>
void each_run(const AttentionArgs& args, Body&& body) {
  if (!args.pages) {
    const int64_t start = *static_cast<const volatile int64_t*>(args.runs);
    if (start >= 0 && start <= static_cast<int64_t>(args.capacity) - args.rows)
      body(Run{0, args.rows, static_cast<uint32_t>(start), 0, false});
    return;
  }
  each_run_of(args.runs, args.runs_max, args.rows, args.capacity, body);
}

// Keys and values of all KV heads, [kv_heads][head_dim] each, at consecutive positions of the cache.
template <class Element>
struct CacheRows {
  Element* keys;
  Element* values;
  // Null unless elements are int8.
  float* key_scales;
  float* value_scales;
  // Positions left in the page, the first one included.
  uint32_t count;
};

template <class Element>
CacheRows<Element> cache_rows(const AttentionArgs& args, uint32_t slot, uint32_t position) {
  uintptr_t page = 0;
  size_t row = position;
  uint32_t count = args.capacity - position;
  if (args.pages) {
    const uint32_t positions = 1u << args.page_shift;
    row = position & (positions - 1);
    count = positions - static_cast<uint32_t>(row);
    page = args.pages[static_cast<size_t>(slot) * args.pages_max + (position >> args.page_shift)];
  }
  const size_t at = row * args.stride() * sizeof(Element), scales_at = row * args.kv_heads * sizeof(float);
  return {reinterpret_cast<Element*>(page + args.keys + at), reinterpret_cast<Element*>(page + args.values + at),
          reinterpret_cast<float*>(page + args.key_scales + scales_at),
          reinterpret_cast<float*>(page + args.value_scales + scales_at), count};
}

// Finds the rows of the block at `start`, for KV heads from `kv` on. Positions begin .. end - 1 of it are present.
template <class Element>
void find_rows(const AttentionArgs& args, uint32_t slot, uint32_t kv, uint32_t start, uint32_t begin, uint32_t end,
               CacheBlock<Element>* block) {
  block->start = start;
  block->first = begin - start;
  block->last = end - start;
  block->dim = args.head_dim;
  block->kv = kv;
  const size_t at = static_cast<size_t>(kv) * args.head_dim;
  for (uint32_t position = begin; position < end;) {
    const CacheRows<Element> rows = cache_rows<Element>(args, slot, position);
    const uint32_t count = std::min(rows.count, end - position);
    for (uint32_t i = 0; i < count; i++) {
      const uint32_t key = position - start + i;
      block->keys[key] = rows.keys + i * args.stride() + at;
      block->values[key] = rows.values + i * args.stride() + at;
      if constexpr (CacheBlock<Element>::kIsScaled) {
        block->key_scales[key] = rows.key_scales + static_cast<size_t>(i) * args.kv_heads + kv;
        block->value_scales[key] = rows.value_scales + static_cast<size_t>(i) * args.kv_heads + kv;
      }
    }
    position += count;
  }
  block->repeat_ends();
}

// Quantizes a head's row to int8 and returns its scale, the largest magnitude / 127. Below 1e-30 the row becomes zeros.
// A row with a value that is not finite gets NaN as scale.
template <class Isa>
float store_integers(const float* x, uint32_t dim, int8_t* target) {
  constexpr float kLeast = 1e-30f;
  Magnitude<Isa> magnitude;
  each_vector<Isa>(dim, [&](size_t d, auto vector) { magnitude.add(vector.load(x + d)); });
  const float largest = magnitude.largest();
  const auto inverse = Isa::set(largest < kLeast ? 0.0f : 127.0f / largest);
  each_vector<Isa>(dim, [&](size_t d, auto vector) { vector.store(target + d, vector.load(x + d) * inverse); });
  return (largest < kLeast ? 0.0f : largest / 127.0f) + magnitude.unless_finite();
}

// Stores the keys and values of `count` tokens, from token `row` of the step on, at consecutive positions.
template <class Isa, class Element>
void store_rows(const AttentionArgs& args, size_t row, uint32_t count, const CacheRows<Element>& target) {
  const size_t stride = args.stride();
  const float* k = args.k + row * stride;
  const float* v = args.v + row * stride;
  if constexpr (std::is_same_v<Element, int8_t>) {
    for (size_t head = 0; head < static_cast<size_t>(count) * args.kv_heads; head++) {
      const size_t at = head * args.head_dim;
      target.key_scales[head] = store_integers<Isa>(k + at, args.head_dim, target.keys + at);
      target.value_scales[head] = store_integers<Isa>(v + at, args.head_dim, target.values + at);
    }
  } else {
    each_vector<Isa>(count * stride, [&](size_t i, auto vector) {
      vector.store(target.keys + i, vector.load(k + i));
      vector.store(target.values + i, vector.load(v + i));
    });
  }
}

// Stores the keys and values of tokens first .. last - 1. Results of tokens that belong to no run become NaN.
template <class Isa, class Element>
void store_tile(const AttentionArgs& args, uint32_t first, uint32_t last) {
  const size_t columns = static_cast<size_t>(args.heads) * args.head_dim;
  uint32_t known = first;
  auto skip_to = [&](uint32_t row) {
    if (row > known) fill_nan(args.y + known * columns, (row - known) * columns);
  };
  each_run(args, [&](const Run& run) {
    uint32_t row = std::max(first, run.row);
    const uint32_t end = std::min(last, run.row + run.rows);
    if (row >= end) return;
    skip_to(row);
    known = end;
    while (args.k && row < end) {
      const CacheRows<Element> target = cache_rows<Element>(args, run.slot, run.position + (row - run.row));
      const uint32_t count = std::min(target.count, end - row);
      store_rows<Isa>(args, row, count, target);
      row += count;
    }
  });
  skip_to(last);
}

}  // namespace lowbit
