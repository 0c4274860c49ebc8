// Plans against bytes computed by hand, and against steps of one device.
#include "lockstep/training/planning/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <ctime>
#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/nn/recompute.h"
#include "lockstep/strategies/pipeline/pipeline_check.h"
#include "lockstep/strategies/pipeline/pipeline_schedule.h"
#include "lockstep/tests/strategies/nn/counted_memory.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/sanitizer.h"
#include "lockstep/training/planning/module_recorder.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using Tensors = std::vector<torch::Tensor>;

constexpr int64_t kWidthOfBlocks = 64;
constexpr int64_t kBlocks = 6;
constexpr int64_t kElementsOfBlock = 2 * (kWidthOfBlocks + 1) * kWidthOfBlocks;
constexpr int64_t kModelBytes = kBlocks * kElementsOfBlock * 4;

std::vector<torch::nn::Sequential> make_blocks() {
  std::vector<torch::nn::Sequential> blocks;
  for (int64_t i = 0; i < kBlocks; ++i) {
    blocks.emplace_back(torch::nn::Linear(kWidthOfBlocks, kWidthOfBlocks), torch::nn::GELU(),
                        torch::nn::Linear(kWidthOfBlocks, kWidthOfBlocks));
  }
  return blocks;
}

Tensors rows(int64_t examples) {
  return {torch::rand({examples, kWidthOfBlocks})};
}

/// A residual net whose elements are blocks "0", "1" and so on.
RecordedStep record_blocks() {
  const auto blocks = make_blocks();
  torch::nn::ModuleList model;
  for (const auto& block : blocks) model->push_back(block.ptr());
  ModuleRecorder recorder;
  return recorder.record(*model, rows, [&](const Tensors& batch) {
    torch::Tensor x = batch[0];
    for (size_t i = 0; i < blocks.size(); ++i) {
      auto block = blocks[i];
      x = x + recorder.call(
                  std::to_string(i), [&](const torch::Tensor& in) { return block->forward(in); }, x);
    }
    return x.square().mean();
  });
}

TEST(MemoryPlanTest, HoldsWhatZeroSaysOfEachStage) {
  const auto record = record_blocks();
  for (const int64_t replicas : {2, 4}) {
    const auto plan_of = [&](int stage) {
      return plan_memory(record,
                         {.replicas = replicas, .stage = stage, .optimizer = PlannedOptimizer::kAdam});
    };
    EXPECT_EQ(plan_of(0).parameters, kModelBytes);
    EXPECT_EQ(plan_of(0).optimizer_state, 2 * kModelBytes);
    EXPECT_EQ(plan_of(1).parameters, kModelBytes);
    EXPECT_EQ(plan_of(1).optimizer_state, 2 * kModelBytes / replicas);
    EXPECT_EQ(plan_of(2).parameters, kModelBytes);
    EXPECT_EQ(plan_of(2).optimizer_state, 2 * kModelBytes / replicas);
    EXPECT_EQ(plan_of(3).parameters, kModelBytes / replicas);
    EXPECT_EQ(plan_of(3).optimizer_state, 2 * kModelBytes / replicas);
    for (const int stage : {0, 1}) EXPECT_GE(plan_of(stage).gradients, kModelBytes);
    for (const int stage : {2, 3}) {
      EXPECT_GE(plan_of(stage).gradients, kModelBytes / replicas);
      EXPECT_LE(plan_of(stage).gradients, kModelBytes / replicas + kElementsOfBlock * 4);
    }
    // A unit's memory is shared by the replicas; two are whole at a time.
    EXPECT_LE(plan_of(3).gathered_units, 2 * kElementsOfBlock * 4 / replicas);
  }
}

TEST(MemoryPlanTest, KeepsTheStateOfEachOptimizer) {
  const auto record = record_blocks();
  const auto state_of = [&](PlannedOptimizer optimizer) {
    return plan_memory(record, {.optimizer = optimizer}).optimizer_state;
  };
  EXPECT_EQ(state_of(PlannedOptimizer::kSgd), 0);
  EXPECT_EQ(state_of(PlannedOptimizer::kMomentum), kModelBytes);
  EXPECT_EQ(state_of(PlannedOptimizer::kAdam), 2 * kModelBytes);
  EXPECT_EQ(state_of(PlannedOptimizer::kAdamW), 2 * kModelBytes);
}

TEST(MemoryPlanTest, FollowsTheStepOfOneDevice) {
  const auto record = record_blocks();
  for (const bool recomputes : {false, true}) {
    TrainingLayout layout{.examples = 300, .optimizer = PlannedOptimizer::kSgd};
    if (recomputes) layout.recomputed = record.blocks_named("");
    const auto plan = plan_memory(record, layout);
    auto blocks = make_blocks();
    const auto batch = rows(layout.examples);
    const CountedMemory memory;
    torch::Tensor x = batch[0];
    for (auto& block : blocks) x = x + (recomputes ? recompute(block, x) : block->forward(x));
    auto loss = x.square().mean();
    x.reset();
    loss.backward();
    const int64_t planned = plan.activations + plan.gradients;
    EXPECT_NEAR(static_cast<double>(planned) / static_cast<double>(memory.peak()), 1, 0.02) << recomputes;
  }
}

TEST(MemoryPlanTest, RecomputationKeepsTheInputsOfBlocks) {
  const auto record = record_blocks();
  constexpr int64_t kExamples = 1000, kTensor = kExamples * kWidthOfBlocks * 4;
  TrainingLayout layout{.examples = kExamples};
  // Of each block the input, and in a block the results of the first layer and of GELU.
  const int64_t whole = plan_memory(record, layout).activations;
  EXPECT_GE(whole, 3 * kBlocks * kTensor);
  layout.recomputed = record.blocks_named("");
  const int64_t fewer = plan_memory(record, layout).activations;
  EXPECT_GE(fewer, kBlocks * kTensor);
  EXPECT_LE(fewer, (kBlocks + 6) * kTensor);
  layout.recomputed = {0, 1, 2};
  const int64_t half = plan_memory(record, layout).activations;
  EXPECT_GT(half, fewer);
  EXPECT_LT(half, whole);
}

TEST(MemoryPlanTest, MicroBatchesNeedTheirGradientsFromTheFirstOnOn) {
  const auto record = record_blocks();
  constexpr int64_t kExamples = 1000;  // activations are largest when backward begins
  const auto peak_of = [&](int64_t micro_batches) {
    return plan_memory(record, {.examples = kExamples, .micro_batches = micro_batches});
  };
  EXPECT_EQ(peak_of(2).peak(), peak_of(3).peak());
  EXPECT_GE(peak_of(2).gradients, kModelBytes);
  EXPECT_LT(peak_of(1).gradients, kModelBytes / 2);
  EXPECT_NEAR(static_cast<double>(peak_of(2).activations), static_cast<double>(peak_of(1).activations),
              0.02 * static_cast<double>(peak_of(1).activations));
}

TEST(MemoryPlanTest, TwoBucketsAreThereAtATimeInStageTwo) {
  const auto record = record_blocks();
  constexpr int64_t kBlockBytes = kElementsOfBlock * 4;
  const TrainingLayout layout{.replicas = 2,
                              .stage = 2,
                              .optimizer = PlannedOptimizer::kSgd,
                              .buckets = {.first_bucket_bytes = kBlockBytes, .bucket_bytes = kBlockBytes}};
  EXPECT_EQ(plan_memory(record, layout).buckets, 2 * kBlockBytes);
  TrainingLayout rounded = layout;
  rounded.summed_element_bytes = 2;
  EXPECT_EQ(plan_memory(record, rounded).buckets, 2 * kBlockBytes * 3 / 2);
}

TEST(MemoryPlanTest, CountsWhatAnAllocatorRoundsUp) {
  const auto record = record_blocks();
  TrainingLayout layout{.examples = 1};
  EXPECT_EQ(plan_memory(record, layout).allocator, 0);
  layout.allocation_unit = 512;
  // Most activations of one example have 256 bytes.
  const auto plan = plan_memory(record, layout);
  EXPECT_GT(plan.allocator, 3 * kBlocks * 128);
  EXPECT_LT(plan.allocator, plan.activations + plan.gradients);
}

TEST(MemoryPlanTest, PlansTenThousandLayoutsInTenSeconds) {
  const auto record = record_blocks();
  const int layouts = few_if_sanitized(10'000, 100);
  int64_t least = INT64_MAX;
  const std::clock_t begin = std::clock();
  for (int i = 0; i < layouts; ++i) {
    TrainingLayout layout{
        .replicas = 1 + i % 64, .stage = i % 4, .examples = 1 + i % 97, .micro_batches = 1 + i % 5};
    if (i % 2 == 0) {
      layout.pipeline = {.ranks = 1 + i / 2 % 3, .schedule = i % 4 == 0 ? "1f1b" : "zb-v"};
      layout.micro_batches = 1 + i % 32;
    }
    if (i % 3 == 0) layout.recomputed = record.blocks_named("");
    least = std::min(least, plan_memory(record, layout).peak());
  }
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  EXPECT_GT(least, kModelBytes / 64);
  EXPECT_LT(seconds, 10);
}

TrainingLayout in_stages(const char* schedule, int ranks, int64_t micro_batches) {
  return {.examples = 1000,
          .micro_batches = micro_batches,
          .optimizer = PlannedOptimizer::kSgd,
          .pipeline = {.ranks = ranks, .schedule = schedule}};
}

TEST(MemoryPlanTest, StagesHaveTheirOwnBlocks) {
  const auto record = record_blocks();
  const auto plans = plan_memory_of_ranks(record, in_stages("1f1b", 3, 6));
  ASSERT_EQ(plans.size(), 3U);
  for (const auto& plan : plans) EXPECT_EQ(plan.parameters, kModelBytes / 3);
  auto by_hand = in_stages("1f1b", 3, 6);
  by_hand.pipeline.cuts = {1, 3};
  const auto cut = plan_memory_of_ranks(record, by_hand);
  EXPECT_EQ(cut[0].parameters, kModelBytes / kBlocks);
  EXPECT_EQ(cut[1].parameters, 2 * kModelBytes / kBlocks);
  EXPECT_EQ(cut[2].parameters, 3 * kModelBytes / kBlocks);
}

TEST(MemoryPlanTest, RanksKeepTheMicroBatchesThatTheirScheduleKeepsAlive) {
  const auto record = record_blocks();
  constexpr int kRanks = 3, kMicroBatches = 6;
  // The input, what the first linear layer and GELU return, and the residual sum, which is the result.
  constexpr int64_t kTensor = 1000 * kWidthOfBlocks * 4;
  constexpr int64_t kOfStage = kBlocks / kRanks * 3 * kTensor;
  for (const char* schedule : {"gpipe", "1f1b"}) {
    const auto plans = plan_memory_of_ranks(record, in_stages(schedule, kRanks, kMicroBatches));
    const auto alive =
        check_pipeline_schedule(make_pipeline_schedule(schedule, kRanks, kMicroBatches)).most_alive;
    for (size_t rank = 0; rank < plans.size(); ++rank) {
      EXPECT_GE(plans[rank].activations, alive[rank] * kOfStage) << schedule << rank;
      // Besides, results, and what backward needs while it runs.
      EXPECT_LE(plans[rank].activations, (alive[rank] + 1) * (kOfStage + 2 * kTensor)) << schedule << rank;
    }
  }
}

TEST(MemoryPlanTest, ZeroBubbleSchedulesKeepWhatTheWeightsNeed) {
  const auto record = record_blocks();
  for (size_t i = 1; i < record.calls.size(); ++i) {  // the first block has no gradients to pass on
    const auto& halves = record.calls[i].halves;
    ASSERT_TRUE(halves.are_apart);
    // The second layer's weights need what GELU returned, and the first layer's the block's input.
    constexpr int64_t kTensor = 10 * kWidthOfBlocks * 4;
    EXPECT_EQ(halves.saved.at(10), kTensor);
    EXPECT_TRUE(halves.needs_input);
    EXPECT_TRUE(halves.keeps_output_gradient);
    // The gradients of what both layers returned.
    EXPECT_EQ(halves.gradients.at(10), 2 * kTensor);
  }
  const auto peak_of = [&](const char* schedule) {
    return plan_memory(record, in_stages(schedule, 2, 6)).peak();
  };
  EXPECT_GE(peak_of("zb-h1"), peak_of("1f1b"));
  EXPECT_LT(peak_of("zb-h1"), peak_of("gpipe"));
}

TEST(MemoryPlanTest, ProcessesDoNotShareUnits) {
  const auto record = record_blocks();
  TrainingLayout layout{.replicas = 2, .stage = 3, .optimizer = PlannedOptimizer::kSgd};
  const auto threads = plan_memory(record, layout);
  layout.replicas_per_process = 1;
  const auto processes = plan_memory(record, layout);
  EXPECT_LE(threads.gathered_units, 2 * kElementsOfBlock * 4 / 2);
  EXPECT_GT(processes.gathered_units + processes.communication,
            threads.gathered_units + threads.communication);
}

TEST(MemoryPlanTest, CopiesSumTheirGradients) {
  const auto record = record_blocks();
  EXPECT_LT(plan_memory(record, {.examples = 1000}).gradients, kModelBytes);
  EXPECT_GE(plan_memory(record, {.copies = 2, .examples = 1000}).gradients, kModelBytes);
}

TEST(MemoryPlanTest, RefusesStagesThatDoNotExist) {
  const auto record = record_blocks();
  const auto error_of = [&](const PlannedPipeline& pipeline) {
    return message_of<InvalidArgument>(
        [&] { plan_memory(record, {.micro_batches = 4, .pipeline = pipeline}); });
  };
  EXPECT_THAT(error_of({.ranks = 0}), HasSubstr("expected 1 or more ranks of a pipeline, but got 0"));
  EXPECT_THAT(error_of({.ranks = 7}), HasSubstr("at least one block for each of 7 stages, but got 6 blocks"));
  EXPECT_THAT(error_of({.ranks = 2, .schedule = "fast"}), HasSubstr("fast"));
  EXPECT_THAT(error_of({.ranks = 2, .blocks = {1, 2}}), HasSubstr("begin with call 0"));
  EXPECT_THAT(error_of({.ranks = 2, .costs = {1}}),
              HasSubstr("expected a cost of each of 6 blocks of the pipeline, but got 1"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { record.pipeline_blocks("layers."); }),
              HasSubstr("names begin with 'layers.', but there are none"));
}

TEST(MemoryPlanTest, RefusesLayoutsThatDoNotExist) {
  const auto record = record_blocks();
  const auto error_of = [&](const TrainingLayout& layout) {
    return message_of<InvalidArgument>([&] { plan_memory(record, layout); });
  };
  EXPECT_THAT(error_of({.replicas = 0}), HasSubstr("[plan_memory] expected 1 or more replicas, but got 0"));
  EXPECT_THAT(error_of({.stage = 4}), HasSubstr("expected a stage from 0 to 3, but got 4"));
  EXPECT_THAT(error_of({.examples = 0}), HasSubstr("expected 1 or more examples of a replica, but got 0"));
  EXPECT_THAT(error_of({.micro_batches = 0}), HasSubstr("expected 1 or more micro-batches, but got 0"));
  EXPECT_THAT(error_of({.recomputed = {6}}),
              HasSubstr("expected blocks to recompute below 6, as in the record, but got 6"));
  EXPECT_THAT(error_of({.allocation_unit = 0}), HasSubstr("allocation unit of 1 or more bytes, but got 0"));
}

TEST(MemoryPlanTest, HasNoBucketsOfTablesWithSparseGradients) {
  constexpr int64_t kRows = 5000, kColumns = 8;
  const auto plan_of = [](bool is_sparse, int64_t replicas) {
    torch::nn::Embedding table(torch::nn::EmbeddingOptions(kRows, kColumns).sparse(is_sparse));
    ModuleRecorder recorder;
    const auto record = recorder.record(
        *table, [](int64_t examples) { return std::vector{torch::zeros({examples}, torch::kLong)}; },
        [&](const std::vector<torch::Tensor>& batch) { return table->forward(batch[0]).sum(); });
    return plan_memory(record, {.replicas = replicas, .optimizer = PlannedOptimizer::kSgd});
  };
  EXPECT_EQ(plan_of(true, 2).gradients, 0);
  EXPECT_GE(plan_of(false, 2).gradients, 4 * kRows * kColumns);
  EXPECT_LT(plan_of(true, 2).peak(), 1.1 * 4 * kRows * kColumns) << "the table alone";
}

}  // namespace
}  // namespace lockstep
