// Decodes panels of AQLM weights to bf16 tiles, a few rows at a time, while finished tiles multiply.
#pragma once

#include "floats8.h"
#include "tiles.h"

namespace lowbit {
namespace aqlm {
namespace {

// Values of k per product of tiles, and outputs of a panel. A step of a panel is two tiles of 16 outputs.
constexpr uint32_t kStep = 32, kPanel = 32;

// The values of a, then those of b.
inline LOWBIT_INLINE __m512i bf16_row(__m512 a, __m512 b) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(b, a));
}

// Four times eight values, in order.
inline LOWBIT_INLINE __m512i rounded(const __m256* sums) {
  const __m512 a = _mm512_insertf32x8(_mm512_castps256_ps512(sums[0]), sums[1], 1);
  const __m512 b = _mm512_insertf32x8(_mm512_castps256_ps512(sums[2]), sums[3], 1);
  return bf16_row(a, b);
}

// Decodes a step of an output for weights of any form; values past k are 0.
template <class Code, class Vector>
__m512i any_groups(const Codes& w, const Vector* vectors, uint32_t step, uint32_t output) {
  const uint32_t vector_length = w.out_group * w.in_group;
  const size_t book_length = static_cast<size_t>(w.entries()) * vector_length;
  const uint32_t place = output / w.out_group, tile = place / kTile;
  __m256 sums[4];
  for (uint32_t i = 0; i < 4; i++) {
    sums[i] = _mm256_setzero_ps();
    const uint32_t c = kStep * step + 8 * i;
    if (c >= w.k || tile >= w.tiles) continue;
    const uint32_t group = c / w.in_group, block = group / kBlock;
    const Code* codes = reinterpret_cast<const Code*>(w.tile(block, tile)) + group % kBlock * w.codebooks * kTile +
                        lane_of(place % kTile);
    const size_t at = output % w.out_group * w.in_group + c % w.in_group;
    for (uint32_t book = 0; book < w.codebooks; book++) {
      const uint32_t code = codes[book * kTile] & w.mask;
      sums[i] = _mm256_add_ps(sums[i], Avx2::load(vectors + book * book_length + code * vector_length + at));
    }
  }
  return rounded(sums);
}

// Codes of one half of a tile in a row of codes. One-byte codes are multiplied by the bytes of 8 floats.
inline LOWBIT_INLINE __m512i half_row(const uint8_t* codes, bool second) {
  return half_codes<5>(_mm512_loadu_si512(codes), second);
}
inline LOWBIT_INLINE __m512i half_row(const uint16_t* codes, bool second) {
  const __m128i shift = _mm_cvtsi32_si128(second ? 16 : 0);
  const __m256i low = _mm512_cvtepi32_epi16(_mm512_srl_epi32(_mm512_loadu_si512(codes), shift));
  const __m256i high = _mm512_cvtepi32_epi16(_mm512_srl_epi32(_mm512_loadu_si512(codes + 32), shift));
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

// Transposes eight rows of 32 words: words 8 i + j of the eight rows become part i of column j.
inline LOWBIT_INLINE void turn_words(__m512i* r) {
  __m512i a[8], b[8];
  for (int i = 0; i < 4; i++) {
    a[i] = _mm512_unpacklo_epi16(r[2 * i], r[2 * i + 1]);
    a[4 + i] = _mm512_unpackhi_epi16(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 8; i += 2) {
    const int at = i / 4 * 4 + i / 2 % 2;
    b[at] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
    b[at + 2] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
  }
  for (int i = 0; i < 8; i += 2) {
    r[i] = _mm512_unpacklo_epi64(b[i], b[i + 1]);
    r[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 1]);
  }
}

// Decodes a chunk of a panel. `Books`: 1 or 2 codebooks, when groups have 8 inputs and one output and codes take all
// values of their type; or 0 for any form.
template <class Code, class Vector, uint32_t Books>
class PanelDecoder {
 public:
  // Rows decoded between two tile instructions.
  static constexpr uint32_t kRows = 8;

  // Rows of tiles to decode, with few loads for each: tile instructions are mostly loads.
  struct Rows {
    const Codes* w;
    const Vector* vectors;
    // Places of the first row's vectors in their codebooks: [4 groups][codebooks].
    const uint16_t* places;
    uint8_t* target;
    uint32_t step, output;

    inline LOWBIT_INLINE void decode(uint32_t row) const {
      __m512i values;
      if constexpr (Books == 0) values = any_groups<Code>(*w, vectors, step, output + row);
      else values = short_groups(places + row * 32);
      _mm512_store_si512(target + 64 * row, values);
    }

    inline LOWBIT_INLINE __m512i short_groups(const uint16_t* at) const {
      uint64_t packed[Books];
      memcpy(packed, at, sizeof packed);
      const char* books = reinterpret_cast<const char*>(vectors);
      __m256 sums[4];
      for (uint32_t i = 0; i < 4 * Books; i++) {
        const size_t offset = (packed[i / 4] >> 16 * (i % 4) & 0xffff) * kPlaceBytes + i % Books * kBookBytes;
        const __m256 vector = Avx2::load(reinterpret_cast<const Vector*>(books + offset));
        sums[i / Books] = i % Books == 0 ? vector : _mm256_add_ps(sums[i / Books], vector);
      }
      return rounded(sums);
    }
  };

  // Decodes `steps` steps from the first one on; 0 decodes nothing.
  PanelDecoder(const Codes& w, const void* vectors, uint32_t panel, uint32_t step, uint32_t steps, uint8_t* target)
      : w_(w),
        vectors_(static_cast<const Vector*>(vectors)),
        target_(target),
        panel_(panel),
        next_(step),
        end_(step + steps) {}

  // Whether kRows rows are there to decode now.
  inline LOWBIT_INLINE bool next(Rows& rows) {
    if (row_ == kPanel) {
      if (next_ >= end_) return false;
      begin_step(next_++);
      if (row_ == kPanel) return false;
    }
    rows = {&w_, vectors_, places_ + row_, target_, next_ - 1, panel_ * kPanel + row_};
    row_ += kRows;
    target_ += 64 * kRows;
    return true;
  }
  inline LOWBIT_INLINE void rest() {
    while (row_ < kPanel || next_ < end_)
      if (Rows rows; next(rows))
        for (uint32_t i = 0; i < kRows; i++) rows.decode(i);
  }

 private:
  // Steps of a block.
  static constexpr uint32_t kBlockSteps = kBlock / 4;
  static constexpr uint32_t kStepCodes = 4 * Books * kTile;
  static constexpr size_t kVectorBytes = 8 * sizeof(Vector), kPlaceBytes = sizeof(Code) == 1 ? 1 : kVectorBytes;
  static constexpr size_t kBookBytes = kVectorBytes << 8 * sizeof(Code);
  static_assert(kPanel == 4 * kRows && 4 * Books <= 8 && (sizeof(Code) > 1 || kVectorBytes == 32));

  inline LOWBIT_INLINE void begin_step(uint32_t step) {
    if constexpr (Books > 0) {
      if (step >= w_.groups / 4) return decode_step(step);
      find_places(step);
    }
    row_ = 0;
  }

  // Decodes the last step, which has fewer than four groups.
  void decode_step(uint32_t step) {
    for (uint32_t i = 0; i < kPanel; i++, target_ += 64)
      _mm512_store_si512(target_, any_groups<Code>(w_, vectors_, step, panel_ * kPanel + i));
  }

  inline LOWBIT_INLINE void find_places(uint32_t step) {
    const uint32_t place = panel_ * kPanel;
    const Code* codes =
        reinterpret_cast<const Code*>(w_.tile(step / kBlockSteps, place / kTile)) + step % kBlockSteps * kStepCodes;
    __m512i rows[8] = {};
    for (uint32_t i = 0; i < 4 * Books; i++, codes += kTile) {
      rows[i] = half_row(codes, place % kTile != 0);
      // Prefetches the same codes of the next tile.
      for (uint32_t b = 0; b < kTile; b += 64 / sizeof(Code))
        _mm_prefetch(reinterpret_cast<const char*>(codes + kBlockSteps * kStepCodes + b), _MM_HINT_T0);
    }
    turn_words(rows);
    for (uint32_t i = 0; i < 8; i++) _mm512_store_si512(places_ + 32 * i, rows[i]);
  }

  const Codes& w_;
  const Vector* vectors_;
  uint8_t* target_;
  uint32_t panel_;
  // The step after this one, and the end; rows of this step that are done.
  uint32_t next_, end_, row_ = kPanel;
  // Places of this step's vectors, [kRows][kPanel / kRows][4 groups and codebooks, up to 8]: those of row 8 i + j are
  // [j][i].
  alignas(64) uint16_t places_[kRows * 32];
};

}  // namespace
}  // namespace aqlm
}  // namespace lowbit
