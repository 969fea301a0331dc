// Routers of mixtures of experts (Shazeer et al. 2017): top-k experts of each row; rows gathered in the order of their
// experts ("places"); and the weighted sums of what a row's experts computed. Defined by
// src/kernels/families/experts/reference.ts.
#pragma once

#include <cmath>
#include <cstring>

#include "arguments.h"
#include "routing.h"

namespace lowbit {
namespace {

struct RouteArgs {
  const float* logits;
  const float* bias;
  const float* factors;
  // Scores [experts] of each thread.
  double* scores;
  Routing routing;
  uint32_t rows, experts, top_k, rows_per_tile;
  double eps, scale;
  bool is_sigmoid, normalize;
};

inline void score_row(const RouteArgs& args, const float* logits, double* scores) {
  if (args.is_sigmoid) {
    for (uint32_t e = 0; e < args.experts; e++) scores[e] = 1 / (1 + std::exp(-static_cast<double>(logits[e])));
    return;
  }
  double most = logits[0], total = 0;
  for (uint32_t e = 1; e < args.experts; e++) most = std::max(most, static_cast<double>(logits[e]));
  for (uint32_t e = 0; e < args.experts; e++) total += scores[e] = std::exp(logits[e] - most);
  for (uint32_t e = 0; e < args.experts; e++) scores[e] /= total;
}

// Writes the top-k experts of a row, the best first, to where its places will be. NaN scores rank last.
inline void choose_experts(const RouteArgs& args, const float* logits, const double* scores, int32_t* chosen) {
  auto rank = [&](uint32_t e) { return args.bias ? static_cast<float>(scores[e]) + args.bias[e] : logits[e]; };
  for (uint32_t j = 0; j < args.top_k; j++) {
    int32_t best = -1;
    for (uint32_t e = 0; e < args.experts; e++) {
      if (best >= 0 && !(rank(e) > rank(static_cast<uint32_t>(best)))) continue;
      if (std::find(chosen, chosen + j, static_cast<int32_t>(e)) == chosen + j) best = static_cast<int32_t>(e);
    }
    chosen[j] = best;
  }
}

inline void route_row(const RouteArgs& args, uint32_t row, double* scores) {
  const float* logits = args.logits + size_t{row} * args.experts;
  int32_t* chosen = args.routing.places + size_t{row} * args.top_k;
  float* weights = args.routing.weights + size_t{row} * args.top_k;
  score_row(args, logits, scores);
  choose_experts(args, logits, scores, chosen);
  double sum = 0;
  for (uint32_t j = 0; j < args.top_k; j++) sum += scores[chosen[j]];
  for (uint32_t j = 0; j < args.top_k; j++) {
    const double weight = args.normalize ? scores[chosen[j]] / (sum + args.eps) : scores[chosen[j]];
    weights[j] = static_cast<float>(weight * args.scale * (args.factors ? args.factors[chosen[j]] : 1.0f));
  }
}

// Turns the experts' ids into places: rows of one expert are neighbours and keep their order (counting sort).
inline void order_by_expert(const RouteArgs& args) {
  const Routing& r = args.routing;
  const size_t count = size_t{args.rows} * args.top_k;
  memset(r.starts, 0, sizeof(int32_t) * (args.experts + 1));
  for (size_t i = 0; i < count; i++) r.starts[r.places[i] + 1]++;
  for (uint32_t e = 0; e < args.experts; e++) r.starts[e + 1] += r.starts[e];
  // Counting moves each expert's start to its end, where the next expert's rows start.
  for (size_t i = 0; i < count; i++) {
    const int32_t place = r.starts[r.places[i]]++;
    r.sources[place] = static_cast<int32_t>(i / args.top_k);
    r.places[i] = place;
  }
  memmove(r.starts + 1, r.starts, sizeof(int32_t) * args.experts);
  r.starts[0] = 0;
}

inline void route_run(const Step& step, uint32_t phase, uint32_t tile, uint32_t thread) {
  const RouteArgs& args = step.as<RouteArgs>();
  if (phase == 1) return order_by_expert(args);
  const uint32_t last = std::min(args.rows, (tile + 1) * args.rows_per_tile);
  for (uint32_t row = tile * args.rows_per_tile; row < last; row++)
    route_row(args, row, args.scores + size_t{thread} * args.experts);
}

size_t route_scratch(const Call& call) {
  const auto given = arguments_of<RouteArguments>(call);
  return sizeof(double) * call.threads * given.experts;
}

void route_prepare(Step& step, const Call& call) {
  const auto given = arguments_of<RouteArguments>(call);
  RouteArgs& args = step.init<RouteArgs>();
  args.rows = given.rows;
  args.experts = given.experts;
  args.top_k = given.top_k;
  args.is_sigmoid = given.scores == route_scores::kSigmoid;
  args.normalize = given.normalize;
  args.eps = given.eps;
  args.scale = given.scale;
  args.logits = given.logits;
  args.bias = given.bias;
  args.factors = given.factors;
  args.routing = routing_at(given.routing, args.experts, size_t{args.rows} * args.top_k);
  args.scores = static_cast<double*>(given.scratch);
  // Bounds the work, whatever number a program asks for.
  const uint32_t most = static_cast<uint32_t>((1u << 26) / (double(args.experts) * args.top_k * args.top_k));
  const uint32_t share = std::max(4u, ceil_div(args.rows, 4 * call.threads));
  args.rows_per_tile = std::max(1u, std::min(most, share));
  step.phases = 2;
  step.tiles[0] = ceil_div(args.rows, args.rows_per_tile);
  step.tiles[1] = 1;
  step.run = route_run;
}

struct ExpertRowsArgs {
  const float* x;
  float* y;
  Routing routing;
  uint32_t rows, top_k, dim, per_tile, count;
};

inline void expert_rows_run(const Step& step, uint32_t, uint32_t tile, uint32_t) {
  const ExpertRowsArgs& args = step.as<ExpertRowsArgs>();
  const uint32_t last = std::min(args.count, (tile + 1) * args.per_tile);
  for (uint32_t place = tile * args.per_tile; place < last; place++) {
    const uint32_t source = static_cast<uint32_t>(args.routing.sources[place]);
    float* y = args.y + size_t{place} * args.dim;
    if (source < args.rows) memcpy(y, args.x + size_t{source} * args.dim, sizeof(float) * args.dim);
    else std::fill_n(y, args.dim, NAN);
  }
}

inline void combine_experts_run(const Step& step, uint32_t, uint32_t tile, uint32_t) {
  const ExpertRowsArgs& args = step.as<ExpertRowsArgs>();
  const uint32_t last = std::min(args.rows, (tile + 1) * args.per_tile), dim = args.dim;
  for (uint32_t row = tile * args.per_tile; row < last; row++) {
    float* y = args.y + size_t{row} * dim;
    std::fill_n(y, dim, 0.0f);
    for (uint32_t j = 0; j < args.top_k; j++) {
      const size_t i = size_t{row} * args.top_k + j;
      const uint32_t place = static_cast<uint32_t>(args.routing.places[i]);
      const bool is_place = place < args.rows * args.top_k;
      const float* x = args.x + (is_place ? size_t{place} * dim : 0);
      const float weight = is_place ? args.routing.weights[i] : NAN;
      for (uint32_t c = 0; c < dim; c++) y[c] += weight * x[c];
    }
  }
}

template <bool Combines>
void expert_rows_prepare(Step& step, const Call& call) {
  using Arguments = std::conditional_t<Combines, CombineExpertsArguments, ExpertRowsArguments>;
  const auto given = arguments_of<Arguments>(call);
  ExpertRowsArgs& args = step.init<ExpertRowsArgs>();
  args.rows = given.rows;
  args.top_k = given.top_k;
  args.dim = given.dim;
  args.x = given.x;
  args.y = given.y;
  const size_t places = size_t{args.rows} * args.top_k;
  args.routing = routing_at(const_cast<int32_t*>(given.routing), given.experts, places);
  args.count = Combines ? args.rows : static_cast<uint32_t>(places);
  // A tile reads 64 KiB of values or more.
  const uint32_t values = std::max(1u, args.dim * (Combines ? args.top_k : 1));
  args.per_tile = std::max(1 + (1u << 14) / values, ceil_div(args.count, 8 * call.threads));
  step.phases = 1;
  step.tiles[0] = ceil_div(args.count, args.per_tile);
  step.run = Combines ? combine_experts_run : expert_rows_run;
}

}  // namespace
}  // namespace lowbit
