// Trainings of models that are cut into stages. Oracle: the same training on one device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>

#include <algorithm>
#include <string>
#include <vector>

#include "lockstep/tests/strategies/parallel/pipeline_cases.h"
#include "lockstep/tests/support/sanitizer.h"
#include "lockstep/tests/support/worker_strategies.h"

namespace lockstep {
namespace {

constexpr double kClose = 1e-12;
constexpr int64_t kExamples = 11;  // which neither replicas nor micro-batches divide
constexpr int kSteps = compared_steps(20);

struct StagedLayout {
  std::string mesh;
  std::string schedule;
  int micro_batches = 4;
  int stage = 0;  ///< of ZeRO
  bool recomputes = false;
};

std::string name_of(const StagedLayout& layout) {
  std::string name = layout.schedule + "_" + layout.mesh + "_of_" + std::to_string(layout.micro_batches);
  if (layout.stage > 0) name += "_zero_" + std::to_string(layout.stage);
  if (layout.recomputes) name += "_recomputing";
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
  return name;
}

StrategyOptions options_of(const StagedLayout& layout) {
  const Mesh mesh = parse_mesh(layout.mesh);
  StrategyOptions options{.intra_op_threads = 1,
                          .seed = 3,
                          .mesh = mesh,
                          .buckets = {.first_bucket_bytes = 64, .bucket_bytes = 256}};
  if (layout.stage > 0) options.sharding = {.stage = layout.stage, .axis = "data"};
  return options;
}

StagedNet make_staged(ReplicaContext& replica, const StagedLayout& layout, double dropout = 0) {
  const Mesh mesh = parse_mesh(layout.mesh);
  StagedNetOptions options{.dropout = dropout,
                           .recomputes = layout.recomputes,
                           .pipeline = {.schedule = layout.schedule, .micro_batches = layout.micro_batches},
                           .stages = &replica.axis("pipeline")};
  if (mesh.has("tensor")) options.parts = &replica.axis("tensor");
  if (layout.stage == 3) options.units = along(replica.axis("data"));
  return StagedNet(options);
}

ParallelStepResult staged_step(ReplicaContext& replica, StagedNet& net, torch::optim::AdamW& optimizer,
                               int step) {
  optimizer.zero_grad();
  const auto [ids, targets] = uneven_examples(replica, step, kExamples);
  const auto result =
      net->stages->forward_backward(replica, ids, targets, {.losses = StagedNetImpl::losses_of});
  TORCH_CHECK(result.losses.sizes() == targets.sizes());
  TORCH_CHECK(result.outputs.size(0) == ids.size(0) && result.outputs.size(-1) == kVocabulary);
  return {result.losses.sum().item<double>() / kExamples,
          replica.apply_gradients(optimizer, {.clip_norm = 0.5})};
}

void expect_staged_training(Strategy& strategy, const StagedLayout& layout, const ParallelRun& whole) {
  auto model = strategy.scope([&](ReplicaContext& replica) { return make_staged(replica, layout); });
  auto adam = strategy.scope([&](ReplicaContext& replica) { return parallel_adam(model[replica]); });
  for (int step = 0; step < static_cast<int>(whole.losses.size()); ++step) {
    const auto results = strategy.run(staged_step, model, adam, step);
    const auto at = static_cast<size_t>(step);
    std::vector<double> losses;
    for (const auto& result : results.local_values()) losses.push_back(result.loss);
    const double loss = strategy.reduce(ReduceOp::kSum, PerReplica<double>(losses, results.devices()));
    ASSERT_NEAR(loss, whole.losses[at], kClose) << "step " << step;
    for (const auto& result : results.local_values())
      ASSERT_NEAR(result.norm.item<double>(), whole.norms[at], kClose) << "step " << step;
  }
  const auto differences =
      strategy.run([&](ReplicaContext&, StagedNet& net) { return difference_of_parts(net, whole); }, model);
  for (const double difference : differences.local_values()) EXPECT_LE(difference, kClose);
  // A forward alone computes the same.
  const auto errors = strategy.run(
      [&](ReplicaContext&, StagedNet& net) {
        StagedNet oracle{StagedNetOptions{}};
        const torch::NoGradGuard no_grad;
        for (auto& item : oracle->named_parameters()) {
          for (const auto& [name, value] : whole.parameters)
            if (name == item.key()) item.value().copy_(value);
        }
        net->eval();
        const auto ids = examples_of_step(0, 7).first;
        const auto logits = net->stages->forward(ids);
        net->train();
        return (logits - oracle->logits(ids)).abs().max().item<double>();
      },
      model);
  for (const double error : errors.local_values()) EXPECT_LE(error, 1e-11);
}

const ParallelRun& unstaged() {
  static const ParallelRun run = trained_unstaged(kSteps, kExamples);
  return run;
}

class PipelineTraining : public testing::TestWithParam<StagedLayout> {};

TEST_P(PipelineTraining, EqualsThatOnOneDevice) {
  const auto& layout = GetParam();
  MirroredStrategy strategy(cpu_devices(parse_mesh(layout.mesh).size()), options_of(layout));
  expect_staged_training(strategy, layout, unstaged());
}

TEST_P(PipelineTraining, EqualsThatOnOneDeviceOverWorkers) {
  const auto& layout = GetParam();
  const int ranks = parse_mesh(layout.mesh).size();
  if (ranks < 2) GTEST_SKIP() << "one rank is one worker";
  expect_no_worker_failed(run_strategies(
      {ranks / 2, ranks - ranks / 2},
      [&](MultiWorkerMirroredStrategy& strategy) { expect_staged_training(strategy, layout, unstaged()); },
      [&](int, WorkerSetUp& set_up) { set_up.options = options_of(layout); }));
}

std::vector<StagedLayout> staged_layouts() {
  std::vector<StagedLayout> layouts;
  for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"}) {
    for (const char* mesh : {"pipeline=1", "pipeline=2", "pipeline=4"}) layouts.push_back({mesh, schedule});
  }
  for (const char* schedule : {"1f1b", "zb-v"}) {
    layouts.push_back({"pipeline=2,data=2", schedule});
    layouts.push_back({"data=2,pipeline=2", schedule});
    layouts.push_back({"pipeline=2,tensor=2", schedule});
    layouts.push_back({"pipeline=2,data=2,tensor=2", schedule});
    for (const int stage : {1, 2, 3}) layouts.push_back({"data=2,pipeline=2", schedule, 4, stage});
  }
  layouts.push_back({"data=2,pipeline=2,tensor=2", "1f1b", 4, 1});
  layouts.push_back({"data=2,pipeline=2,tensor=2", "zb-h1", 4, 3});
  layouts.push_back({"pipeline=2", "1f1b", 1});
  layouts.push_back({"pipeline=2", "zb-h1", 16});  // more micro-batches than examples
  layouts.push_back({"pipeline=2", "zb-v", 4, 0, /*recomputes=*/true});
  layouts.push_back({"pipeline=2,data=2", "1f1b", 3, 0, /*recomputes=*/true});
  return layouts;
}

INSTANTIATE_TEST_SUITE_P(Layouts, PipelineTraining, testing::ValuesIn(staged_layouts()),
                         [](const auto& info) { return name_of(info.param); });

TEST(PipelineTrainingTest, RandomNumbersDependOnNeitherStagesNorSchedules) {
  constexpr int kRandomSteps = compared_steps(4);
  std::vector<std::vector<double>> all;
  for (const StagedLayout& layout : std::vector<StagedLayout>{{"pipeline=1", "gpipe"},
                                                              {"pipeline=2", "1f1b"},
                                                              {"pipeline=4", "zb-h1"},
                                                              {"pipeline=2", "zb-v", 4, 0, true},
                                                              {"pipeline=2,tensor=2", "interleaved"}}) {
    MirroredStrategy strategy(cpu_devices(parse_mesh(layout.mesh).size()), options_of(layout));
    auto model = strategy.scope([&](ReplicaContext& replica) { return make_staged(replica, layout, 0.3); });
    auto adam = strategy.scope([&](ReplicaContext& replica) { return parallel_adam(model[replica]); });
    auto& losses = all.emplace_back();
    for (int step = 0; step < kRandomSteps; ++step) {
      const auto results = strategy.run(staged_step, model, adam, step);
      losses.push_back(results[0].loss);
    }
  }
  for (size_t step = 0; step < kRandomSteps; ++step) {
    for (const auto& losses : all) EXPECT_NEAR(losses[step], all[0][step], kClose);
    EXPECT_GT(std::abs(all[0][step] - unstaged().losses[step]), 1e-3);
  }
}

TEST(PipelineTrainingTest, RanksKeepTheParametersOfTheirStagesAlone) {
  const StagedLayout layout{"pipeline=4", "1f1b"};
  MirroredStrategy strategy(cpu_devices(4), options_of(layout));
  auto model = strategy.scope([&](ReplicaContext& replica) { return make_staged(replica, layout); });
  std::map<std::string, int> holders;
  int64_t elements = 0;
  for (const auto& net : model.local_values()) {
    for (const auto& item : net->named_parameters()) {
      EXPECT_EQ(whole_sizes(item.value()).size(), static_cast<size_t>(item.value().dim())) << item.key();
      holders[item.key()] += item.value().numel() > 0 ? 1 : 0;
      elements += item.value().numel();
    }
  }
  int64_t expected = 0;
  for (const auto& [name, value] : unstaged().parameters) {
    EXPECT_EQ(holders.at(name), name == "table.weight" ? 2 : 1) << name;
    expected += value.numel() * (name == "table.weight" ? 2 : 1);
  }
  EXPECT_EQ(elements, expected);
}

}  // namespace
}  // namespace lockstep
