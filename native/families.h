// Where the arguments of native calls are. Written by `npm run families` from src/kernels/native/families.ts.
#pragma once

#include "kernel.h"

namespace lowbit {

namespace packed_linear {
constexpr ScalarIndex kM{0};
constexpr ScalarIndex kN{1};
constexpr ScalarIndex kK{2};
constexpr ScalarIndex kGroupSize{3};
constexpr BufferIndex kX{0};
constexpr BufferIndex kWeights{1};
constexpr BufferIndex kY{2};
constexpr BufferIndex kScratch{3};
constexpr uint32_t kScalars = 4, kBuffers = 3;
}  // namespace packed_linear

namespace float_linear {
constexpr ScalarIndex kM{0};
constexpr ScalarIndex kN{1};
constexpr ScalarIndex kK{2};
constexpr ScalarIndex kWeightType{3};
constexpr ScalarIndex kHasBias{4};
constexpr BufferIndex kX{0};
constexpr BufferIndex kWeights{1};
constexpr BufferIndex kBias{2};
constexpr BufferIndex kY{3};
constexpr BufferIndex kScratch{4};
constexpr uint32_t kScalars = 5, kBuffers = 4;
}  // namespace float_linear

namespace rms_norm {
constexpr ScalarIndex kRows{0};
constexpr ScalarIndex kDim{1};
constexpr ScalarIndex kEps{2};
constexpr BufferIndex kX{0};
constexpr BufferIndex kWeight{1};
constexpr BufferIndex kY{2};
constexpr BufferIndex kScratch{3};
constexpr uint32_t kScalars = 3, kBuffers = 3;
}  // namespace rms_norm

namespace layer_norm {
constexpr ScalarIndex kRows{0};
constexpr ScalarIndex kDim{1};
constexpr ScalarIndex kEps{2};
constexpr ScalarIndex kHasBias{3};
constexpr BufferIndex kX{0};
constexpr BufferIndex kWeight{1};
constexpr BufferIndex kBias{2};
constexpr BufferIndex kY{3};
constexpr BufferIndex kScratch{4};
constexpr uint32_t kScalars = 4, kBuffers = 4;
}  // namespace layer_norm

namespace add_rms_norm {
constexpr ScalarIndex kRows{0};
constexpr ScalarIndex kDim{1};
constexpr ScalarIndex kEps{2};
constexpr ScalarIndex kAlpha{3};
constexpr BufferIndex kX{0};
constexpr BufferIndex kWeight{1};
constexpr BufferIndex kY{2};
constexpr BufferIndex kAddend{3};
constexpr BufferIndex kScratch{4};
constexpr uint32_t kScalars = 4, kBuffers = 4;
}  // namespace add_rms_norm

namespace rope_angles {
constexpr ScalarIndex kTokens{0};
constexpr ScalarIndex kHalf{1};
constexpr ScalarIndex kScale{2};
constexpr ScalarIndex kEach{3};
constexpr BufferIndex kPosition{0};
constexpr BufferIndex kInverseFrequencies{1};
constexpr BufferIndex kAngles{2};
constexpr BufferIndex kScratch{3};
constexpr uint32_t kScalars = 4, kBuffers = 3;
}  // namespace rope_angles

namespace rope {
constexpr ScalarIndex kTokens{0};
constexpr ScalarIndex kHeads{1};
constexpr ScalarIndex kHeadDim{2};
constexpr ScalarIndex kHalf{3};
constexpr BufferIndex kX{0};
constexpr BufferIndex kAngles{1};
constexpr BufferIndex kY{2};
constexpr BufferIndex kScratch{3};
constexpr uint32_t kScalars = 4, kBuffers = 3;
}  // namespace rope

namespace attention {
constexpr ScalarIndex kTokens{0};
constexpr ScalarIndex kHeads{1};
constexpr ScalarIndex kKvHeads{2};
constexpr ScalarIndex kHeadDim{3};
constexpr ScalarIndex kCapacity{4};
constexpr ScalarIndex kScale{5};
constexpr ScalarIndex kWindow{6};
constexpr ScalarIndex kSoftcap{7};
constexpr ScalarIndex kCacheType{8};
constexpr ScalarIndex kStores{9};
constexpr BufferIndex kQ{0};
constexpr BufferIndex kK{1};
constexpr BufferIndex kV{2};
constexpr BufferIndex kKeyCache{3};
constexpr BufferIndex kValueCache{4};
constexpr BufferIndex kKeyScales{5};
constexpr BufferIndex kValueScales{6};
constexpr BufferIndex kPosition{7};
constexpr BufferIndex kY{8};
constexpr BufferIndex kScratch{9};
constexpr uint32_t kScalars = 10, kBuffers = 9;
}  // namespace attention

namespace rope_attention {
constexpr ScalarIndex kTokens{0};
constexpr ScalarIndex kHeads{1};
constexpr ScalarIndex kKvHeads{2};
constexpr ScalarIndex kHeadDim{3};
constexpr ScalarIndex kCapacity{4};
constexpr ScalarIndex kScale{5};
constexpr ScalarIndex kWindow{6};
constexpr ScalarIndex kSoftcap{7};
constexpr ScalarIndex kCacheType{8};
constexpr ScalarIndex kStores{9};
constexpr ScalarIndex kHalf{10};
constexpr BufferIndex kQkv{0};
constexpr BufferIndex kAngles{1};
constexpr BufferIndex kKeyCache{2};
constexpr BufferIndex kValueCache{3};
constexpr BufferIndex kKeyScales{4};
constexpr BufferIndex kValueScales{5};
constexpr BufferIndex kPosition{6};
constexpr BufferIndex kY{7};
constexpr BufferIndex kScratch{8};
constexpr uint32_t kScalars = 11, kBuffers = 8;
}  // namespace rope_attention

namespace update_and_attend {
constexpr ScalarIndex kRows{0};
constexpr ScalarIndex kHeads{1};
constexpr ScalarIndex kKvHeads{2};
constexpr ScalarIndex kHeadDim{3};
constexpr ScalarIndex kPagePositions{4};
constexpr ScalarIndex kPagesMax{5};
constexpr ScalarIndex kRunsMax{6};
constexpr ScalarIndex kScale{7};
constexpr ScalarIndex kWindow{8};
constexpr ScalarIndex kSoftcap{9};
constexpr ScalarIndex kCacheType{10};
constexpr ScalarIndex kStores{11};
constexpr ScalarIndex kKeyOffset{12};
constexpr ScalarIndex kValueOffset{13};
constexpr ScalarIndex kKeyScaleOffset{14};
constexpr ScalarIndex kValueScaleOffset{15};
constexpr BufferIndex kQ{0};
constexpr BufferIndex kK{1};
constexpr BufferIndex kV{2};
constexpr BufferIndex kRuns{3};
constexpr BufferIndex kPages{4};
constexpr BufferIndex kY{5};
constexpr BufferIndex kScratch{6};
constexpr uint32_t kScalars = 16, kBuffers = 6;
}  // namespace update_and_attend

namespace rope_update_and_attend {
constexpr ScalarIndex kRows{0};
constexpr ScalarIndex kHeads{1};
constexpr ScalarIndex kKvHeads{2};
constexpr ScalarIndex kHeadDim{3};
constexpr ScalarIndex kPagePositions{4};
constexpr ScalarIndex kPagesMax{5};
constexpr ScalarIndex kRunsMax{6};
constexpr ScalarIndex kScale{7};
constexpr ScalarIndex kWindow{8};
constexpr ScalarIndex kSoftcap{9};
constexpr ScalarIndex kCacheType{10};
constexpr ScalarIndex kStores{11};
constexpr ScalarIndex kKeyOffset{12};
constexpr ScalarIndex kValueOffset{13};
constexpr ScalarIndex kKeyScaleOffset{14};
constexpr ScalarIndex kValueScaleOffset{15};
constexpr ScalarIndex kHalf{16};
constexpr BufferIndex kQkv{0};
constexpr BufferIndex kAngles{1};
constexpr BufferIndex kRuns{2};
constexpr BufferIndex kPages{3};
constexpr BufferIndex kY{4};
constexpr BufferIndex kScratch{5};
constexpr uint32_t kScalars = 17, kBuffers = 5;
}  // namespace rope_update_and_attend

namespace short_convolution {
constexpr ScalarIndex kRows{0};
constexpr ScalarIndex kChannels{1};
constexpr ScalarIndex kTaps{2};
constexpr ScalarIndex kSilu{3};
constexpr ScalarIndex kHasBias{4};
constexpr ScalarIndex kStateOffset{5};
constexpr ScalarIndex kRunsMax{6};
constexpr ScalarIndex kSlots{7};
constexpr BufferIndex kX{0};
constexpr BufferIndex kWeight{1};
constexpr BufferIndex kBias{2};
constexpr BufferIndex kRuns{3};
constexpr BufferIndex kStates{4};
constexpr BufferIndex kNextStates{5};
constexpr BufferIndex kY{6};
constexpr BufferIndex kScratch{7};
constexpr uint32_t kScalars = 8, kBuffers = 7;
}  // namespace short_convolution

namespace linear_recurrence {
constexpr ScalarIndex kRows{0};
constexpr ScalarIndex kKeyHeads{1};
constexpr ScalarIndex kHeads{2};
constexpr ScalarIndex kKeyDim{3};
constexpr ScalarIndex kValueDim{4};
constexpr ScalarIndex kScale{5};
constexpr ScalarIndex kHasBeta{6};
constexpr ScalarIndex kStateOffset{7};
constexpr ScalarIndex kRunsMax{8};
constexpr ScalarIndex kSlots{9};
constexpr BufferIndex kQ{0};
constexpr BufferIndex kK{1};
constexpr BufferIndex kV{2};
constexpr BufferIndex kLogDecay{3};
constexpr BufferIndex kBeta{4};
constexpr BufferIndex kRuns{5};
constexpr BufferIndex kStates{6};
constexpr BufferIndex kNextStates{7};
constexpr BufferIndex kY{8};
constexpr BufferIndex kScratch{9};
constexpr uint32_t kScalars = 10, kBuffers = 9;
}  // namespace linear_recurrence

namespace attend_texts {
constexpr ScalarIndex kRows{0};
constexpr ScalarIndex kHeads{1};
constexpr ScalarIndex kKvHeads{2};
constexpr ScalarIndex kHeadDim{3};
constexpr ScalarIndex kTexts{4};
constexpr ScalarIndex kScale{5};
constexpr ScalarIndex kBefore{6};
constexpr ScalarIndex kAfter{7};
constexpr BufferIndex kQ{0};
constexpr BufferIndex kK{1};
constexpr BufferIndex kV{2};
constexpr BufferIndex kOffsets{3};
constexpr BufferIndex kY{4};
constexpr BufferIndex kScratch{5};
constexpr uint32_t kScalars = 8, kBuffers = 5;
}  // namespace attend_texts

namespace binary {
constexpr ScalarIndex kCount{0};
constexpr ScalarIndex kAlpha{1};
constexpr BufferIndex kA{0};
constexpr BufferIndex kB{1};
constexpr BufferIndex kY{2};
constexpr BufferIndex kScratch{3};
constexpr uint32_t kScalars = 2, kBuffers = 3;
}  // namespace binary

namespace unary {
constexpr ScalarIndex kCount{0};
constexpr ScalarIndex kValue{1};
constexpr BufferIndex kX{0};
constexpr BufferIndex kY{1};
constexpr BufferIndex kScratch{2};
constexpr uint32_t kScalars = 2, kBuffers = 2;
}  // namespace unary

namespace halves {
constexpr ScalarIndex kRows{0};
constexpr ScalarIndex kDim{1};
constexpr BufferIndex kX{0};
constexpr BufferIndex kY{1};
constexpr BufferIndex kScratch{2};
constexpr uint32_t kScalars = 2, kBuffers = 2;
}  // namespace halves

namespace rows {
constexpr ScalarIndex kRows{0};
constexpr ScalarIndex kDim{1};
constexpr BufferIndex kX{0};
constexpr BufferIndex kY{1};
constexpr BufferIndex kScratch{2};
constexpr uint32_t kScalars = 2, kBuffers = 2;
}  // namespace rows

namespace group_sums {
constexpr ScalarIndex kRows{0};
constexpr ScalarIndex kK{1};
constexpr ScalarIndex kGroupSize{2};
constexpr BufferIndex kX{0};
constexpr BufferIndex kY{1};
constexpr BufferIndex kScratch{2};
constexpr uint32_t kScalars = 3, kBuffers = 2;
}  // namespace group_sums

namespace softplus {
constexpr ScalarIndex kRows{0};
constexpr ScalarIndex kDim{1};
constexpr BufferIndex kX{0};
constexpr BufferIndex kBias{1};
constexpr BufferIndex kFactors{2};
constexpr BufferIndex kY{3};
constexpr BufferIndex kScratch{4};
constexpr uint32_t kScalars = 2, kBuffers = 4;
}  // namespace softplus

namespace scale_rows {
constexpr ScalarIndex kRows{0};
constexpr ScalarIndex kDim{1};
constexpr BufferIndex kX{0};
constexpr BufferIndex kFactors{1};
constexpr BufferIndex kY{2};
constexpr BufferIndex kScratch{3};
constexpr uint32_t kScalars = 2, kBuffers = 3;
}  // namespace scale_rows

namespace select {
constexpr ScalarIndex kOuter{0};
constexpr ScalarIndex kStride{1};
constexpr ScalarIndex kOffset{2};
constexpr ScalarIndex kBlockBytes{3};
constexpr BufferIndex kX{0};
constexpr BufferIndex kY{1};
constexpr BufferIndex kScratch{2};
constexpr uint32_t kScalars = 4, kBuffers = 2;
}  // namespace select

namespace embedding_float {
constexpr ScalarIndex kRows{0};
constexpr ScalarIndex kDim{1};
constexpr ScalarIndex kWeightType{2};
constexpr ScalarIndex kCount{3};
constexpr ScalarIndex kIndexBytes{4};
constexpr BufferIndex kWeights{0};
constexpr BufferIndex kIndices{1};
constexpr BufferIndex kY{2};
constexpr BufferIndex kScratch{3};
constexpr uint32_t kScalars = 5, kBuffers = 3;
}  // namespace embedding_float

namespace embedding_packed {
constexpr ScalarIndex kBits{0};
constexpr ScalarIndex kRows{1};
constexpr ScalarIndex kDim{2};
constexpr ScalarIndex kGroups{3};
constexpr ScalarIndex kCount{4};
constexpr ScalarIndex kIndexBytes{5};
constexpr BufferIndex kPacked{0};
constexpr BufferIndex kScales{1};
constexpr BufferIndex kZeros{2};
constexpr BufferIndex kIndices{3};
constexpr BufferIndex kY{4};
constexpr BufferIndex kScratch{5};
constexpr uint32_t kScalars = 6, kBuffers = 5;
}  // namespace embedding_packed

namespace embedding_shared {
constexpr ScalarIndex kCount{0};
constexpr ScalarIndex kN{1};
constexpr ScalarIndex kK{2};
constexpr ScalarIndex kGroupSize{3};
constexpr ScalarIndex kIndexBytes{4};
constexpr BufferIndex kWeights{0};
constexpr BufferIndex kIndices{1};
constexpr BufferIndex kY{2};
constexpr BufferIndex kScratch{3};
constexpr uint32_t kScalars = 5, kBuffers = 3;
}  // namespace embedding_shared

namespace vocabulary_maxima {
constexpr ScalarIndex kBlocks{0};
constexpr BufferIndex kX{0};
constexpr BufferIndex kAllowed{1};
constexpr BufferIndex kMaxima{2};
constexpr BufferIndex kScratch{3};
constexpr uint32_t kScalars = 1, kBuffers = 3;
}  // namespace vocabulary_maxima

namespace vocabulary_weights {
constexpr ScalarIndex kBlocks{0};
constexpr BufferIndex kX{0};
constexpr BufferIndex kMaxima{1};
constexpr BufferIndex kSettings{2};
constexpr BufferIndex kWeights{3};
constexpr BufferIndex kSums{4};
constexpr BufferIndex kScratch{5};
constexpr uint32_t kScalars = 1, kBuffers = 5;
}  // namespace vocabulary_weights

namespace quantize_affine {
constexpr ScalarIndex kN{0};
constexpr ScalarIndex kK{1};
constexpr ScalarIndex kGroupSize{2};
constexpr ScalarIndex kBits{3};
constexpr ScalarIndex kWeightType{4};
constexpr ScalarIndex kMapping{5};
constexpr ScalarIndex kHqq{6};
constexpr ScalarIndex kHalfScales{7};
constexpr BufferIndex kWeights{0};
constexpr BufferIndex kQvals{1};
constexpr BufferIndex kScales{2};
constexpr BufferIndex kZeros{3};
constexpr BufferIndex kFailed{4};
constexpr BufferIndex kScratch{5};
constexpr uint32_t kScalars = 8, kBuffers = 5;
}  // namespace quantize_affine

namespace quantize_pack {
constexpr ScalarIndex kN{0};
constexpr ScalarIndex kK{1};
constexpr ScalarIndex kGroupSize{2};
constexpr ScalarIndex kBits{3};
constexpr ScalarIndex kScaleBytes{4};
constexpr ScalarIndex kHasZeros{5};
constexpr ScalarIndex kHasLevels{6};
constexpr ScalarIndex kHasMinima{7};
constexpr ScalarIndex kHasBias{8};
constexpr BufferIndex kQvals{0};
constexpr BufferIndex kScales{1};
constexpr BufferIndex kZeros{2};
constexpr BufferIndex kLevels{3};
constexpr BufferIndex kMinima{4};
constexpr BufferIndex kSuperScales{5};
constexpr BufferIndex kSuperMinima{6};
constexpr BufferIndex kPanels{7};
constexpr BufferIndex kNegative{8};
constexpr BufferIndex kScratch{9};
constexpr uint32_t kScalars = 9, kBuffers = 9;
}  // namespace quantize_pack

namespace measure_read {
constexpr ScalarIndex kBytes{0};
constexpr ScalarIndex kRounds{1};
constexpr ScalarIndex kAhead{2};
constexpr BufferIndex kData{0};
constexpr BufferIndex kScratch{1};
constexpr uint32_t kScalars = 3, kBuffers = 1;
}  // namespace measure_read

namespace measure_macs {
constexpr ScalarIndex kMacs{0};
constexpr ScalarIndex kTiles{1};
constexpr BufferIndex kScratch{0};
constexpr uint32_t kScalars = 2, kBuffers = 0;
}  // namespace measure_macs

}  // namespace lowbit
