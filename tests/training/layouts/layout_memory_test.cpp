#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/pipeline/pipeline_check.h"
#include "lockstep/training/layouts/layout_planner.h"

namespace lockstep {
namespace {

/// A model of equal parts with so many parameters, and nothing else.
PlannedModel model_of_parameters(double elements, size_t parts) {
  PlannedPart part{.name = "part"};
  part.elements.whole = elements / static_cast<double>(parts);
  return {.kinds = {part}, .parts = std::vector<size_t>(parts, 0)};
}

// The figures of Rajbhandari et al., "ZeRO", 2020, figure 1: 7.5 billion parameters, 64 devices, parameters
// and gradients of 2 bytes, and 12 bytes of state. Buckets and units come on top here.
TEST(LayoutMemory, DividesParametersAsZeroDoes) {
  const LayoutPlanner planner(model_of_parameters(7.5e9, 1000), {.devices = 64},
                              {.global_batch = 64, .parameter_bytes = 2, .optimizer_states = 6});
  const auto gigabytes = [&](int stage) {
    const PlannedLayout layout =
        stage == 0 ? PlannedLayout{.data = 64} : PlannedLayout{.shard = 64, .stage = stage};
    const auto memory = planner.memory(layout);
    return (memory.parameters + memory.gradients + memory.optimizer_state) / 1e9;
  };
  EXPECT_NEAR(gigabytes(0), 120, 0.05);
  EXPECT_NEAR(gigabytes(1), 31.4, 0.05);
  EXPECT_NEAR(gigabytes(2), 16.6, 0.05);
  EXPECT_NEAR(gigabytes(3), 1.9, 0.05);
}

// float32 Adam on N ranks: 8 P + 8 P / N, 4 P + 12 P / N and 16 P / N bytes.
TEST(LayoutMemory, OfHybridShardingIsThatOfTheInnerAxis) {
  constexpr double kElements = 1e9;
  const LayoutPlanner planner(model_of_parameters(kElements, 500), {.devices = 32}, {.global_batch = 32});
  for (const int64_t shard : {2, 4, 16}) {
    const auto kept = [&](int stage) {
      const auto memory = planner.memory({.data = 32 / shard, .shard = shard, .stage = stage});
      return memory.parameters + memory.gradients + memory.optimizer_state;
    };
    const double part = kElements / static_cast<double>(shard);
    EXPECT_NEAR(kept(1), 8 * kElements + 8 * part, 1);
    EXPECT_NEAR(kept(2), 4 * kElements + 12 * part, 1);
    // The two units of the two parts at hand are not kept.
    EXPECT_NEAR(kept(3), 16 * part, 4 * kElements / 500 + 1);
  }
}

TEST(LayoutMemory, OfBucketsAndUnitsIsThatOfTwo) {
  const LayoutPlanner planner(model_of_parameters(1e9, 500), {.devices = 4},
                              {.global_batch = 4, .bucket_bytes = 1000});
  EXPECT_EQ(planner.memory({.shard = 4, .stage = 2}).buckets, 2 * 1000);
  EXPECT_EQ(planner.memory({.shard = 4, .stage = 3}).gathered_units, 2 * 4 * 1e9 / 500);
  const LayoutPlanner sharing(planner.model(), {.devices = 4, .devices_per_machine = 4, .shares_units = true},
                              planner.training());
  EXPECT_EQ(sharing.memory({.shard = 4, .stage = 3}).gathered_units, 2 * 4 * 1e9 / 500 / 4);
}

TEST(LayoutMemory, CountsSharedParametersOnceOnARankThatHasBoth) {
  PlannedModel model = model_of_parameters(8, 4);
  model.kinds[0].elements = {.whole = 100};
  model.shared_elements.whole = 40;
  EXPECT_EQ(model.elements(), 360);
  const LayoutPlanner alone(model, {.devices = 1}, {});
  EXPECT_EQ(alone.memory({}).parameters, 4 * 360);
  const LayoutPlanner staged(model, {.devices = 2}, {});
  for (const auto& rank : staged.memory_of_ranks({.pipeline = 2})) EXPECT_EQ(rank.parameters, 4 * 200);
}

struct AliveCase {
  std::string schedule;
  int64_t stages_per_rank = 1;
};

class LayoutMemoryOfPipelines : public testing::TestWithParam<AliveCase> {};

// Each part keeps one byte of an example, so that a rank's activations are the pairs of a stage and a
// micro-batch that are alive: the proof of a schedule counts them.
TEST_P(LayoutMemoryOfPipelines, KeepsWhatTheScheduleKeeps) {
  const auto& [schedule, stages_per_rank] = GetParam();
  for (const int64_t ranks : {2, 3, 4, 8}) {
    for (const int64_t rounds : {1, 2, 3, 5, 9}) {
      const int64_t micro_batches = rounds * ranks;
      PlannedModel model = model_of_parameters(1, static_cast<size_t>(ranks * stages_per_rank));
      model.kinds[0].saved.whole = 1;
      const LayoutPlanner planner(model, {.devices = ranks}, {.global_batch = micro_batches});
      const auto memory = planner.memory_of_ranks({.pipeline = ranks,
                                                   .micro_batches = micro_batches,
                                                   .schedule = schedule,
                                                   .stages_per_rank = stages_per_rank});
      const auto alive = check_pipeline_schedule(make_pipeline_schedule(schedule, static_cast<int>(ranks),
                                                                        static_cast<int>(micro_batches),
                                                                        static_cast<int>(stages_per_rank)))
                             .most_alive;
      for (size_t rank = 0; rank < alive.size(); ++rank)
        EXPECT_EQ(memory[rank].activations, alive[rank])
            << "rank " << rank << " of " << ranks << ", " << micro_batches << " micro-batches";
    }
  }
}

// Between the halves of backward, a micro-batch keeps more: counted along the actions of each rank. The first
// stage goes backward in the second half only, and keeps the gradient of its result, which is as large as the
// input of the next part.
TEST_P(LayoutMemoryOfPipelines, KeepsGradientsBetweenTheHalvesOfBackward) {
  const auto& [schedule, stages_per_rank] = GetParam();
  constexpr int64_t kRanks = 4, kMicroBatches = 12;
  PlannedModel model = model_of_parameters(1, static_cast<size_t>(kRanks * stages_per_rank));
  model.kinds[0].saved.whole = 10;
  model.kinds[0].split_extra.whole = 3;
  model.kinds[0].input.whole = 1;
  const LayoutPlanner planner(model, {.devices = kRanks}, {.global_batch = kMicroBatches});
  const auto memory = planner.memory_of_ranks({.pipeline = kRanks,
                                               .micro_batches = kMicroBatches,
                                               .schedule = schedule,
                                               .stages_per_rank = stages_per_rank});
  const auto made =
      make_pipeline_schedule(schedule, kRanks, kMicroBatches, static_cast<int>(stages_per_rank));
  for (size_t rank = 0; rank < memory.size(); ++rank) {
    double now = 0, most = 0;
    for (const auto& [op, stage, micro_batch] : made.actions[rank]) {
      const double between = stage == 0 ? 1 : 3;
      if (op == PipelineOp::kForward) now += 10;
      if (op == PipelineOp::kBackwardInputs) now += between;
      most = std::max(most, now);
      if (op == PipelineOp::kBackward) now -= 10;
      if (op == PipelineOp::kBackwardWeights) now -= 10 + between;
    }
    EXPECT_EQ(memory[rank].activations, most) << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, LayoutMemoryOfPipelines,
                         testing::Values(AliveCase{"gpipe"}, AliveCase{"1f1b"}, AliveCase{"zb-h1"},
                                         AliveCase{"interleaved", 2}, AliveCase{"interleaved", 4},
                                         AliveCase{"zb-v", 2}),
                         [](const auto& test) {
                           std::string name =
                               test.param.schedule + std::to_string(test.param.stages_per_rank);
                           std::erase(name, '-');
                           return name;
                         });

// Two parts of 10 bytes whose inputs have 1: in backward of the second, both inputs are there, and one part
// is computed again.
TEST(LayoutMemory, OfRecomputationIsInputsAndOnePart) {
  PlannedModel model = model_of_parameters(2, 2);
  model.kinds[0].saved.whole = 10;
  model.kinds[0].input.whole = 1;
  model.kinds[0].is_recomputed = true;
  const LayoutPlanner planner(model, {.devices = 1}, {.global_batch = 6});
  EXPECT_EQ(planner.memory({.micro_batches = 2}).activations, 3 * 20);
  EXPECT_EQ(planner.memory({.micro_batches = 2, .recomputes = true}).activations, 3 * (1 + 10));
}

TEST(LayoutMemory, IsDividedAlongTensorAndContext) {
  PlannedModel model = model_of_parameters(1, 1);
  model.kinds[0].saved = {.whole = 100, .cut = 1000, .between = 10};
  model.cut_sizes = {8};
  model.sequence_length = 16;
  const LayoutPlanner planner(model, {.devices = 8}, {.global_batch = 1});
  const PlannedLayout layout{.context = 4, .tensor = 2};
  EXPECT_EQ(planner.memory(layout).activations, (100 + 500 + 10) / 4.0);
  PlannedLayout with_shards = layout;
  with_shards.has_sequence_shards = true;
  EXPECT_EQ(planner.memory(with_shards).activations, (100 + 500 + 5) / 4.0);
}

TEST(LayoutPlanner, RefusesWhatCannotBe) {
  PlannedModel model = model_of_parameters(10, 4);
  model.cut_sizes = {6};
  const LayoutPlanner planner(model, {.devices = 4}, {.global_batch = 8});
  const auto refuses = [&](const PlannedLayout& layout, const std::string& reason) {
    EXPECT_THAT(planner.refusal(layout).value_or("nothing"), testing::HasSubstr(reason));
    EXPECT_THROW(planner.memory(layout), InvalidArgument);
    EXPECT_THROW(planner.time(layout), InvalidArgument);
  };
  EXPECT_EQ(planner.refusal({.data = 4, .micro_batches = 2}), std::nullopt);
  refuses({.data = 2}, "2 ranks for 4 devices");
  refuses({.tensor = 4}, "tensor=4 does not divide 6");
  refuses({.context = 4}, "no sequences");
  refuses({.expert = 4}, "experts");
  refuses({.data = 4, .stage = 1}, "an axis shard");
  refuses({.data = 4, .micro_batches = 3}, "3 micro-batches are more than a replica's 2 examples");
  refuses({.pipeline = 4, .schedule = "zb-v", .stages_per_rank = 2}, "8 stages are more than the 4 parts");
  refuses({.data = 2, .pipeline = 2, .micro_batches = 1, .schedule = "interleaved", .stages_per_rank = 2},
          "pipeline=2 divides");
  EXPECT_THROW(LayoutPlanner({}, {}, {}), InvalidArgument);
  EXPECT_THROW(LayoutPlanner(model, {.flops_per_second = 0}, {}), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
