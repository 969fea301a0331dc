// Decodes panels of AQLM weights to tiles of low and of high bytes, row by row, while finished tiles multiply.
#pragma once

#include <type_traits>

#include "digits.h"

namespace lowbit {
namespace aqlm {
namespace {

// Outputs of a panel. A panel holds the low bytes of all steps, two tiles each, then the high bytes.
constexpr uint32_t kPanel = 32;
constexpr size_t kStepBytes = 2 * kTileBytes, kPanelBytes = 2 * kChunkSteps * kStepBytes;
// Rows of tiles of a chunk. One is decoded at a time, between products of tiles: few instructions, since CPUs look
// ahead by only some 256 to 512.
constexpr uint32_t kTileRows = kPanel * kChunkSteps;

// Bytes of a chunk's offsets of vectors, [groups of a step][codebooks][steps][outputs of a panel].
constexpr size_t kOffsetBytes = kChunk / 8 * kPanel * 4;

// Inputs of a decoder.
struct DecoderInput {
  const Codes& codes;
  // Entries or vectors, and the inverse of the entries' step.
  const void* table;
  float inverse;
  // Memory for kOffsetBytes of offsets.
  uint8_t* offsets;
};

// 64 values of an output, eight per lane: those of the even groups of 8, and of the odd ones.
struct RowWords {
  __m512i even, odd;
};

// Reads `Books` whole codebooks, of 256 or 65536 vectors of 8 inputs and one output, as entries.
template <class Code, uint32_t Books>
class Entries {
 public:
  Entries(const DecoderInput& in, uint32_t panel, uint32_t chunk)
      : table_(static_cast<const uint8_t*>(in.table)),
        offsets_(reinterpret_cast<const Offset*>(in.offsets)) {
    const Codes& w = in.codes;
    for (uint32_t b = 0; b < kChunkSteps / kBlockSteps; b++) {
      const uint32_t block = std::min(chunk * (kChunkSteps / kBlockSteps) + b, w.blocks - 1);
      const uint8_t* codes = w.tile(block, panel / 2);
      uint8_t* to = in.offsets + b * kBlockSteps * kStepOffsets;
      if (panel % 2 == 0) store_offsets<0>(codes, w.block_groups(block) * Books, to);
      else store_offsets<1>(codes, w.block_groups(block) * Books, to);
    }
  }

  inline LOWBIT_INLINE RowWords row(uint32_t index) const {
    const Offset* at = offsets_ + index;
    return {four(at), four(at + Books * kTileRows)};
  }

 private:
  using Offset = std::conditional_t<sizeof(Code) == 1, uint16_t, uint32_t>;

  // Steps of a block, and bytes of offsets of a group and codebook in a step and in a chunk.
  static constexpr uint32_t kBlockSteps = kBlock / 8;
  static constexpr uint32_t kStepOffsets = kPanel * sizeof(Offset), kRowBytes = kTileRows * sizeof(Offset);

  // Stores the offsets of a block: codes of one half of a tile, which are every other code of a row, times the size of
  // an entry. Missing rows repeat the first one; x is zero there.
  template <int Half>
  static void store_offsets(const uint8_t* codes, uint32_t rows, uint8_t* to) {
    constexpr uint32_t kBytes = kTile * sizeof(Code), kStepRows = 8 * Books;
    for (uint32_t r = 0; r < kBlock * Books; r++) {
      const uint8_t* from = codes + (r < rows ? r : 0) * kBytes;
      uint8_t* target = to + r % kStepRows * kRowBytes + r / kStepRows * kStepOffsets;
      for (uint32_t i = 0; i < kBytes; i += 64) {
        const __m512i pairs = _mm512_loadu_si512(from + i);
        __m512i offsets;
        if constexpr (sizeof(Code) == 1) {
          offsets = half_codes<4>(pairs, Half == 1);
        } else {
          const __m512i shifted = Half == 0 ? _mm512_slli_epi32(pairs, 4) : _mm512_srli_epi32(pairs, 12);
          offsets = _mm512_and_si512(shifted, _mm512_set1_epi32(0xffff0));
        }
        _mm512_store_si512(target + i, offsets);
        // Prefetches the same codes of the next tile, every other row for each half.
        if (r % 2 == Half) _mm_prefetch(reinterpret_cast<const char*>(from + rows * kBytes + i), _MM_HINT_T0);
      }
    }
  }

  // Sums the entries of four groups, every other one, from the first one's offsets on.
  inline LOWBIT_INLINE __m512i four(const Offset* at) const {
    constexpr size_t kBookBytes = (size_t{1} << 8 * sizeof(Code)) * 16;
    const uint8_t* table = table_;
    __m512i sum{};
    for (uint32_t book = 0; book < Books; book++, table += kBookBytes, at += kTileRows) {
      auto entry = [&](uint32_t g) LOWBIT_INLINE {
        return _mm_load_si128(reinterpret_cast<const __m128i*>(table + at[2 * g * Books * kTileRows]));
      };
      __m512i joined = _mm512_castsi128_si512(entry(0));
      joined = _mm512_inserti32x4(joined, entry(1), 1);
      joined = _mm512_inserti32x4(joined, entry(2), 2);
      joined = _mm512_inserti32x4(joined, entry(3), 3);
      sum = book == 0 ? joined : _mm512_add_epi16(sum, joined);
    }
    return sum;
  }

  const uint8_t* table_;
  const Offset* offsets_;
};

// Reads vectors of any form.
template <class Code, class Vector>
class Vectors {
 public:
  Vectors(const DecoderInput& in, uint32_t panel, uint32_t chunk) : in_(&in), panel_(panel), chunk_(chunk) {}

  // Not inlined: seldom needed, and its code would be copied into the tile loop.
  __attribute__((noinline)) RowWords row(uint32_t index) const {
    const uint32_t output = index % kPanel, c = chunk_ * kChunk + index / kPanel * kStep;
    return {four(output, c), four(output, c + 8)};
  }

 private:
  __m512i four(uint32_t output, uint32_t c) const {
    const __m256i low = _mm256_setr_m128i(eight(output, c), eight(output, c + 16));
    const __m256i high = _mm256_setr_m128i(eight(output, c + 32), eight(output, c + 48));
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  }

  __m128i eight(uint32_t output, uint32_t c) const {
    const Codes& w = in_->codes;
    __m256 sum = _mm256_setzero_ps();
    const uint32_t row = panel_ * kPanel + output, place = row / w.out_group, tile = place / kTile;
    if (c < w.k && tile < w.tiles) {
      const uint32_t group = c / w.in_group, length = w.out_group * w.in_group;
      const Code* codes = reinterpret_cast<const Code*>(w.tile(group / kBlock, tile)) +
                          group % kBlock * w.codebooks * kTile + lane_of(place % kTile);
      const Vector* vectors = static_cast<const Vector*>(in_->table) + row % w.out_group * w.in_group + c % w.in_group;
      for (uint32_t book = 0; book < w.codebooks; book++, vectors += size_t{w.entries()} * length)
        sum = _mm256_add_ps(sum, Avx2::load(vectors + size_t{codes[book * kTile] & w.mask} * length));
    }
    return entry_words(sum, _mm256_set1_ps(in_->inverse), kLowStart);
  }

  const DecoderInput* in_;
  uint32_t panel_, chunk_;
};

// Decodes a chunk of a panel.
template <class Source>
class PanelDecoder {
 public:
  // `steps`: steps of the chunk.
  PanelDecoder(const DecoderInput& in, uint32_t panel, uint32_t chunk, uint32_t steps, uint8_t* target)
      : source_(in, panel, chunk),
        target_(target),
        rows_(steps * kPanel) {}

  inline LOWBIT_INLINE void rows(uint32_t count) {
    for (const uint32_t end = std::min(rows_, at_ + count); at_ < end; at_++) {
      const RowWords words = source_.row(at_);
      uint8_t* to = target_ + 64 * at_;
      const __m512i low_bytes = _mm512_set1_epi16(0xff);
      constexpr int kOrBoth = 0xf8, kOrFirstOnly = 0xf4;
      const __m512i low_odd = _mm512_slli_epi16(words.odd, 8), high_even = _mm512_srli_epi16(words.even, 8);
      _mm512_store_si512(to, _mm512_ternarylogic_epi32(low_odd, words.even, low_bytes, kOrBoth));
      _mm512_store_si512(to + kPanelBytes / 2,
                         _mm512_ternarylogic_epi32(high_even, words.odd, low_bytes, kOrFirstOnly));
    }
  }

 private:
  Source source_;
  uint8_t* target_;
  uint32_t rows_, at_ = 0;
};

}  // namespace
}  // namespace aqlm
}  // namespace lowbit
