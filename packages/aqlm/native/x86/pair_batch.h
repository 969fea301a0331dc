// Batches of lut_rows.h on x86: tables are built by products of pairs of 16-bit integers.
#pragma once

#include "../lut_rows.h"
#include "vector_pairs.h"

namespace lowbit {
namespace aqlm {
namespace {

// Eight 32-bit words or floats.
struct Lanes8 {
  static constexpr uint32_t kLanes = 8;
  using Words = __m256i;
  using F = __m256;
  static Words set(int32_t word) { return _mm256_set1_epi32(word); }
  static Words load(const int32_t* from) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(from)); }
  static F load(const float* from) { return _mm256_load_ps(from); }
  static void store(float* to, F v) { _mm256_store_ps(to, v); }
  static Words add_pairs(Words sum, Words a, Words b) { return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b)); }
  static F multiply_add(Words a, F b, F c) { return _mm256_fmadd_ps(_mm256_cvtepi32_ps(a), b, c); }
};

struct Sums16 {
  static constexpr uint32_t kRows = 16, kAtOnce = 3;
  using Lanes = Lanes8;
  using V = __m256i;
  static V add(V a, V b) { return _mm256_add_epi16(a, b); }
  // Joins the upper halves of words.
  static V join(const __m256i* words) { return _mm256_blend_epi16(_mm256_srli_epi32(words[0], 16), words[1], 0xaa); }
  // Sums of 8 rows as upper halves of words.
  static __m256i words(V sums, uint32_t index) {
    return index == 0 ? _mm256_slli_epi32(sums, 16)
                      : _mm256_and_si256(sums, _mm256_set1_epi32(static_cast<int>(0xffff0000)));
  }
};

// A batch with `Sums` of kRows rows.
template <class Sums>
struct PairBatch : Sums {
  using Sums::kRows;
  using V = typename Sums::V;
  using Lanes = typename Sums::Lanes;
  using Isa8 = Avx2;
  using Floats = FloatsAvx2;
  // A pair of inputs.
  using Value = int32_t;
  static constexpr uint32_t kVectors = kRows / Lanes::kLanes;
  static constexpr float kVectorMax = 4095, kFinest = 1 / kWordMax;
  // Largest sum of a run, in upper halves of words; what is left is for rounding: 1/2 per table, 1/32 per input of one,
  // 1/250 for vectors.
  static constexpr float kRunMax = 0x7f00 * 0x1p16f;

  struct Inputs {
    alignas(64) int32_t pairs[kRunInputs / 2][kRows];
    alignas(64) float steps[kRows];
  };

  static size_t prepared_bytes(const Codes& codes) { return aqlm::prepared_bytes(codes); }
  static void prepare(const Batches& p) {
    prepare_vectors<false>(p, kVectorMax, prepared_vectors<int32_t>(p.prepared));
  }

  static void set_inputs(const float* x, uint32_t count, float inverse_step, uint32_t row, Inputs* inputs) {
    const __m256 inverse = _mm256_set1_ps(inverse_step);
    for (uint32_t i = 0; i < count; i += 8) {
      alignas(16) int32_t four[4];
      _mm_store_si128(reinterpret_cast<__m128i*>(four), round8(_mm256_loadu_ps(x + i), inverse));
      for (uint32_t q = 0; q < 4; q++) inputs->pairs[i / 2 + q][row] = four[q];
    }
  }

  // Builds the table of one codebook for one group of a run.
  static void build_table(const Batches& p, uint32_t book, const Inputs& inputs, uint32_t group, V* table) {
    const uint32_t pairs = p.codes.in_group / 2;
    const int32_t* vectors = prepared_vectors<int32_t>(p.prepared).values + size_t{book} * kEntries * pairs;
    if (pairs == 4) build_pairs<4>(vectors, inputs.pairs + group * pairs, pairs, table);
    else build_pairs<0>(vectors, inputs.pairs + group * pairs, pairs, table);
  }

  struct Steps {
    typename Lanes::F rows[kVectors];
  };
  static Steps load_steps(const float* steps) {
    Steps all;
    for (uint32_t i = 0; i < kVectors; i++) all.rows[i] = Lanes::load(steps + Lanes::kLanes * i);
    return all;
  }

  // Converts sums to floats and adds them to those of earlier runs, unless the run is the first.
  template <bool IsFirst>
  static void add_to_totals(V sum, const Steps& steps, float* totals) {
    for (uint32_t i = 0; i < kVectors; i++, totals += Lanes::kLanes) {
      const typename Lanes::F before = IsFirst ? typename Lanes::F{} : Lanes::load(totals);
      Lanes::store(totals, Lanes::multiply_add(Sums::words(sum, i), steps.rows[i], before));
    }
  }

 private:
  // `Pairs` pairs per vector, `count` if that is 0.
  template <uint32_t Pairs>
  static void build_pairs(const int32_t* vectors, const int32_t (*x)[kRows], uint32_t count, V* table) {
    using Words = typename Lanes::Words;
    const uint32_t pairs = Pairs == 0 ? count : Pairs;
    // A known, small number of pairs stays in registers.
    Words rows[Pairs == 0 ? kInGroupMax / 2 : Pairs][kVectors];
    for (uint32_t q = 0; q < pairs; q++)
      for (uint32_t i = 0; i < kVectors; i++) rows[q][i] = Lanes::load(x[q] + Lanes::kLanes * i);
    for (uint32_t e = 0; e < kEntries; e++, vectors += pairs) {
      Words words[kVectors];
      // Half a unit of the upper half: rounds.
      for (auto& word : words) word = Lanes::set(0x8000);
      for (uint32_t q = 0; q < pairs; q++) {
        const Words both = Lanes::set(vectors[q]);
        for (uint32_t i = 0; i < kVectors; i++) words[i] = Lanes::add_pairs(words[i], both, rows[q][i]);
      }
      table[e] = Sums::join(words);
    }
  }
};

using Batch16 = PairBatch<Sums16>;

}  // namespace
}  // namespace aqlm
}  // namespace lowbit
