// Where the arguments of native calls are. Written by `npm run families` from src/kernels/native/families.ts.
#pragma once

#include "kernel.h"

namespace lowbit {

namespace packed_linear {
constexpr ScalarIndex kM{0}, kN{1}, kK{2};
constexpr ScalarIndex kGroupSize{3};
constexpr BufferIndex kX{0}, kWeights{1}, kY{2};
constexpr BufferIndex kScratch{3};
constexpr uint32_t kScalars = 4, kBuffers = 3;
}  // namespace packed_linear

namespace float_linear {
constexpr ScalarIndex kM{0}, kN{1}, kK{2};
constexpr ScalarIndex kWeightType{3}, kHasBias{4};
constexpr BufferIndex kX{0}, kWeights{1}, kBias{2};
constexpr BufferIndex kY{3}, kScratch{4};
constexpr uint32_t kScalars = 5, kBuffers = 4;
}  // namespace float_linear

namespace rope_angles {
constexpr ScalarIndex kTokens{0}, kHalf{1}, kScale{2};
constexpr ScalarIndex kEach{3};
constexpr BufferIndex kPosition{0}, kInverseFrequencies{1}, kAngles{2};
constexpr BufferIndex kScratch{3};
constexpr uint32_t kScalars = 4, kBuffers = 3;
}  // namespace rope_angles

namespace rope {
constexpr ScalarIndex kTokens{0}, kHeads{1}, kHeadDim{2};
constexpr ScalarIndex kHalf{3};
constexpr BufferIndex kX{0}, kAngles{1}, kY{2};
constexpr BufferIndex kScratch{3};
constexpr uint32_t kScalars = 4, kBuffers = 3;
}  // namespace rope

namespace attention {
constexpr ScalarIndex kTokens{0}, kHeads{1}, kKvHeads{2};
constexpr ScalarIndex kHeadDim{3}, kCapacity{4}, kScale{5};
constexpr ScalarIndex kWindow{6}, kSoftcap{7}, kStores{8};
constexpr BufferIndex kQ{0}, kK{1}, kV{2};
constexpr BufferIndex kKeyCache{3}, kValueCache{4}, kPosition{5};
constexpr BufferIndex kY{6}, kScratch{7};
constexpr uint32_t kScalars = 9, kBuffers = 7;
}  // namespace attention

namespace update_and_attend {
constexpr ScalarIndex kRows{0}, kHeads{1}, kKvHeads{2};
constexpr ScalarIndex kHeadDim{3}, kPagePositions{4}, kPagesMax{5};
constexpr ScalarIndex kRunsMax{6}, kScale{7}, kWindow{8};
constexpr ScalarIndex kSoftcap{9}, kCacheType{10}, kStores{11};
constexpr ScalarIndex kKeyOffset{12}, kValueOffset{13}, kKeyScaleOffset{14};
constexpr ScalarIndex kValueScaleOffset{15}, kHasSinks{16};
constexpr BufferIndex kQ{0}, kK{1}, kV{2};
constexpr BufferIndex kRuns{3}, kPages{4}, kSinks{5};
constexpr BufferIndex kY{6}, kScratch{7};
constexpr uint32_t kScalars = 17, kBuffers = 7;
}  // namespace update_and_attend

namespace rope_update_and_attend {
constexpr ScalarIndex kRows{0}, kHeads{1}, kKvHeads{2};
constexpr ScalarIndex kHeadDim{3}, kPagePositions{4}, kPagesMax{5};
constexpr ScalarIndex kRunsMax{6}, kScale{7}, kWindow{8};
constexpr ScalarIndex kSoftcap{9}, kCacheType{10}, kStores{11};
constexpr ScalarIndex kKeyOffset{12}, kValueOffset{13}, kKeyScaleOffset{14};
constexpr ScalarIndex kValueScaleOffset{15}, kHasSinks{16}, kHalf{17};
constexpr BufferIndex kQkv{0}, kAngles{1}, kRuns{2};
constexpr BufferIndex kPages{3}, kSinks{4}, kY{5};
constexpr BufferIndex kScratch{6};
constexpr uint32_t kScalars = 18, kBuffers = 6;
}  // namespace rope_update_and_attend

namespace short_convolution {
constexpr ScalarIndex kRows{0}, kChannels{1}, kTaps{2};
constexpr ScalarIndex kSilu{3}, kHasBias{4}, kStateOffset{5};
constexpr ScalarIndex kRunsMax{6}, kSlots{7};
constexpr BufferIndex kX{0}, kWeight{1}, kBias{2};
constexpr BufferIndex kRuns{3}, kStates{4}, kNextStates{5};
constexpr BufferIndex kY{6}, kScratch{7};
constexpr uint32_t kScalars = 8, kBuffers = 7;
}  // namespace short_convolution

namespace linear_recurrence {
constexpr ScalarIndex kRows{0}, kKeyHeads{1}, kHeads{2};
constexpr ScalarIndex kKeyDim{3}, kValueDim{4}, kScale{5};
constexpr ScalarIndex kHasBeta{6}, kStateOffset{7}, kRunsMax{8};
constexpr ScalarIndex kSlots{9};
constexpr BufferIndex kQ{0}, kK{1}, kV{2};
constexpr BufferIndex kLogDecay{3}, kBeta{4}, kRuns{5};
constexpr BufferIndex kStates{6}, kNextStates{7}, kY{8};
constexpr BufferIndex kScratch{9};
constexpr uint32_t kScalars = 10, kBuffers = 9;
}  // namespace linear_recurrence

namespace attend_texts {
constexpr ScalarIndex kRows{0}, kHeads{1}, kKvHeads{2};
constexpr ScalarIndex kHeadDim{3}, kTexts{4}, kScale{5};
constexpr ScalarIndex kBefore{6}, kAfter{7};
constexpr BufferIndex kQ{0}, kK{1}, kV{2};
constexpr BufferIndex kOffsets{3}, kY{4}, kScratch{5};
constexpr uint32_t kScalars = 8, kBuffers = 5;
}  // namespace attend_texts

namespace select {
constexpr ScalarIndex kOuter{0}, kStride{1}, kOffset{2};
constexpr ScalarIndex kBlockBytes{3};
constexpr BufferIndex kX{0}, kY{1}, kScratch{2};
constexpr uint32_t kScalars = 4, kBuffers = 2;
}  // namespace select

namespace gather_columns {
constexpr ScalarIndex kRows{0}, kDim{1}, kCount{2};
constexpr ScalarIndex kIndexBytes{3};
constexpr BufferIndex kX{0}, kColumns{1}, kY{2};
constexpr BufferIndex kScratch{3};
constexpr uint32_t kScalars = 4, kBuffers = 3;
}  // namespace gather_columns

namespace embedding_float {
constexpr ScalarIndex kRows{0}, kDim{1}, kWeightType{2};
constexpr ScalarIndex kCount{3}, kIndexBytes{4};
constexpr BufferIndex kWeights{0}, kIndices{1}, kY{2};
constexpr BufferIndex kScratch{3};
constexpr uint32_t kScalars = 5, kBuffers = 3;
}  // namespace embedding_float

namespace embedding_packed {
constexpr ScalarIndex kBits{0}, kRows{1}, kDim{2};
constexpr ScalarIndex kGroups{3}, kCount{4}, kIndexBytes{5};
constexpr BufferIndex kPacked{0}, kScales{1}, kZeros{2};
constexpr BufferIndex kIndices{3}, kY{4}, kScratch{5};
constexpr uint32_t kScalars = 6, kBuffers = 5;
}  // namespace embedding_packed

namespace embedding_shared {
constexpr ScalarIndex kCount{0}, kN{1}, kK{2};
constexpr ScalarIndex kGroupSize{3}, kIndexBytes{4};
constexpr BufferIndex kWeights{0}, kIndices{1}, kY{2};
constexpr BufferIndex kScratch{3};
constexpr uint32_t kScalars = 5, kBuffers = 3;
}  // namespace embedding_shared

namespace route {
constexpr ScalarIndex kRows{0}, kExperts{1}, kTopK{2};
constexpr ScalarIndex kScores{3}, kNormalize{4}, kEps{5};
constexpr ScalarIndex kScale{6}, kHasBias{7}, kHasFactors{8};
constexpr BufferIndex kLogits{0}, kBias{1}, kFactors{2};
constexpr BufferIndex kRouting{3}, kScratch{4};
constexpr uint32_t kScalars = 9, kBuffers = 4;
}  // namespace route

namespace expert_rows {
constexpr ScalarIndex kRows{0}, kExperts{1}, kTopK{2};
constexpr ScalarIndex kDim{3};
constexpr BufferIndex kX{0}, kRouting{1}, kY{2};
constexpr BufferIndex kScratch{3};
constexpr uint32_t kScalars = 4, kBuffers = 3;
}  // namespace expert_rows

namespace expert_packed {
constexpr ScalarIndex kPlaces{0}, kExperts{1}, kN{2};
constexpr ScalarIndex kK{3}, kPartBytes{4}, kFrom0{5};
constexpr ScalarIndex kFrom1{6}, kFrom2{7}, kFrom3{8};
constexpr ScalarIndex kFrom4{9}, kFrom5{10}, kFrom6{11};
constexpr ScalarIndex kFrom7{12}, kKernel0{13}, kKernel1{14};
constexpr ScalarIndex kKernel2{15}, kKernel3{16}, kKernel4{17};
constexpr ScalarIndex kKernel5{18}, kKernel6{19}, kKernel7{20};
constexpr ScalarIndex kGroupSize{21};
constexpr BufferIndex kX{0}, kWeights{1}, kRouting{2};
constexpr BufferIndex kY{3}, kScratch{4};
constexpr uint32_t kScalars = 22, kBuffers = 4;
}  // namespace expert_packed

namespace expert_float {
constexpr ScalarIndex kPlaces{0}, kExperts{1}, kN{2};
constexpr ScalarIndex kK{3}, kPartBytes{4}, kFrom0{5};
constexpr ScalarIndex kFrom1{6}, kFrom2{7}, kFrom3{8};
constexpr ScalarIndex kFrom4{9}, kFrom5{10}, kFrom6{11};
constexpr ScalarIndex kFrom7{12}, kKernel0{13}, kKernel1{14};
constexpr ScalarIndex kKernel2{15}, kKernel3{16}, kKernel4{17};
constexpr ScalarIndex kKernel5{18}, kKernel6{19}, kKernel7{20};
constexpr ScalarIndex kWeightType{21}, kHasBias{22};
constexpr BufferIndex kX{0}, kWeights{1}, kRouting{2};
constexpr BufferIndex kY{3}, kBias{4}, kScratch{5};
constexpr uint32_t kScalars = 23, kBuffers = 5;
}  // namespace expert_float

namespace vocabulary_maxima {
constexpr ScalarIndex kBlocks{0};
constexpr BufferIndex kX{0}, kAllowed{1}, kMaxima{2};
constexpr BufferIndex kScratch{3};
constexpr uint32_t kScalars = 1, kBuffers = 3;
}  // namespace vocabulary_maxima

namespace vocabulary_weights {
constexpr ScalarIndex kBlocks{0};
constexpr BufferIndex kX{0}, kMaxima{1}, kSettings{2};
constexpr BufferIndex kWeights{3}, kSums{4}, kScratch{5};
constexpr uint32_t kScalars = 1, kBuffers = 5;
}  // namespace vocabulary_weights

namespace quantize_affine {
constexpr ScalarIndex kN{0}, kK{1}, kGroupSize{2};
constexpr ScalarIndex kBits{3}, kWeightType{4}, kMapping{5};
constexpr ScalarIndex kAlgorithm{6}, kScaleType{7}, kHasImportance{8};
constexpr BufferIndex kWeights{0}, kQvals{1}, kScales{2};
constexpr BufferIndex kSuperScales{3}, kZeros{4}, kImportance{5};
constexpr BufferIndex kTrials{6}, kLevels{7}, kFailed{8};
constexpr BufferIndex kScratch{9};
constexpr uint32_t kScalars = 9, kBuffers = 9;
}  // namespace quantize_affine

namespace quantize_pack {
constexpr ScalarIndex kN{0}, kK{1}, kGroupSize{2};
constexpr ScalarIndex kBits{3}, kScaleBytes{4}, kHasE4m3{5};
constexpr ScalarIndex kHasZeros{6}, kHasLevels{7}, kHasMinima{8};
constexpr ScalarIndex kHasBias{9};
constexpr BufferIndex kQvals{0}, kScales{1}, kZeros{2};
constexpr BufferIndex kLevels{3}, kMinima{4}, kSuperScales{5};
constexpr BufferIndex kSuperMinima{6}, kPanels{7}, kNegative{8};
constexpr BufferIndex kScratch{9};
constexpr uint32_t kScalars = 10, kBuffers = 9;
}  // namespace quantize_pack

namespace measure_read {
constexpr ScalarIndex kBytes{0}, kRounds{1}, kAhead{2};
constexpr BufferIndex kData{0}, kScratch{1};
constexpr uint32_t kScalars = 3, kBuffers = 1;
}  // namespace measure_read

namespace measure_macs {
constexpr ScalarIndex kMacs{0}, kTiles{1};
constexpr BufferIndex kScratch{0};
constexpr uint32_t kScalars = 2, kBuffers = 0;
}  // namespace measure_macs

}  // namespace lowbit
