// Attention of a pair of query tiles with a block of keys on AMX: scores, their softmax, and products with values. The
// vectors' work is in small pieces, which callers spread among tile instructions. Flags: see scripts/native/build.js.
#pragma once

#include "attention_tiles_amx.h"

namespace lowbit {
namespace {

// Score of a hidden key.
constexpr float kNone = -INFINITY;
constexpr float kLog2e = 1.44269504f;

// 2^x for x <= 0, relative error 2e-7: 2^n * (1 + f q(f)), |f| <= 1/2. No less than the smallest normal number.
inline __m512 exp2_of(__m512 x) {
  x = _mm512_max_ps(_mm512_set1_ps(-126.0f), x);
  const __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 f = _mm512_sub_ps(x, n);
  __m512 q = _mm512_set1_ps(1.33813499e-3f);
  q = _mm512_fmadd_ps(q, f, _mm512_set1_ps(9.66641679e-3f));
  q = _mm512_fmadd_ps(q, f, _mm512_set1_ps(5.5503808e-2f));
  q = _mm512_fmadd_ps(q, f, _mm512_set1_ps(2.40223482e-1f));
  q = _mm512_fmadd_ps(q, f, _mm512_set1_ps(6.93147182e-1f));
  return _mm512_scalef_ps(_mm512_fmadd_ps(q, f, _mm512_set1_ps(1.0f)), n);
}

// A score is kSteps * log2 of its weight. With one part kSteps is 128, since the mantissa of a bf16 has 7 bits.
template <int Parts>
constexpr float kSteps = Parts == 1 ? 128 : 1;

// Applies the softcap, if any, to the scores of 16 queries with `count` keys from position `start` on, and hides keys
// outside first .. last - 1. `cap_of_scores` is the cap in units of scores.
void hide_scores(float* scores, float cap_of_scores, uint32_t start, uint32_t count, __m512i first, __m512i last) {
  const __m512 cap = _mm512_set1_ps(cap_of_scores), none = _mm512_set1_ps(kNone);
  for (uint32_t key = 0; key < count; key++) {
    __m512 score = _mm512_load_ps(scores + 16 * key);
    if (cap_of_scores > 0) score = _mm512_mul_ps(cap, tanh_of<FloatsAvx512>(score));
    const __m512i index = _mm512_set1_epi32(static_cast<int>(start + key));
    const __mmask16 seen = _mm512_cmplt_epi32_mask(index, last) & _mm512_cmpge_epi32_mask(index, first);
    _mm512_store_ps(scores + 16 * key, _mm512_mask_mov_ps(none, seen, score));
  }
}

// A pair of query tiles with a block. `halves`: how many times 32 keys of the block at least one query sees.
struct Pair {
  uint32_t index, block, halves;
};

// Four accumulators += two tiles of a times two tiles of b. `behind` does other work after each tile instruction.
template <int Parts, class Behind>
inline LOWBIT_INLINE void multiply_parts(const uint8_t* a0, const uint8_t* a1, const uint8_t* b0,
                                                         const uint8_t* b1, Behind&& behind) {
  if constexpr (Parts == 1) multiply_rounded_tiles(a0, a1, b0, b1, behind);
  else multiply_tiles(a0, a1, b0, b1, behind);
}

// Computes the scores of the pair, [2 tiles][64 keys][16 queries]. Calls before(half) ahead of the stores of 32 keys.
template <int Parts, class Behind, class Before>
inline LOWBIT_INLINE void score_pair(const Workspace& w, const Sizes& sizes, Pair pair, Behind&& behind,
                                                     Before&& before) {
  const size_t row_of_tiles = sizes.steps * kPartBytes<Parts>;
  const uint8_t* queries = w.queries + 2 * pair.index * sizes.queries;
  float* scores = w.scores;
  for (uint32_t half = 0; half < pair.halves; half++, scores += 2 * kTileFloats) {
    const uint8_t* keys = w.keys + pair.block * sizes.keys + 2 * half * row_of_tiles;
    clear_accumulators();
    for (uint32_t step = 0; step < sizes.steps; step++) {
      const size_t at = step * kPartBytes<Parts>;
      multiply_parts<Parts>(keys + at, keys + row_of_tiles + at, queries + at, queries + sizes.queries + at, behind);
    }
    before(half);
    store_accumulators(scores, scores + 4 * kTileFloats, scores + kTileFloats, scores + 5 * kTileFloats, behind);
  }
}

// Computes the products weights . values of the pair, in the order of its sums. Calls before(step) ahead of the stores
// of 32 columns. Tiles do not add to sums, since loads of accumulators take longest.
template <int Parts, class Behind, class Before>
inline LOWBIT_INLINE void multiply_pair(const Workspace& w, const Sizes& sizes, Pair pair,
                                                        const uint8_t* weights, Behind&& behind, Before&& before) {
  if (pair.halves == 0) return;
  constexpr size_t kHalf = kPartBytes<Parts>, kBlock = 2 * kHalf;
  float* products = w.products;
  for (uint32_t step = 0; step < sizes.steps; step++, products += 4 * kTileFloats) {
    const uint8_t* values = w.values + pair.block * sizes.values + 2 * step * kBlock;
    clear_accumulators();
    for (uint32_t half = 0; half < pair.halves; half++) {
      const size_t at = half * kHalf;
      multiply_parts<Parts>(values + at, values + kBlock + at, weights + at, weights + kBlock + at, behind);
    }
    before(step);
    store_accumulators(products, products + 2 * kTileFloats, products + kTileFloats, products + 3 * kTileFloats,
                       behind);
  }
}

// Adds the products of a pair to its sums, a few at a time.
class Additions {
 public:
  Additions(const Workspace& w, const Sizes& sizes, Pair pair)
      : from_(w.products),
        to_(w.sums + 2 * pair.index * sizes.sums / 4),
        end_(from_ + (pair.halves > 0 ? 2 * sizes.sums / 4 : 0)) {}

  bool any() const { return from_ < end_; }

  inline LOWBIT_INLINE void some() {
    for (int i = 0; i < kAtOnce; i++, from_ += 16, to_ += 16)
      _mm512_store_ps(to_, _mm512_add_ps(_mm512_load_ps(to_), _mm512_load_ps(from_)));
  }
  // Adds all products before `end`.
  inline LOWBIT_INLINE void until(const float* end) {
    while (from_ < std::min(end, end_)) some();
  }

 private:
  static constexpr int kAtOnce = 4;

  const float* from_;
  float* to_;
  const float* end_;
};

// round(f - 128 * (2^(f / 128) - 1)) for f = 0, 2, ... 126.
alignas(64) constexpr uint8_t kLessThanSteps[64] = {0,  1,  1,  2,  2,  3,  4,  4,  5,  5,  5,  6,  6,  7,  7,  8,
                                                    8,  8,  9,  9,  9,  9,  10, 10, 10, 10, 10, 11, 11, 11, 11, 11,
                                                    11, 11, 11, 11, 11, 11, 11, 11, 11, 10, 10, 10, 10, 10, 9,  9,
                                                    9,  8,  8,  8,  7,  7,  6,  6,  5,  5,  4,  3,  3,  2,  1,  1};

// Constants of bf16_exp2_pairs. Compilers would otherwise make them anew each time.
struct ExponentConstants {
  __m512i order = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15));
  __m512i less = _mm512_load_si512(kLessThanSteps), ones = _mm512_set1_epi32(0x3f803f80);
  __mmask64 low_bytes = 0x5555555555555555;

  inline LOWBIT_INLINE ExponentConstants() {
    __asm__("" : "+v"(order), "+v"(less), "+v"(ones), "+k"(low_bytes));
  }
};

// 2^(a / 128 - 127) as bf16 in the low halves of lanes, 2^(b / 128 - 127) in the high ones, off by up to 0.8 %. As an
// integer, a bf16 is 128 * (its base-2 logarithm + 127), less kLessThanSteps of the lowest 7 bits.
inline LOWBIT_INLINE __m512i bf16_exp2_pairs(__m512 a, __m512 b, const ExponentConstants& constants) {
  const __m512i words = _mm512_packus_epi32(_mm512_cvtps_epi32(a), _mm512_cvtps_epi32(b));
  const __m512i steps = _mm512_shuffle_epi8(words, constants.order);
  const __m512i less = _mm512_maskz_permutexvar_epi8(constants.low_bytes, _mm512_srli_epi16(steps, 1), constants.less);
  return _mm512_subs_epu16(steps, less);
}
constexpr float kBf16Bias = 127 * 128;

// Online softmax of a pair of query tiles: turns scores into weights, in pairs of keys, a few at a time.
template <int Parts>
class Softmax {
 public:
  inline LOWBIT_INLINE Softmax(const Workspace& w, const Sizes& sizes, Pair pair, uint8_t* weights,
                                               const ExponentConstants& constants)
      : w_(w),
        sizes_(sizes),
        pair_(pair),
        constants_(constants),
        scores_(w.scores),
        weights_(weights),
        unknown_(w.scores),
        left_(16 * pair.halves) {
    for (auto& top : tops_) top = _mm512_set1_ps(kNoneYet);
  }

  // Whether there are keys whose scores are not compared yet.
  bool any_unknown() const { return unknown_ < w_.scores + 512 * pair_.halves; }
  bool any_left() const { return left_ > 0; }

  // Compares the scores of two keys with the largest.
  inline LOWBIT_INLINE void compare() {
    for (int i = 0; i < 4; i++)
      tops_[i] = _mm512_max_ps(_mm512_load_ps(unknown_ + 16 * (i % 2) + i / 2 * 4 * kTileFloats), tops_[i]);
    unknown_ += 32;
  }

  // Updates the largest scores, and shrinks sums and totals where these have grown.
  inline LOWBIT_INLINE void begin_weights() {
    while (any_unknown()) compare();
    if (!any_left()) return;
    float* state = w_.largest + 32 * pair_.index;
    for (int i = 0; i < 2; i++) {
      const __m512 before = _mm512_load_ps(state + 16 * i), found = _mm512_max_ps(tops_[2 * i], tops_[2 * i + 1]);
      totals_[i] = _mm512_load_ps(w_.totals + 32 * pair_.index + 16 * i);
      // Shrinks the sums only of queries whose weights could become too large.
      const __m512 most = _mm512_add_ps(before, _mm512_set1_ps(kOctaves * kSteps<Parts>));
      const __mmask16 grows = _mm512_cmp_ps_mask(found, most, _CMP_GT_OQ);
      largest_[i] = _mm512_mask_mov_ps(before, grows, found);
      if (!grows) continue;
      const __m512 factor =
          exp2_of(_mm512_mul_ps(_mm512_sub_ps(before, largest_[i]), _mm512_set1_ps(1 / kSteps<Parts>)));
      shrink_sums(w_.sums + 2 * pair_.index * sizes_.sums / 4 + 2 * i * kTileFloats, sizes_.steps, factor);
      totals_[i] = _mm512_mul_ps(totals_[i], factor);
      _mm512_store_ps(state + 16 * i, largest_[i]);
    }
    if constexpr (Parts == 1)
      for (auto& largest : largest_) largest = _mm512_sub_ps(largest, _mm512_set1_ps(kBf16Bias));
  }

  // Computes the weights of two keys.
  inline LOWBIT_INLINE void weigh() {
    for (int i = 0; i < 2; i++) {
      const float* scores = scores_ + 4 * i * kTileFloats;
      const __m512 a = _mm512_load_ps(scores), b = _mm512_load_ps(scores + 16);
      weights_of(a, b, i).store(weights_ + 2 * i * kPartBytes<Parts>);
    }
    scores_ += 32;
    weights_ += 64;
    left_--;
    // The second 32 keys begin after all parts of the first.
    if (left_ % 16 == 0) weights_ += kPartBytes<Parts> - kTileBytes;
  }
  // Computes the weights of all keys of the first `halves` times 32.
  inline LOWBIT_INLINE void until(uint32_t halves) {
    while (left_ + 16 * std::min(halves, pair_.halves) > 16 * pair_.halves) weigh();
  }

  inline LOWBIT_INLINE void end() {
    if (pair_.halves == 0) return;
    while (any_left()) weigh();
    for (int i = 0; i < 2; i++) _mm512_store_ps(w_.totals + 32 * pair_.index + 16 * i, totals_[i]);
  }

 private:
  // Octaves by which weights may exceed 1.
  static constexpr float kOctaves = 8;

  LOWBIT_APART static void shrink_sums(float* sums, uint32_t steps, __m512 factor) {
    for (uint32_t step = 0; step < steps; step++, sums += 4 * kTileFloats)
      for (uint32_t d = 0; d < 32; d++)
        _mm512_store_ps(sums + 16 * d, _mm512_mul_ps(_mm512_load_ps(sums + 16 * d), factor));
  }

  inline LOWBIT_INLINE PartVector<Parts> weights_of(__m512 a, __m512 b, int i) {
    a = _mm512_sub_ps(a, largest_[i]);
    b = _mm512_sub_ps(b, largest_[i]);
    if constexpr (Parts == 1) {
      const __m512i weights = bf16_exp2_pairs(a, b, constants_);
      totals_[i] = _mm512_dpbf16_ps(totals_[i], reinterpret_cast<__m512bh>(weights),
                                    reinterpret_cast<__m512bh>(constants_.ones));
      return {{weights}};
    } else {
      a = exp2_of(a);
      b = exp2_of(b);
      totals_[i] = _mm512_add_ps(totals_[i], _mm512_add_ps(a, b));
      return pair_parts<Parts>(a, b);
    }
  }

  const Workspace& w_;
  const Sizes& sizes_;
  const Pair pair_;
  const ExponentConstants constants_;
  const float* scores_;
  uint8_t* weights_;
  // The first scores that are not compared yet, and how many pairs of keys are not weighed yet.
  const float* unknown_;
  uint32_t left_;
  // Largest scores, less the exponent bias of weights that are bf16.
  __m512 tops_[4], largest_[2], totals_[2];
};

}  // namespace
}  // namespace lowbit
