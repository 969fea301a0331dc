// Attention over int4 pages (int4_pages.h), for few queries. The first page, to which most attention goes, and a
// query's own page are read in f16 (the residual), the pages between in 4 bits.
//
// With keys key_scale * n + key_minimum, n of 0 .. 15, a score is q . key = (q * key_scale) . n + q . key_minimum. The
// factor q * key_scale is quantized for each page to two bytes, a high and a low one: unit * (high + low / 254). The
// nibbles are then multiplied as bytes. Likewise the sum of values is (weight * value_scale) . n + weight .
// value_minimum. `Bytes` supplies an instruction set's vectors of bytes.
#pragma once

#include "attention_expanded.h"
#include "attention_few_rows.h"

namespace lowbit {

// Calls body(first, last) with the ranges of tokens that a tile of phase 0 stores.
template <class Body>
void each_stored_range(const AttentionArgs& args, uint32_t tile, uint32_t tiles, Body&& body) {
  if (args.is_int4) return each_int4_range(args, tile, tiles, body);
  const uint32_t first = tile * args.stored_per_tile;
  body(first, std::min(args.rows, first + args.stored_per_tile));
}

// Accumulators for two loads of packed bytes: low and high nibbles of each, by positions or columns.
constexpr int kInt4Vectors = 4;

// The first position or column that the low nibbles of the load at byte `at` have. That of the high nibbles is 16 more.
constexpr uint32_t int4_place(uint32_t at) { return at / 64 * 32 + at % 64 / 4; }

// scores[r][position] = units[half][r] * (bytes of query r . nibbles of the key) + bases[half][r] for an int4 page,
// with the bytes of queries as [kInt4Halves][kRows][columns]. Without bases (null) it adds to the scores.
template <class Bytes, int Rows>
LOWBIT_APART void multiply_int4_keys(const uint8_t* keys, const uint8_t* next, const int8_t* queries, uint32_t columns,
                                     const float (*units)[Rows], const float (*bases)[Rows], float* scores) {
  using Isa = typename Bytes::Isa;
  constexpr uint32_t kLanes = Isa::kLanes, kLoad = 4 * kLanes;
  // Halves of a page, each with key scales of its own, that two loads span.
  constexpr uint32_t kHalves = 2 * kLoad / 64 > 1 ? 2 * kLoad / 64 : 1;
  const size_t apart = size_t{Bytes::kRows} * columns;
  for (uint32_t at = 0; at < 128; at += 2 * kLoad) {
    typename Bytes::Sums sums[Rows][kInt4Vectors];
    each_index<Rows>([&](auto r) LOWBIT_INLINE {
      each_index<kInt4Vectors>([&](auto v) LOWBIT_INLINE { sums[r][v] = Bytes::none(); });
    });
    const uint8_t* from = keys + at;
    const uint8_t* ahead = next + at;
    for (uint32_t d = 0; d < columns; d += 16, from += 512, ahead += 512) {
      typename Bytes::Part parts[Rows][kInt4Vectors];
      each_index<Rows>([&](auto r) LOWBIT_INLINE {
        each_index<kInt4Vectors>([&](auto v) LOWBIT_INLINE { parts[r][v] = Bytes::begin(sums[r][v]); });
      });
      each_index<4>([&](auto i) LOWBIT_INLINE {
        const auto a = Bytes::load(from + 128 * i), b = Bytes::load(from + 128 * i + kLoad);
        __builtin_prefetch(ahead + 128 * i, 0, 2);
        __builtin_prefetch(ahead + 128 * i + kLoad, 0, 2);
        const typename Bytes::V nibbles[] = {Bytes::low(a), Bytes::high(a), Bytes::low(b), Bytes::high(b)};
        each_index<Rows>([&](auto r) LOWBIT_INLINE {
          const int8_t* query = queries + at / 64 * apart + r * columns + d + 4 * i;
          const auto first = Bytes::signed_four(query);
          const auto second = kHalves > 1 ? Bytes::signed_four(query + apart) : first;
          each_index<kInt4Vectors>([&](auto v) LOWBIT_INLINE {
            parts[r][v] = Bytes::add_signed(parts[r][v], nibbles[v], v < 2 ? first : second);
          });
        });
      });
      each_index<Rows>([&](auto r) LOWBIT_INLINE {
        each_index<kInt4Vectors>([&](auto v) LOWBIT_INLINE {
          sums[r][v] = Bytes::template end<true>(sums[r][v], parts[r][v]);
        });
      });
    }
    each_index<Rows>([&](auto r) LOWBIT_INLINE {
      each_index<kInt4Vectors>([&](auto v) LOWBIT_INLINE {
        const uint32_t position = int4_place(at + v / 2 * kLoad) + v % 2 * 16, half = position / kInt4Shared;
        float* to = scores + r * kInt4Positions + position;
        const auto base = bases ? Isa::set(bases[half][r]) : Isa::load(to);
        Isa::store(to, Isa::multiply_add(Bytes::floats(sums[r][v]), Isa::set(units[half][r]), base));
      });
    });
  }
}

// A query's weights of a page times value scales, as bytes of `unit`; offset = weights . value minima, which each
// column gets; and the factor of the sums of earlier pages.
struct Int4Weights {
  uint8_t bytes[kInt4Positions];
  float unit, offset, shrink;
};

// sums[r] = sums[r] * shrink + weights[r] . values for the columns of `Loads` loads. A row of values has four
// positions; the columns begin at its byte `at`.
template <class Bytes, int Rows, int Loads>
LOWBIT_APART void add_int4_values(const uint8_t* values, const uint8_t* next, uint32_t columns, uint32_t at,
                                  uint32_t dim, const Int4Weights* weights, float* const* sums_of_rows) {
  using Isa = typename Bytes::Isa;
  constexpr uint32_t kLoad = 4 * Isa::kLanes;
  constexpr int kVectors = 2 * Loads;
  typename Bytes::Sums sums[Rows][kVectors];
  each_index<Rows>([&](auto r) LOWBIT_INLINE {
    each_index<kVectors>([&](auto v) LOWBIT_INLINE { sums[r][v] = Bytes::none(); });
  });
  const uint8_t* from = values + at;
  const uint8_t* ahead = next + at;
  const size_t apart = 2 * static_cast<size_t>(columns);
  for (uint32_t position = 0; position < kInt4Positions; position += 16) {
    typename Bytes::Part parts[Rows][kVectors];
    each_index<Rows>([&](auto r) LOWBIT_INLINE {
      each_index<kVectors>([&](auto v) LOWBIT_INLINE { parts[r][v] = Bytes::begin(sums[r][v]); });
    });
    each_index<4>([&](auto i) LOWBIT_INLINE {
      typename Bytes::V nibbles[kVectors];
      each_index<Loads>([&](auto load) LOWBIT_INLINE {
        const auto bytes = Bytes::load(from + load * kLoad);
        __builtin_prefetch(ahead + load * kLoad, 0, 2);
        nibbles[2 * load] = Bytes::low(bytes);
        nibbles[2 * load + 1] = Bytes::high(bytes);
      });
      each_index<Rows>([&](auto r) LOWBIT_INLINE {
        const auto four = Bytes::unsigned_four(weights[r].bytes + position + 4 * i);
        each_index<kVectors>([&](auto v) LOWBIT_INLINE {
          parts[r][v] = Bytes::add_unsigned(parts[r][v], nibbles[v], four);
        });
      });
      from += apart;
      ahead += apart;
    });
    each_index<Rows>([&](auto r) LOWBIT_INLINE {
      each_index<kVectors>([&](auto v) LOWBIT_INLINE {
        sums[r][v] = Bytes::template end<false>(sums[r][v], parts[r][v]);
      });
    });
  }
  each_index<Rows>([&](auto r) LOWBIT_INLINE {
    const auto unit = Isa::set(weights[r].unit), offset = Isa::set(weights[r].offset);
    const auto shrink = Isa::set(weights[r].shrink);
    each_index<kVectors>([&](auto v) LOWBIT_INLINE {
      const uint32_t d = int4_place(at + v / 2 * kLoad) + v % 2 * 16;
      float* to = sums_of_rows[r] + d;
      auto add = [&](auto vector) LOWBIT_INLINE {
        const auto own = Isa::multiply_add(Bytes::floats(sums[r][v]), unit, offset);
        vector.store(to, Isa::multiply_add(vector.load(to), shrink, own));
      };
      if (d + Isa::kLanes <= dim) add(WholeVector<Isa>{});
      else if (d < dim) add(PartialVector<Isa>{dim - d});
    });
  });
}

// A thread's scratch for an int4 page, beside that of FewRowsPart.
template <class Bytes>
struct Int4Work {
  // Scales and minima of a head in f32: keys [kInt4Halves][2][columns], values [2][positions].
  float* key_scales;
  float* value_scales;
  // queries [2][kInt4Halves][kRows][columns] and weights [2][kRows]: high bytes, then low ones. scores
  // [kRows][positions].
  int8_t* queries;
  Int4Weights* weights;
  float* scores;

  Int4Work(float* at, uint32_t columns)
      : key_scales(at),
        value_scales(key_scales + 2 * kInt4Halves * columns),
        queries(reinterpret_cast<int8_t*>(value_scales + 2 * kInt4Positions)),
        weights(reinterpret_cast<Int4Weights*>(queries + 2 * kInt4Halves * Bytes::kRows * columns)),
        scores(at + floats(columns) - Bytes::kRows * kInt4Positions) {}

  static size_t floats(uint32_t columns) {
    return 2 * kInt4Halves * columns + 2 * kInt4Positions +
           2 * Bytes::kRows * (kInt4Halves * columns + sizeof(Int4Weights)) / 4 + Bytes::kRows * kInt4Positions;
  }
};

// Factor that maps magnitudes up to `most` to bytes up to `byte_most`; 0 for magnitudes below 1e-30.
template <class Isa>
typename Isa::V int4_inverse(float most, float byte_most) {
  return Isa::set(most < 1e-30f ? 0.0f : byte_most / most);
}

// Splits x into the whole number that is nearest to x - down, and the rest x - whole.
template <class Isa>
struct WholeAndRest {
  typename Isa::V whole, rest;

  explicit WholeAndRest(typename Isa::V x, typename Isa::V down) {
    // Adding and taking away 1.5 * 2^23 rounds to whole numbers.
    const auto rounder = Isa::set(12582912.0f);
    whole = (x - down + rounder) - rounder;
    rest = x - whole;
  }
};
// How many units of a low byte are one of a high byte: in queries, and in weights.
constexpr float kQueryLow = 254, kWeightLow = 255;

// Quantizes q * key scale = unit * (high + low / kQueryLow): high bytes at `target`, low ones `apart` bytes after them.
// base = q . key minima.
template <class Isa>
void bytes_of_int4_query(const QueryVector<Isa>& v, const float* scales, uint32_t dim, uint32_t columns, int8_t* target,
                         size_t apart, float& unit, float& base) {
  using V = typename Isa::V;
  V most = Isa::set(0), sum = Isa::set(0);
  for (uint32_t d = 0; d < dim; d += Isa::kLanes) {
    const V q = Isa::load(v.q + d), product = q * Isa::load(scales + d);
    most = Isa::max(Isa::max(product, Isa::set(0) - product), most);
    sum = Isa::multiply_add(q, Isa::load(scales + columns + d), sum);
  }
  const float largest = Isa::largest(most);
  base = Isa::sum(sum);
  unit = largest / 127;
  const V inverse = int4_inverse<Isa>(largest, 127);
  for (uint32_t d = 0; d < dim; d += Isa::kLanes) {
    const WholeAndRest<Isa> parts(Isa::load(v.q + d) * Isa::load(scales + d) * inverse, Isa::set(0));
    Isa::store_integers(target + d, parts.whole);
    Isa::store_integers(target + apart + d, parts.rest * Isa::set(kQueryLow));
  }
}

// Online softmax of a page at `start`: turns scores into weights, and weight * value scale into high and low bytes.
template <class Bytes>
void soften_int4(QueryVector<typename Bytes::Isa>& v, uint32_t start, float softcap, float* scores, const float* scales,
                 Int4Weights& weights, Int4Weights& low) {
  using Isa = typename Bytes::Isa;
  using V = typename Isa::V;
  constexpr uint32_t kLanes = Isa::kLanes, kCount = 4;
  using Four = SideBySide<Isa, kCount>;
  float seen[2 * kInt4Positions];
  const uint32_t hidden = v.first[0] > start ? v.first[0] - start : 0;
  if (hidden > 0) {
    // Hidden positions get scales of 0: a weight of 0 would make NaN of a scale that is not finite.
    memcpy(seen, scales, sizeof seen);
    std::fill_n(seen, hidden, 0.0f);
    std::fill_n(seen + kInt4Positions, hidden, 0.0f);
    scales = seen;
  }
  if (hidden > 0 || softcap > 0) rule_scores<Isa, 1>(v, start, softcap, {0, kInt4Positions}, scores);
  const V before = Isa::load(v.largest);
  V chains[kCount] = {before, before, before, before};
  for (uint32_t i = 0; i < kInt4Positions; i += kCount * kLanes)
    each_index<kCount>([&](auto c) LOWBIT_INLINE {
      chains[c] = Isa::max(Isa::load(scores + i + c * kLanes), chains[c]);
    });
  const float top = Isa::largest(Isa::max(Isa::max(chains[0], chains[1]), Isa::max(chains[2], chains[3])));
  const V largest = Isa::set(top);
  V total = Isa::set(0), offset = Isa::set(0), most = Isa::set(0);
  for (uint32_t i = 0; i < kInt4Positions; i += kCount * kLanes) {
    const auto all = exp_of_negative<Four>(
        Four::each([&](auto c) LOWBIT_INLINE { return Isa::load(scores + i + c * kLanes) - largest; }));
    each_index<kCount>([&](auto c) LOWBIT_INLINE {
      const uint32_t at = i + c * kLanes;
      const V weight = all.parts[c], scaled = weight * Isa::load(scales + at);
      total = total + weight;
      offset = Isa::multiply_add(weight, Isa::load(scales + kInt4Positions + at), offset);
      most = Isa::max(scaled, most);
      Isa::store(scores + at, scaled);
    });
  }
  const float heaviest = Isa::largest(most);
  weights.unit = heaviest / 255;
  weights.offset = Isa::sum(offset);
  const V inverse = int4_inverse<Isa>(heaviest, 255);
  for (uint32_t i = 0; i < kInt4Positions; i += kLanes) {
    const WholeAndRest<Isa> parts(Isa::load(scores + i) * inverse, Isa::set(0.5f));
    Bytes::store_unsigned(weights.bytes + i, parts.whole);
    Bytes::store_unsigned(low.bytes + i, parts.rest * Isa::set(kWeightLow));
  }
  low.unit = weights.unit / kWeightLow;
  low.offset = 0;
  low.shrink = 1;
  const V sum = Isa::set(Isa::sum(total));
  weights.shrink = 1;
  if (top > v.largest[0]) {
    const V shrink = exp_of_negative<Isa>(before - largest);
    weights.shrink = Isa::first_lane(shrink);
    Isa::store(v.largest, largest);
    Isa::store(v.totals, Isa::multiply_add(Isa::load(v.totals), shrink, sum));
  } else {
    Isa::store(v.totals, Isa::load(v.totals) + sum);
  }
}

template <class Bytes>
class Int4Part : FewRowsPart<typename Bytes::Isa, uint16_t> {
  using Isa = typename Bytes::Isa;
  using Rows = FewRowsPart<Isa, uint16_t>;
  using Vector = QueryVector<Isa>;

 public:
  Int4Part(const AttentionPart<Isa, uint16_t>& part, float* scratch)
      : Int4Part(part, scratch, {part.head_dim(), part.heads(), LaneShape<Isa>(1, part.queries())}) {}

  void attend() {
    if (this->is_empty()) return;
    this->begin_results();
    bool begins = true;
    for (uint32_t start = this->begin_ / kBlockKeys * kBlockKeys; start < this->end_; start += kBlockKeys) {
      const uint32_t next = start + kBlockKeys, chunk = chunk_index(start);
      if (begins) this->begin_chunk(chunk);
      const auto [near, far] = this->int4_ranges(start);
      if (near.first < near.last) attend_near(start, near);
      if (far.first < far.last) attend_page(start, far.first, far.last);
      begins = next >= this->end_ || is_chunk_begin(next);
      if (begins) this->end_chunk(chunk);
    }
    this->end_results();
  }

 private:
  Int4Part(const AttentionPart<Isa, uint16_t>& part, float* scratch, const FewRowsScratch<Isa>& at)
      : Rows(part, scratch, at),
        columns_(int4_columns(this->args_.head_dim)),
        work_(scratch + at.floats, columns_) {
    memset(work_.queries, 0, 2 * kInt4Halves * Bytes::kRows * columns_);
  }

  // Attends with the queries of `range`, of each head, to a page in f16.
  void attend_near(uint32_t start, QueryRange range) {
    CacheBlock<uint16_t> block;
    this->find_block(start, &block);
    block.next = nullptr;
    for (uint32_t head = 0; head < this->heads(); head++) {
      const uint32_t at = head * this->vectors_per_head_ + range.first;
      attend_block<Isa>(this->vectors_ + at, range.last - range.first, block, {block.first, block.last},
                        this->args_.rule.softcap, this->scores_ + at * this->score_floats_, this->score_floats_,
                        this->args_.head_dim);
    }
  }

  // Attends with queries first .. last - 1 of each head to a full int4 page. Each sees some of it.
  void attend_page(uint32_t start, uint32_t first, uint32_t last) {
    const uint32_t page = start / kInt4Positions;
    // Prefetches the same head of the next page: pages are read in turn, head by head. Past the last page it fetches
    // the same page again, which costs no wait.
    const uint32_t next = start + kBlockKeys < this->end_ ? page + 1 : page;
    for (uint32_t head = 0; head < this->heads(); head++) {
      const uint32_t kv = this->kv_first_ + head;
      const Int4Head at = int4_head(this->args_, this->run_.slot, page, kv);
      const Int4Head ahead = int4_head(this->args_, this->run_.slot, next, kv);
      fetch_row(ahead.key_scales, 2 * kInt4Halves * columns_);
      fetch_row(ahead.value_scales, 2 * kInt4Positions);
      floats_of_halves<Isa>(at.key_scales, 2 * kInt4Halves * columns_, work_.key_scales);
      floats_of_halves<Isa>(at.value_scales, 2 * kInt4Positions, work_.value_scales);
      Vector* vectors = this->vectors_ + head * this->vectors_per_head_;
      for (uint32_t i = first; i < last; i += Bytes::kRows)
        attend_some(start, vectors + i, std::min<uint32_t>(Bytes::kRows, last - i), at, ahead);
    }
  }

  void attend_some(uint32_t start, Vector* vectors, uint32_t count, const Int4Head& at, const Int4Head& ahead) {
    if constexpr (Bytes::kRows > 3)
      if (count == 4) return attend_rows<4>(start, vectors, at, ahead);
    if constexpr (Bytes::kRows > 2)
      if (count == 3) return attend_rows<3>(start, vectors, at, ahead);
    if constexpr (Bytes::kRows > 1)
      if (count == 2) return attend_rows<2>(start, vectors, at, ahead);
    attend_rows<1>(start, vectors, at, ahead);
  }

  template <int Count>
  void attend_rows(uint32_t start, Vector* vectors, const Int4Head& at, const Int4Head& ahead) {
    const uint32_t dim = this->args_.head_dim;
    const size_t half_apart = Bytes::kRows * columns_, apart = kInt4Halves * half_apart;
    float units[kInt4Halves][Count], low_units[kInt4Halves][Count], bases[kInt4Halves][Count];
    float* sums[Count];
    for (int r = 0; r < Count; r++) {
      for (uint32_t half = 0; half < kInt4Halves; half++) {
        bytes_of_int4_query(vectors[r], work_.key_scales + 2 * half * columns_, dim, columns_,
                            work_.queries + half * half_apart + r * columns_, apart, units[half][r], bases[half][r]);
        low_units[half][r] = units[half][r] / kQueryLow;
      }
      sums[r] = vectors[r].sums[0];
    }
    multiply_int4_keys<Bytes, Count>(at.keys, ahead.keys, work_.queries, columns_, units, bases, work_.scores);
    multiply_int4_keys<Bytes, Count>(at.keys, at.keys, work_.queries + apart, columns_, low_units, nullptr,
                                     work_.scores);
    Int4Weights* low = work_.weights + Bytes::kRows;
    for (int r = 0; r < Count; r++)
      soften_int4<Bytes>(vectors[r], start, this->args_.rule.softcap, work_.scores + r * kInt4Positions,
                         work_.value_scales, work_.weights[r], low[r]);
    constexpr uint32_t kLoad = 4 * Isa::kLanes;
    for (const Int4Weights* weights : {work_.weights, low}) {
      uint32_t byte = 0;
      for (; byte + 2 * kLoad <= 2 * columns_; byte += 2 * kLoad)
        add_int4_values<Bytes, Count, 2>(at.values, ahead.values, columns_, byte, dim, weights, sums);
      if (byte < 2 * columns_)
        add_int4_values<Bytes, Count, 1>(at.values, ahead.values, columns_, byte, dim, weights, sums);
    }
  }

  const uint32_t columns_;
  Int4Work<Bytes> work_;
};

// Floats of a thread's scratch: for few queries of all heads, or many queries of one head. Phase 0 quantizes pages in
// it.
template <class Isa>
size_t int4_floats(const AttentionArgs& args, uint32_t few, uint32_t many) {
  const uint32_t columns = int4_columns(args.head_dim);
  const FewRowsScratch<Isa> of_few(args.head_dim, args.kv_heads, {1, few}), of_many(args.head_dim, 1, {1, many});
  const size_t attending = std::max(of_few.floats, of_many.floats) + Int4Work<typename Isa::Bytes>::floats(columns);
  return round_up(std::max<size_t>(attending, columns * kInt4Positions / 4), 16);
}

// Phase 0 plans the work, stores keys and values and quantizes full pages, phase 1 attends, phase 2 merges chunks.
template <class Bytes>
void int4_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread) {
  using Isa = typename Bytes::Isa;
  const AttentionArgs& args = step.as<AttentionArgs>();
  float* scratch = thread_scratch(args, thread);
  if (phase == 0) {
    if (tile == 0) plan_attention(args);
    each_int4_range(args, tile, step.tiles[0], [&](uint32_t first, uint32_t last) {
      store_tile<Isa, uint16_t>(args, first, last);
      if (args.k) fill_int4_pages<Isa>(args, first, last, reinterpret_cast<int8_t*>(scratch));
    });
  } else if (phase == 1) {
    each_part(args, tile, step.tiles[1], [&](const AttentionJob& job, uint32_t part) {
      Int4Part<Bytes>(AttentionPart<Isa, uint16_t>(args, job, part), scratch).attend();
    });
  } else {
    merge_tile<Isa>(args, tile, step.tiles[2]);
  }
}

}  // namespace lowbit
