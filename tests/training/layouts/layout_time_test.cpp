#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/strategies/pipeline/pipeline_timeline.h"
#include "lockstep/training/layouts/layout_planner.h"

namespace lockstep {
namespace {

/// Parts that compute one operation forward and two backward for an example, on devices of one a second.
PlannedModel model_of_work(size_t parts) {
  PlannedPart part{.name = "part"};
  part.elements.whole = 1;
  part.forward.flops.whole = 1;
  part.backward.flops.whole = 2;
  return {.kinds = {part}, .parts = std::vector<size_t>(parts, 0)};
}

PlannedCluster slow_devices(int64_t devices) {
  return {.devices = devices, .flops_per_second = 1, .bytes_per_second = 1e30};
}

struct BubbleCase {
  std::string schedule;
  int64_t stages_per_rank = 1;
};

class LayoutTimeOfPipelines : public testing::TestWithParam<BubbleCase> {};

// The shares of the time that ranks wait in shared formulas: (p - 1) / (m + p - 1) of the time for GPipe and
// 1F1B, (p - 1) / (v m + p - 1) with v stages on a rank.
TEST_P(LayoutTimeOfPipelines, HasTheBubbleOfTheFormula) {
  const auto& [schedule, stages] = GetParam();
  for (const int64_t ranks : {2, 4, 8}) {
    // The last ones are more than are simulated.
    for (const int64_t micro_batches : {ranks, 4 * ranks, 5 * ranks, 32 * ranks}) {
      const LayoutPlanner planner(model_of_work(static_cast<size_t>(ranks * stages)), slow_devices(ranks),
                                  {.global_batch = micro_batches});
      const PlannedLayout layout{
          .pipeline = ranks, .micro_batches = micro_batches, .schedule = schedule, .stages_per_rank = stages};
      const auto time = planner.time(layout);
      const double waits = static_cast<double>(ranks - 1);
      const double computes = static_cast<double>(stages * micro_batches);
      EXPECT_NEAR(time.operators, 3 * computes, 1e-9);
      EXPECT_NEAR(time.bubble / (time.bubble + time.operators), waits / (computes + waits), 1e-9)
          << ranks << " ranks, " << micro_batches << " micro-batches";
      EXPECT_LE(planner.least_seconds(layout), time.seconds() + 1e-9);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, LayoutTimeOfPipelines,
                         testing::Values(BubbleCase{"gpipe"}, BubbleCase{"1f1b"},
                                         BubbleCase{"interleaved", 2}, BubbleCase{"interleaved", 4}),
                         [](const auto& test) {
                           return (test.param.schedule == "1f1b" ? "OneForward" : test.param.schedule) +
                                  std::to_string(test.param.stages_per_rank);
                         });

// More micro-batches than are simulated take as long as the simulation of all of them, also with unequal
// parts.
TEST(LayoutTime, OfManyMicroBatchesIsThatOfTheWholeSchedule) {
  PlannedModel model = model_of_work(8);
  model.kinds.push_back(model.kinds[0]);
  model.kinds[1].forward.flops.whole = 2.5;
  model.kinds[1].backward.flops.whole = 4;
  model.parts = {0, 1, 0, 0, 0, 1, 1, 0};
  for (const std::string schedule : {"gpipe", "1f1b", "zb-h1", "zb-v"}) {
    const int64_t stages = schedule == "zb-v" ? 2 : 1;
    constexpr int64_t kMicroBatches = 100;
    const LayoutPlanner planner(model, slow_devices(4), {.global_batch = kMicroBatches});
    const PlannedLayout layout{
        .pipeline = 4, .micro_batches = kMicroBatches, .schedule = schedule, .stages_per_rank = stages};
    const auto made = make_pipeline_schedule(schedule, 4, kMicroBatches);
    PipelineTimes times{.stages = std::vector<PipelineStageTimes>(made.rank_of_stage.size())};
    const size_t each = 8 / times.stages.size();
    for (size_t part = 0; part < 8; ++part) {
      const auto& kind = model.part(part);
      auto& stage = times.stages[part / each];
      stage.forward += kind.forward.flops.whole;
      stage.backward_inputs += kind.backward.flops.whole / 2;
      stage.backward_weights += kind.backward.flops.whole / 2;
    }
    const double whole = simulate_pipeline(made, times).seconds();
    EXPECT_NEAR(planner.time(layout).seconds(), whole, 0.01 * whole) << schedule;
  }
}

/// Buckets that leave one by one as they become ready, each when the one before has ended.
double end_of_sums(double backward, int buckets, double each) {
  double end = 0;
  for (int i = 1; i <= buckets; ++i) end = std::max(end, backward * i / buckets) + each;
  return end;
}

TEST(LayoutTime, HidesSumsBehindBackward) {
  constexpr double kElements = 1000;
  PlannedModel model = model_of_work(10);
  for (auto& kind : model.kinds) kind.elements.whole = kElements / 10;
  for (const double rate : {1e9, 2000.0, 400.0, 100.0, 10.0}) {
    for (const int64_t replicas : {2, 4, 8}) {
      PlannedCluster cluster = slow_devices(replicas);
      cluster.devices_per_machine = replicas;
      cluster.within = {.latency_seconds = 0.01, .bytes_per_second = rate};
      const LayoutPlanner planner(model, cluster, {.global_batch = replicas, .bucket_bytes = 400});
      const double each = ring_all_reduce_seconds(static_cast<int>(replicas), 400, cluster.within);
      const double expected = end_of_sums(20, 10, each) - 20;
      EXPECT_NEAR(planner.time({.data = replicas}).sums, expected, 1e-9)
          << rate << ", " << replicas << " replicas";
    }
  }
}

// Nothing is hidden where communication takes the device itself.
TEST(LayoutTime, HidesNothingOnDevicesThatDoBoth) {
  PlannedModel model = model_of_work(10);
  PlannedCluster cluster = slow_devices(2);
  cluster.devices_per_machine = 2;
  cluster.within = {.latency_seconds = 0, .bytes_per_second = 40};
  cluster.taken_share = 1;
  const LayoutPlanner planner(model, cluster, {.global_batch = 2});
  EXPECT_NEAR(planner.time({.data = 2}).sums, 1,
              1e-9);  // 10 elements of 4 bytes, which each of 2 ranks sends once
}

// By hand: 4 ranks along shard on 2 machines of 2. A gather of 80 bytes is half a sum: within a machine
// (1/2 of 80 bytes), then between them over half of the machine's link.
TEST(LayoutTime, GathersOverTheLinksThatTheAxisUses) {
  PlannedModel model = model_of_work(1);
  model.kinds[0].elements.whole = 20;
  PlannedCluster cluster = slow_devices(4);
  cluster.devices_per_machine = 2;
  cluster.within = {.latency_seconds = 1, .bytes_per_second = 10};
  cluster.between = {.latency_seconds = 2, .bytes_per_second = 5};
  const LayoutPlanner planner(model, cluster, {.global_batch = 4});
  const double within = 1 + 40.0 / 10;
  const double between = 2 + 40.0 / 5;
  EXPECT_NEAR(planner.time({.shard = 4, .stage = 1}).gathers, within + between, 1e-9);
  // Along a shorter axis that lies within a machine.
  EXPECT_NEAR(planner.time({.data = 2, .shard = 2, .stage = 1}).gathers, within, 1e-9);
}

TEST(LayoutTime, AddsOperatorsMovedBytesAndTheOptimizer) {
  PlannedModel model = model_of_work(1);
  model.kinds[0].elements.whole = 100;
  model.kinds[0].forward.bytes.whole = 30;
  model.kinds[0].backward.fixed_bytes.whole = 7;
  model.kinds[0].forward.operators = 4;
  PlannedCluster cluster = slow_devices(1);
  cluster.bytes_per_second = 10;
  cluster.operator_seconds = 0.5;
  const LayoutPlanner planner(model, cluster, {.global_batch = 6});
  const auto time = planner.time({.micro_batches = 2});
  // The gradients of the second micro-batch are added to those of the first: two are read, one is written.
  EXPECT_NEAR(time.operators, 2 * (3 * 3 + 3 * 3.0 + 0.7 + 4 * 0.5) + 3 * 100 * 4 / 10.0, 1e-9);
  EXPECT_NEAR(time.optimizer, 100 * 4 * (3 + 2 * 2) / 10.0, 1e-9);
  // Input of 6 examples at 0.1 a second takes a minute.
  cluster.examples_per_second = 0.1;
  const LayoutPlanner waiting(model, cluster, {.global_batch = 6});
  EXPECT_NEAR(waiting.time({.micro_batches = 2}).seconds(), 60, std::max(0.0, time.seconds() - 60) + 1e-6);
}

// By hand, on 2 ranks of a pipeline with 2 replicas each: 1F1B of one micro-batch takes 1 + 1 forward and 2 +
// 2 backward. The last rank is done after 4 seconds and the first one after 6, and only then sums.
TEST(LayoutTime, SumsTheGradientsOfAStageAfterItsLastBackward) {
  PlannedModel model = model_of_work(2);
  model.kinds.push_back(model.kinds[0]);
  model.parts = {0, 1};
  for (auto& kind : model.kinds) kind.stage_cost = 1;
  PlannedCluster cluster = slow_devices(4);
  cluster.devices_per_machine = 4;
  cluster.within = {.latency_seconds = 0, .bytes_per_second = 4};
  const PlannedLayout layout{.data = 2, .pipeline = 2};
  // The last rank's 10 elements of 4 bytes take 10 s, and the first one's take 1 s.
  model.kinds[0].elements.whole = 1;
  model.kinds[1].elements.whole = 10;
  const LayoutPlanner large_last(model, cluster, {.global_batch = 2});
  EXPECT_NEAR(large_last.time(layout).seconds(), 4 + 10, 1e-6);
  EXPECT_NEAR(large_last.time(layout).sums, 10, 1e-6);
  std::swap(model.kinds[0].elements, model.kinds[1].elements);
  const LayoutPlanner large_first(model, cluster, {.global_batch = 2});
  EXPECT_NEAR(large_first.time(layout).seconds(), 6 + 10, 1e-6);
  for (const auto* planner : {&large_last, &large_first})
    EXPECT_LE(planner->least_seconds(layout), planner->time(layout).seconds() + 1e-9);
}

// 100 elements of 4 bytes are read and written once, if replicas sum them.
TEST(LayoutTime, CopiesGradientsToBuckets) {
  PlannedModel model = model_of_work(1);
  model.kinds[0].elements.whole = 100;
  PlannedCluster cluster = slow_devices(2);
  cluster.bytes_per_second = 10;
  const LayoutPlanner replicas(model, cluster, {.global_batch = 2});
  EXPECT_NEAR(replicas.time({.data = 2}).sums, 2 * 400 / 10.0, 1e-9);
  const auto units = replicas.time({.shard = 2, .stage = 3});
  EXPECT_NEAR(units.sums, 0, 1e-9);
  EXPECT_NEAR(units.operators, 3 + 2 * 400 / 10.0, 1e-9);
  cluster.devices = 1;
  const LayoutPlanner alone(model, cluster, {.global_batch = 2});
  EXPECT_NEAR(alone.time({}).sums, 0, 1e-9);
}

/// Seconds that a device waits if it gathers one unit ahead, and a link carries one thing at a time, step by
/// step.
double waits_of_units(int units, double forward, double backward, double gather) {
  double now = gather;  // of the first one
  for (int i = 0; i < units; ++i) {
    const double begin = now;
    now += forward;
    if (i + 1 < units) now = std::max(now, begin + gather);
  }
  double link = now;
  for (int i = units - 1; i >= 0; --i) {
    double gathered = now;
    if (i > 0) gathered = link = std::max(link, now) + gather;
    now += backward;
    link = std::max(link, now) + gather;
    now = i > 0 ? std::max(now, gathered) : std::max(now, link);
  }
  return now - units * (forward + backward);
}

TEST(LayoutTime, HidesUnitsAsFarAsTheLinkCarriesThem) {
  PlannedModel model = model_of_work(6);
  for (auto& kind : model.kinds) kind.elements.whole = 20;
  for (const double rate : {1e6, 80.0, 40.0, 25.0, 20.0, 8.0}) {
    PlannedCluster cluster = slow_devices(2);
    cluster.devices_per_machine = 2;
    cluster.within = {.latency_seconds = 0.01, .bytes_per_second = rate};
    const LayoutPlanner planner(model, cluster, {.global_batch = 2});
    const double gather = 0.01 + 40 / rate;  // half of 80 bytes
    EXPECT_NEAR(planner.time({.shard = 2, .stage = 3}).units, waits_of_units(6, 1, 2, gather), 1e-9) << rate;
  }
}

// Products of causal attention that kernels skip take no time.
TEST(LayoutTime, LeavesOutWhatIsSkipped) {
  PlannedModel model = model_of_work(1);
  model.kinds[0].forward.flops.whole = 5;
  model.kinds[0].forward.skipped_flops.whole = 2;
  const LayoutPlanner planner(model, slow_devices(1), {.global_batch = 3});
  EXPECT_NEAR(planner.time({}).operators, 3 * (5 - 2 + 2), 1e-9);
}

// Ranks with shards of the sequence sum up vectors in backward, one by one.
TEST(LayoutTime, AddsSumsOfVectorsWithShardsOfTheSequence) {
  PlannedModel model = model_of_work(1);
  model.cut_sizes = {8};
  model.sequence_length = 8;
  model.kinds[0].vector_sums = 3;
  model.kinds[0].vector_elements = 5;
  PlannedCluster cluster = slow_devices(2);
  cluster.devices_per_machine = 2;
  cluster.within = {.latency_seconds = 0.25, .bytes_per_second = 10};
  const LayoutPlanner planner(model, cluster, {.global_batch = 1});
  EXPECT_NEAR(planner.time({.tensor = 2}).cut_layers, 0, 1e-9);
  EXPECT_NEAR(planner.time({.tensor = 2, .has_sequence_shards = true}).cut_layers, 3 * (2 * 0.25 + 20 / 10.0),
              1e-9);
}

TEST(LayoutTime, ComputesAgainWithRecomputation) {
  PlannedModel model = model_of_work(5);
  model.kinds[0].is_recomputed = true;
  const LayoutPlanner planner(model, slow_devices(1), {.global_batch = 4});
  const auto time = planner.time({.micro_batches = 4, .recomputes = true});
  EXPECT_NEAR(time.operators, 4 * 5 * 3, 1e-9);
  EXPECT_NEAR(time.recomputation, 4 * 5 * 1, 1e-9);
}

}  // namespace
}  // namespace lockstep
