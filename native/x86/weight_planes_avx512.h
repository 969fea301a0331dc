// Low-bit weights as 16-bit integers in two planes of bytes, for matrix units that multiply bytes.
//
// weight = step * (256 * high + low) with one power of two, `step`, for a row of a panel: with it the row's largest
// possible magnitude takes 15 bits and a sign. So groups need no scale in the products. A weight is off by at most
// 2^-13 of that magnitude; weights with few significant bits are exact.
#pragma once

#include "isa_avx512.h"

namespace lowbit {
namespace {

// The weights of field f as signed numbers in the highest `Bits` bits of words: weights 4 f and 4 f + 2 of each row in
// one vector, 4 f + 1 and 4 f + 3 in the other.
struct FieldWords {
  __m512i even, odd;
};

template <int Bits, bool Levels, int Index>
inline LOWBIT_INLINE FieldWords field_words(const __m512i* chunk, __m512i levels, __m512i shift) {
  constexpr Field field = Fields<Bits>::field(Index);
  constexpr int kTernaryAndXor = 0x6a;  // (a & b) ^ c
  const __m512i sign = _mm512_set1_epi16(static_cast<short>(0x8000));
  const __m512i top = _mm512_set1_epi16(static_cast<short>(0xffff << (16 - Bits)));
  if constexpr (Levels) {
    const __m512i level =
        _mm512_add_epi8(_mm512_shuffle_epi8(levels, unpack_field<Avx512Vnni, Bits, Index>(chunk)), shift);
    return {_mm512_slli_epi16(level, 8), _mm512_and_si512(level, _mm512_set1_epi16(static_cast<short>(0xff00)))};
  } else if constexpr (field.pieces == 1) {
    constexpr int kShift = field.piece[0].shift;
    const __m512i v = chunk[field.piece[0].vector];
    const __m512i even = _mm512_slli_epi16(v, 16 - Bits - kShift), odd = _mm512_slli_epi16(v, 8 - Bits - kShift);
    return {kShift == 0 ? _mm512_xor_si512(even, sign) : _mm512_ternarylogic_epi32(even, top, sign, kTernaryAndXor),
            _mm512_ternarylogic_epi32(odd, top, sign, kTernaryAndXor)};
  } else {
    const __m512i u = unpack_field<Avx512Vnni, Bits, Index>(chunk);
    return {_mm512_xor_si512(_mm512_slli_epi16(u, 16 - Bits), sign),
            _mm512_ternarylogic_epi32(_mm512_slli_epi16(u, 8 - Bits), top, sign, kTernaryAndXor)};
  }
}

// How far levels may be shifted left: those of a codebook within a signed byte, others within a word of field_words.
template <int Bits, bool Levels>
struct LevelRange {
  explicit LevelRange(const Panel16& w) {
    if (!Levels) return;
    const int count = 1 << (Bits < 4 ? Bits : 4);
    int shift = 7;
    for (int i = 0; i < count; i++)
      for (const int level : {int{w.levels[i]}, w.levels[i] - w.odd_zero})
        while (level * (1 << shift) > 127 || level * (1 << shift) < -128) shift--;
    int8_t bytes[16] = {};
    for (int i = 0; i < count; i++) bytes[i] = static_cast<int8_t>(w.levels[i] * (1 << shift));
    table = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
    top = static_cast<float>(128 >> shift);
    odd_shift = static_cast<uint8_t>(-w.odd_zero * (1 << shift)) * 0x01010101;
  }

  // Value of a word's highest bit, the shifted levels, and what is added to them where a scale is odd, in each byte.
  float top = 1 << (Bits - 1);
  int32_t odd_shift = 0;
  __m512i table = _mm512_setzero_si512();
};

// Exponents of the steps of a panel's rows: 2^15 * step is the power of two above the row's largest magnitude.
inline __m512 step_exponents(const Panel16& w, uint32_t panel, float top) {
  const __m512 range = _mm512_set1_ps(top);
  __m512 largest = _mm512_set1_ps(0x1p-100f);
  const uint8_t* group = w.panel(panel);
  for (uint32_t g = 0; g < w.groups; g++, group += w.group_bytes)
    for (int set = 0; set < w.parts; set++) {
      const GroupPlace<Avx512Vnni> place{group, g, 0, set};
      const __m512 scale = group_scales<Avx512Vnni>(w, place);
      __m512 magnitude = _mm512_mul_ps(_mm512_abs_ps(scale), range);
      if (w.has_offsets)
        magnitude = _mm512_add_ps(magnitude, _mm512_abs_ps(offsets_of<Avx512Vnni>(w, place, scale, w.bits)));
      largest = _mm512_max_ps(largest, magnitude);
    }
  return _mm512_sub_ps(_mm512_getexp_ps(largest), _mm512_set1_ps(14));
}

// kOnes.bytes + 32 - n points at n ones and then zeros, a mask of the columns of a run that are no padding.
struct Ones {
  uint8_t bytes[64];
};
constexpr Ones make_ones() {
  Ones ones{};
  for (int i = 0; i < 32; i++) ones.bytes[i] = 1;
  return ones;
}
constexpr Ones kOnes = make_ones();

// Splits the weights of one panel, 32 columns at a time.
template <int Bits, bool Levels>
class PanelSplitter {
 public:
  // Begins at column 32 * run; `exponents` are those of step_exponents.
  inline LOWBIT_INLINE PanelSplitter(const Panel16& w, const LevelRange<Bits, Levels>& levels,
                                                     uint32_t panel, const float* exponents, uint32_t run)
      : w_(&w),
        levels_(levels.table),
        odd_shift_(levels.odd_shift) {
    inverse_ = _mm512_scalef_ps(_mm512_set1_ps(1), _mm512_sub_ps(_mm512_setzero_ps(), _mm512_load_ps(exponents)));
    top_steps_ = _mm512_mul_ps(inverse_, _mm512_set1_ps(levels.top));
    const uint32_t runs = w.group_length / 32;
    index_ = run / runs;
    left_ = runs - run % runs;
    group_ = w.panel(panel) + static_cast<size_t>(index_) * w.group_bytes;
    vectors_ = group_ + w.vectors_offset + static_cast<size_t>(runs - left_) * kRunBytes;
    columns_ = static_cast<int32_t>(w.k - index_ * w.group_size);
    load_group();
  }

  // A run of 32 columns is split in parts 0 to kParts - 1, between which other instructions fit. A run must be left.
  static constexpr int kParts = 4;

  inline LOWBIT_INLINE void begin_run() {
    if (left_ == 0) {
      index_++;
      group_ += w_->group_bytes;
      vectors_ = group_ + w_->vectors_offset;
      left_ = w_->group_length / 32;
      columns_ -= static_cast<int32_t>(w_->group_size);
      load_group();
    }
    left_--;
    const int32_t start = static_cast<int32_t>(w_->group_length - 32 * (left_ + 1));
    const int32_t filled = std::min(columns_, static_cast<int32_t>(w_->group_size)) - start;
    ones_ = kOnes.bytes + 32 - std::max(0, std::min(32, filled));
  }

  // Splits a part: two of the run's eight vectors of each plane.
  template <int Part>
  inline LOWBIT_INLINE void part(uint8_t* high, uint8_t* low) {
    split<Part>(high, low);
    if (Part == kParts - 1) vectors_ += kRunBytes;
  }

  // Sums of each row over the columns split so far.
  inline LOWBIT_INLINE __m512 high_sum() const { return _mm512_cvtepi32_ps(high_sum_); }
  inline LOWBIT_INLINE __m512 low_sum() const { return _mm512_cvtepi32_ps(low_sum_); }

 private:
  static constexpr uint32_t kRunBytes = 64 * Bits, kPartBytes = kRunBytes / kParts;

  template <int Part>
  inline LOWBIT_INLINE void split(uint8_t* high, uint8_t* low) {
    constexpr int kVectors = Fields<Bits>::kVectors, kFields = Fields<Bits>::kFields, kEach = 8 / kParts;
    // Groups of 16 are halves of a run.
    constexpr int kSet = Part / (kParts / 2);
    constexpr int kUpperOfSecond = 0xd8, kUpperOfFirst = 0xe4;  // c ? b : a, c ? a : b
    const __m512i upper = _mm512_set1_epi16(static_cast<short>(0xff00));
    // Prefetches the same place of the next panel.
    for (uint32_t at = round_up(Part * kPartBytes, 64); at < (Part + 1) * kPartBytes; at += 64)
      _mm_prefetch(reinterpret_cast<const char*>(vectors_ + w_->panel_bytes + at), _MM_HINT_T1);
    // All loads before all stores: otherwise compilers load twice.
    __m512i even[kEach], odd[kEach];
    each_index<kEach>([&](auto i) LOWBIT_INLINE {
      constexpr int index = kEach * Part + i, first = index / kFields * kVectors;
      __m512i chunk[kVectors];
      for (int v = 0; v < kVectors; v++) chunk[v] = _mm512_loadu_si512(vectors_ + 64 * (first + v));
      const FieldWords words = field_words<Bits, Levels, index % kFields>(chunk, levels_, shift_[kSet]);
      even[i] = _mm512_mulhrs_epi16(words.even, multiplier_[kSet]);
      odd[i] = _mm512_mulhrs_epi16(words.odd, multiplier_[kSet]);
    });
    if (w_->has_offsets)
      for (int i = 0; i < kEach; i++) {
        even[i] = _mm512_subs_epi16(even[i], offset_[kSet]);
        odd[i] = _mm512_subs_epi16(odd[i], offset_[kSet]);
      }
    for (int i = 0; i < kEach; i++) {
      const int at = 64 * (kEach * Part + i);
      const __m512i highs = _mm512_ternarylogic_epi32(_mm512_srli_epi16(even[i], 8), odd[i], upper, kUpperOfSecond);
      const __m512i lows = _mm512_ternarylogic_epi32(_mm512_slli_epi16(odd[i], 8), even[i], upper, kUpperOfFirst);
      _mm512_store_si512(high + at, highs);
      _mm512_store_si512(low + at, lows);
      int32_t four;
      memcpy(&four, ones_ + at / 16, 4);
      high_sum_ = _mm512_dpbusd_epi32(high_sum_, _mm512_set1_epi32(four), highs);
      low_sum_ = _mm512_dpbusd_epi32(low_sum_, lows, _mm512_set1_epi32(four));
    }
  }

  static inline LOWBIT_INLINE __m512i words(__m512 v) {
    // Not -32768: products of two of them would overflow.
    const __m512i integers = _mm512_cvtps_epi32(_mm512_max_ps(v, _mm512_set1_ps(-32767)));
    const __m512i packed = _mm512_packs_epi32(integers, integers);
    return _mm512_unpacklo_epi16(packed, packed);
  }

  inline LOWBIT_INLINE void load_group() {
    load_part<0>();
    if constexpr (kMayPair<Bits, Levels>)
      if (__builtin_expect(w_->parts == 2, 0)) return load_part<1>();
    multiplier_[1] = multiplier_[0];
    offset_[1] = offset_[0];
    shift_[1] = shift_[0];
  }

  template <int Set>
  inline LOWBIT_INLINE void load_part() {
    const GroupPlace<Avx512Vnni> place{group_, index_, 0, Set};
    const __m512 scale = group_scales<Avx512Vnni, kMayE4m3<Bits, Levels>>(*w_, place);
    multiplier_[Set] = words(_mm512_mul_ps(scale, top_steps_));
    if constexpr (Levels)
      shift_[Set] = odd_shift_ == 0 ? _mm512_setzero_si512() : Avx512Vnni::odd_ints(place.at(0, 1), odd_shift_, 0);
    if (w_->has_offsets) offset_[Set] = words(_mm512_mul_ps(offsets_of<Avx512Vnni>(*w_, place, scale, Bits), inverse_));
  }

  const Panel16* w_;
  const uint8_t* group_;
  const uint8_t* vectors_;
  const uint8_t* ones_;
  // Current group; runs of 32 columns left in it; columns of k from its start on.
  uint32_t index_, left_;
  int32_t columns_;
  // Inverse of a step, and the factor of scales for words that are `top` times a weight.
  __m512 inverse_, top_steps_;
  // Per half of a run.
  __m512i multiplier_[2], offset_[2], shift_[2];
  __m512i levels_;
  int32_t odd_shift_;
  __m512i high_sum_ = _mm512_setzero_si512(), low_sum_ = _mm512_setzero_si512();
};

}  // namespace
}  // namespace lowbit
