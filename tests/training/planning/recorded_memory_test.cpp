#include "lockstep/training/planning/recorded_memory.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <algorithm>
#include <string>
#include <vector>

#include "lockstep/training/layouts/layout_search.h"
#include "lockstep/training/planning/module_recorder.h"
#include "lockstep/training/planning/planned_record.h"

namespace lockstep {
namespace {

RecordedStep recorded_layers() {
  at::set_num_threads(1);
  ModuleRecorder recorder;
  torch::nn::Sequential layers;
  for (int i = 0; i < 4; ++i) layers->push_back(torch::nn::Linear(128 + 64 * i, 192 + 64 * i));
  return recorder.record(
      *layers,
      [](int64_t examples) {
        return std::vector{torch::rand({examples, 128})};
      },
      [&](const std::vector<torch::Tensor>& batch) {
        auto x = batch[0];
        for (size_t i = 0; i < layers->size(); ++i) {
          const auto layer = [&](const auto& y) {
            return layers[i]->as<torch::nn::Linear>()->forward(y).tanh();
          };
          x = recorder.call(std::to_string(i), layer, x);
        }
        return x.square().mean();
      });
}

PlannedCluster cluster_for(int64_t devices, bool shares_units) {
  return {.devices = devices, .devices_per_machine = devices, .shares_units = shares_units};
}

TEST(RecordedMemory, IsThatOfThePlanOfTheRecord) {
  const auto record = recorded_layers();
  const PlannedTraining training{.global_batch = 96, .optimizer_states = 1};
  const std::vector<double> costs{4, 1, 1, 1};
  for (const bool shares_units : {false, true}) {
    const auto memory = recorded_memory(record, cluster_for(4, shares_units), training,
                                        {.optimizer = PlannedOptimizer::kMomentum, .stage_costs = costs});
    for (int stage = 0; stage <= 3; ++stage) {
      PlannedLayout layout{.data = 2, .shard = 2, .stage = stage, .micro_batches = 3};
      const auto plan = plan_memory(record, {.replicas = stage == 0 ? 4 : 2,
                                             .copies = stage == 0 ? 1 : 2,
                                             .replicas_per_process = shares_units ? 0 : 1,
                                             .stage = stage,
                                             .examples = 8,
                                             .micro_batches = 3,
                                             .optimizer = PlannedOptimizer::kMomentum});
      const auto ranks = memory(layout);
      ASSERT_EQ(ranks.size(), 1U);
      EXPECT_EQ(ranks[0].peak(), static_cast<double>(plan.peak())) << "stage " << stage;
      EXPECT_EQ(ranks[0].optimizer_state, static_cast<double>(plan.optimizer_state));
      EXPECT_EQ(ranks[0].activations, static_cast<double>(plan.activations));
    }
  }
}

TEST(RecordedMemory, HasEachRankOfAPipeline) {
  const auto record = recorded_layers();
  const PlannedTraining training{.global_batch = 64};
  const std::vector<double> costs{4, 1, 1, 1};
  const auto memory = recorded_memory(record, cluster_for(2, true), training, {.stage_costs = costs});
  const auto ranks = memory({.pipeline = 2, .micro_batches = 4, .schedule = "gpipe"});
  TrainingLayout expected{.examples = 16, .micro_batches = 4};
  expected.pipeline = {.ranks = 2, .schedule = "gpipe", .costs = costs};
  const auto plans = plan_memory_of_ranks(record, expected);
  ASSERT_EQ(ranks.size(), plans.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    EXPECT_EQ(ranks[rank].peak(), static_cast<double>(plans[rank].peak()));
}

// The search estimates first, and follows the allocations of layouts near the limit.
TEST(RecordedMemory, DecidesWhatFits) {
  const auto record = recorded_layers();
  const PlannedTraining training{.global_batch = 4096};
  auto cluster = cluster_for(2, true);
  const auto all = [&] {
    return LayoutPlanner(planned_model(record), cluster, training,
                         recorded_memory(record, cluster, training));
  };
  std::vector<double> peaks;
  const auto collect = [&](const LayoutPlanner& planner) {
    peaks.clear();
    for_each_layout(planner, {.with_recomputation = false},
                    [&](const PlannedLayout& layout) { peaks.push_back(planner.memory(layout).peak()); });
    std::sort(peaks.begin(), peaks.end());
  };
  collect(all());
  // A limit between two layouts, in the middle.
  const size_t middle = peaks.size() / 2;
  cluster.memory_bytes = (peaks[middle - 1] + peaks[middle]) / 2;
  const auto search = search_layouts(all(), {.choices = {.with_recomputation = false}, .most_ranked = 1000});
  const auto fit =
      std::count_if(peaks.begin(), peaks.end(), [&](double peak) { return peak <= cluster.memory_bytes; });
  EXPECT_EQ(search.ranked.size(), static_cast<size_t>(fit));
  for (const auto& choice : search.ranked) EXPECT_LE(choice.memory.peak(), cluster.memory_bytes);
}

}  // namespace
}  // namespace lockstep
