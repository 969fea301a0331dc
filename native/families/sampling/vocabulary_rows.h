// The sampler's passes over the logits of a vocabulary, with the bits of src/kernels/families/sampling/reference.ts:
// products are rounded before they are added (no fused multiply-add), and sums have 16 lanes whatever the width of
// vectors. `Isa`: see vectors.h.
#pragma once

#include <cstring>
#include <limits>

#include "../../each_index.h"
#include "arguments.h"

namespace lowbit {

constexpr size_t kBlockTokens = 128;
constexpr size_t kSumLanes = 16;

struct MaximaArgs {
  float* x;
  const uint32_t* allowed;
  float* maxima;
  size_t blocks;
};

// Sets the logits of a block whose tokens the mask forbids to -Infinity.
static inline void mask_block(float* x, const uint32_t* allowed) {
  for (size_t i = 0; i < kBlockTokens; i += 32) {
    const uint32_t word = allowed[i / 32];
    if (word == ~0u) continue;
    for (size_t j = 0; j < 32; j++)
      x[i + j] = (word & (1u << j)) != 0 ? x[i + j] : -std::numeric_limits<float>::infinity();
  }
}

template <class Isa>
float largest_of(const float* x) {
  constexpr int kVectors = kSumLanes / Isa::kLanes;
  typename Isa::V most[kVectors], odd[kVectors];
  each_index<kVectors>([&](auto v) LOWBIT_INLINE {
    most[v] = Isa::load(x + Isa::kLanes * v);
    odd[v] = Isa::set(0.0f);
  });
  for (size_t i = 0; i < kBlockTokens; i += kSumLanes)
    each_index<kVectors>([&](auto v) LOWBIT_INLINE {
      const auto value = Isa::load(x + i + Isa::kLanes * v);
      most[v] = Isa::max(most[v], value);
      // The maximum so far; NaN once a NaN has come.
      odd[v] = odd[v] + Isa::min(Isa::set(1.0f), Isa::max(Isa::set(-1.0f), value));
    });
  each_index<kVectors>([&](auto v) LOWBIT_INLINE {
    most[0] = Isa::max(most[0], most[v]);
    if constexpr (v > 0) odd[0] = odd[0] + odd[v];
  });
  const float sum = Isa::sum(odd[0]);
  return sum == sum ? Isa::largest(most[0]) : std::numeric_limits<float>::quiet_NaN();
}

template <class Isa>
void maxima_run(const Step& step, uint32_t, uint32_t, uint32_t) {
  const MaximaArgs& args = step.as<MaximaArgs>();
  for (size_t block = 0; block < args.blocks; block++) {
    float* x = args.x + kBlockTokens * block;
    const uint32_t* allowed = args.allowed + kBlockTokens / 32 * block;
    if ((allowed[0] & allowed[1] & allowed[2] & allowed[3]) != ~0u) mask_block(x, allowed);
    args.maxima[block] = largest_of<Isa>(x);
  }
}

template <class Isa>
void maxima_prepare(Step& step, const Call& call) {
  const auto given = arguments_of<VocabularyMaximaArguments>(call);
  MaximaArgs& args = step.init<MaximaArgs>();
  args.x = given.x;
  args.allowed = given.allowed;
  args.maxima = given.maxima;
  args.blocks = given.blocks;
  step.phases = 1;
  step.tiles[0] = 1;
  step.run = maxima_run<Isa>;
}

struct WeightsArgs {
  const float* x;
  const float* maxima;
  const float* settings;
  float* weights;
  float* sums;
  size_t blocks;
};

// 1.5 * 2^23, where floats are one apart: adding and subtracting it rounds a smaller number to an integer, ties to
// even.
constexpr float kWhole = 0x1.8p23f;
// Smaller exponents give weight 0.
constexpr float kLeastExponent = -125;

// Coefficients of (2^f - 1) / f, |f| <= 1/2, highest power first.
constexpr float kPower[] = {0.00015453163359779865f, 0.0013390863314270973f, 0.009618083015084267f,
                            0.055503569543361664f,   0.24022650718688965f,   0.6931471824645996f};

// 2^exponent for exponents of at most 0.
template <class Isa>
inline LOWBIT_INLINE typename Isa::V power_of(typename Isa::V exponent) {
  const auto least = Isa::set(kLeastExponent);
  const auto z = Isa::max(Isa::set(kLeastExponent - 2), exponent);
  const auto whole = (z + Isa::set(kWhole)) - Isa::set(kWhole);
  const auto rest = z - whole;
  auto sum = Isa::set(kPower[0]);
  for (size_t k = 1; k < sizeof kPower / sizeof *kPower; k++) sum = sum * rest + Isa::set(kPower[k]);
  return Isa::choose_less(z, least, Isa::set(0.0f), Isa::add_to_exponent(sum * rest + Isa::set(1.0f), whole));
}

// Writes the weights 2^((x - largest) * scale) of a block, 0 where x < least, and returns their sum.
template <class Isa>
float weigh_block(const float* x, float largest, float scale, float least, float* weights) {
  constexpr int kVectors = kSumLanes / Isa::kLanes;
  const auto largests = Isa::set(largest), scales = Isa::set(scale), leasts = Isa::set(least);
  typename Isa::V total[kVectors];
  each_index<kVectors>([&](auto v) LOWBIT_INLINE { total[v] = Isa::set(0.0f); });
  for (size_t i = 0; i < kBlockTokens; i += kSumLanes)
    each_index<kVectors>([&](auto v) LOWBIT_INLINE {
      const auto value = Isa::load(x + i + Isa::kLanes * v);
      const auto power = power_of<Isa>((value - largests) * scales);
      const auto weight = Isa::choose_less(value, leasts, Isa::set(0.0f), power);
      Isa::store(weights + i + Isa::kLanes * v, weight);
      total[v] = total[v] + weight;
    });
  float lanes[kSumLanes];
  each_index<kVectors>([&](auto v) LOWBIT_INLINE { Isa::store(lanes + Isa::kLanes * v, total[v]); });
  for (size_t width = kSumLanes / 2; width > 0; width /= 2)
    for (size_t j = 0; j < width; j++) lanes[j] += lanes[j + width];
  return lanes[0];
}

template <class Isa>
void weights_run(const Step& step, uint32_t, uint32_t, uint32_t) {
  const WeightsArgs& args = step.as<WeightsArgs>();
  const float largest = args.settings[0], scale = args.settings[1], least = args.settings[2];
  for (size_t block = 0; block < args.blocks; block++) {
    const size_t first = kBlockTokens * block;
    const bool has_some = args.maxima[block] >= least;
    args.sums[block] = has_some ? weigh_block<Isa>(args.x + first, largest, scale, least, args.weights + first) : 0.0f;
  }
}

template <class Isa>
void weights_prepare(Step& step, const Call& call) {
  const auto given = arguments_of<VocabularyWeightsArguments>(call);
  WeightsArgs& args = step.init<WeightsArgs>();
  args.x = given.x;
  args.maxima = given.maxima;
  args.settings = given.settings;
  args.weights = given.weights;
  args.sums = given.sums;
  args.blocks = given.blocks;
  step.phases = 1;
  step.tiles[0] = 1;
  step.run = weights_run<Isa>;
}

#define LOWBIT_VOCABULARY_ROWS(Isa, target, lanes, needs)                                                   \
  KernelRow{"vocabulary_maxima_f32_1x1x" lanes "_" target,                                                  \
            "vocabulary_maxima",                                                                            \
            nullptr,                                                                                        \
            0,                                                                                              \
            needs,                                                                                          \
            1,                                                                                              \
            1,                                                                                              \
            nullptr,                                                                                        \
            maxima_prepare<Isa>},                                                                           \
      KernelRow {                                                                                           \
    "vocabulary_weights_f32_1x1x" lanes "_" target, "vocabulary_weights", nullptr, 0, needs, 1, 1, nullptr, \
        weights_prepare<Isa>                                                                                \
  }

}  // namespace lowbit
