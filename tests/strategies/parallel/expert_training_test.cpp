// Trainings of models whose ranks have different experts. Oracle: the same training on one device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/tests/strategies/parallel/expert_net.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/sanitizer.h"
#include "lockstep/tests/support/worker_strategies.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

constexpr int kSteps = compared_steps(20);
constexpr double kClose = 1e-12;

StrategyOptions options_of(const Mesh& mesh) {
  return {.intra_op_threads = 1,
          .seed = 3,
          .mesh = mesh,
          .buckets = {.first_bucket_bytes = 64, .bucket_bytes = 256},
          .timeout = std::chrono::minutes(2)};
}

/// The axis "expert", or else the last one.
std::string axis_of_experts(const Mesh& mesh) {
  return mesh.has("expert") ? "expert" : mesh.axes().back().name;
}

struct HowToTrain {
  std::optional<double> capacity_factor = std::nullopt;
  bool recomputes = false;
  bool has_units = false;
};

void expect_training(Strategy& strategy, const ExpertRun& whole, const HowToTrain& how = {}) {
  auto model = strategy.scope([&](ReplicaContext& replica) {
    const auto& axis = replica.axis(axis_of_experts(strategy.mesh()));
    return ExpertNet(ExpertNetParts{.experts = &axis,
                                    .shards = how.has_units ? &axis : nullptr,
                                    .capacity_factor = how.capacity_factor,
                                    .recomputes = how.recomputes});
  });
  auto adam = strategy.scope([&](ReplicaContext& replica) { return parallel_adam(model[replica]); });
  for (size_t step = 0; step < whole.steps.size(); ++step) {
    const auto results = strategy.run(expert_step, model, adam, static_cast<int>(step));
    std::vector<double> losses;
    for (const auto& result : results.local_values()) losses.push_back(result.loss);
    const double loss = strategy.reduce(ReduceOp::kSum, PerReplica<double>(losses, results.devices()));
    const auto& expected = whole.steps[step];
    ASSERT_NEAR(loss, expected.loss, kClose) << "step " << step;
    for (const auto& result : results.local_values()) {
      ASSERT_NEAR(result.norm.item<double>(), expected.norm.item<double>(), kClose) << "step " << step;
      ASSERT_TRUE(torch::equal(result.load, expected.load)) << result.load << expected.load;
      ASSERT_TRUE(torch::equal(result.dropped, expected.dropped)) << result.dropped << expected.dropped;
    }
  }
  const auto differences =
      strategy.run([&](ReplicaContext&, ExpertNet& net) { return difference_of_slices(net, whole); }, model);
  for (const double difference : differences.local_values()) EXPECT_LE(difference, kClose);
}

/// The oracle of all meshes.
const ExpertRun& whole_training() {
  static const ExpertRun run = experts_on_one_device(kSteps);
  return run;
}

const ExpertRun& whole_dropping_training() {
  static const ExpertRun run = experts_on_one_device(kSteps, 0.5);
  return run;
}

class ExpertTraining : public ::testing::TestWithParam<std::string> {
 protected:
  Mesh mesh() const { return parse_mesh(GetParam()); }
};

TEST_P(ExpertTraining, EqualsThatOnOneDevice) {
  MirroredStrategy strategy(cpu_devices(mesh().size()), options_of(mesh()));
  EXPECT_EQ(strategy.num_replicas_in_sync(), mesh().num_replicas());
  expect_training(strategy, whole_training());
}

TEST_P(ExpertTraining, EqualsThatOnOneDeviceWithRecomputation) {
  MirroredStrategy strategy(cpu_devices(mesh().size()), options_of(mesh()));
  expect_training(strategy, whole_training(), {.recomputes = true});
}

TEST_P(ExpertTraining, DropsTheTokensThatOneDeviceDrops) {
  const auto& whole = whole_dropping_training();
  for (const auto& step : whole.steps) ASSERT_GT(step.dropped.sum().item<int64_t>(), 0);
  MirroredStrategy strategy(cpu_devices(mesh().size()), options_of(mesh()));
  expect_training(strategy, whole, {.capacity_factor = 0.5});
}

TEST_P(ExpertTraining, EqualsThatOnOneDeviceOverWorkers) {
  const auto& whole = whole_training();
  const int ranks = mesh().size();
  for (const auto& layout :
       {std::vector<int>(static_cast<size_t>(ranks), 1), std::vector<int>{ranks / 2, ranks - ranks / 2}}) {
    SCOPED_TRACE(::testing::Message() << layout.size() << " workers");
    expect_no_worker_failed(run_strategies(
        layout, [&](MultiWorkerMirroredStrategy& strategy) { expect_training(strategy, whole); },
        [&](int, WorkerSetUp& set_up) { set_up.options = options_of(mesh()); }));
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, ExpertTraining,
                         ::testing::Values("expert=2", "expert=4", "data=2,expert=2", "expert=2,data=2",
                                           "data=4"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return c == '=' || c == ','; }, '_');
                           return name;
                         });

/// All parameters but the experts are divided in stages 1 and 2.
class ExpertTrainingWithShardedState : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
};

TEST_P(ExpertTrainingWithShardedState, EqualsThatOnOneDevice) {
  const auto& [mesh_text, axis] = GetParam();
  const auto mesh = parse_mesh(mesh_text);
  for (const int stage : {1, 2}) {
    SCOPED_TRACE(::testing::Message() << "stage " << stage);
    auto options = options_of(mesh);
    options.sharding = {.stage = stage, .axis = axis};
    MirroredStrategy strategy(cpu_devices(mesh.size()), options);
    expect_training(strategy, whole_training(), {.recomputes = stage == 2});
  }
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, ExpertTrainingWithShardedState,
    ::testing::Values(std::tuple("expert=2", "expert"), std::tuple("data=2,expert=2", "expert"),
                      std::tuple("data=2,expert=2", "data"), std::tuple("expert=2,data=2", "data"),
                      std::tuple("data=4", "data"), std::tuple("data=1,expert=4", "data")),
    [](const auto& info) {
      std::string name = std::get<0>(info.param) + "_over_" + std::get<1>(info.param);
      std::replace_if(
          name.begin(), name.end(), [](char c) { return c == '=' || c == ','; }, '_');
      return name;
    });

TEST(ExpertTrainingTest, ShardedStateOverWorkersEqualsOneDevice) {
  const auto& whole = whole_training();
  auto options = options_of({{"data", 2}, {"expert", 2}});
  options.sharding = {.stage = 2, .axis = "data"};
  expect_no_worker_failed(run_strategies(
      {2, 2}, [&](MultiWorkerMirroredStrategy& strategy) { expect_training(strategy, whole); },
      [&](int, WorkerSetUp& set_up) { set_up.options = options; }));
}

class ExpertTrainingInUnits : public ::testing::TestWithParam<std::string> {};

TEST_P(ExpertTrainingInUnits, EqualsThatOnOneDevice) {
  const auto mesh = parse_mesh(GetParam());
  const auto& whole = whole_training();
  for (const bool recomputes : {false, true}) {
    auto options = options_of(mesh);
    options.sharding = {.stage = 3, .axis = axis_of_experts(mesh)};
    MirroredStrategy strategy(cpu_devices(mesh.size()), options);
    expect_training(strategy, whole, {.recomputes = recomputes, .has_units = true});
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, ExpertTrainingInUnits,
                         ::testing::Values("expert=2", "data=2,expert=2", "data=4"), [](const auto& info) {
                           std::string name = info.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return c == '=' || c == ','; }, '_');
                           return name;
                         });

TEST(ExpertTrainingTest, ARankThatThrowsReleasesTheOthersAndTheNextStepIsExact) {
  const Mesh mesh{{"data", 2}, {"expert", 2}};
  const auto whole = experts_on_one_device(3);
  MirroredStrategy strategy(cpu_devices(4), options_of(mesh));
  auto model = strategy.scope(
      [&](ReplicaContext& replica) { return ExpertNet(ExpertNetParts{.experts = &replica.axis("expert")}); });
  auto adam = strategy.scope([&](ReplicaContext& replica) { return parallel_adam(model[replica]); });
  const auto failing = [](ReplicaContext& replica, ExpertNet& net, torch::optim::AdamW& optimizer) {
    optimizer.zero_grad();
    if (replica.rank() == 3) throw std::runtime_error("rank 3 breaks");
    const auto [ids, targets] = examples_of_step(0, 2);
    net->forward(ids, targets).sum().backward();
    replica.apply_gradients(optimizer);
  };
  for (int step = 0; step < 3; ++step) {
    const auto message = message_of<std::runtime_error>([&] { strategy.run(failing, model, adam); });
    EXPECT_THAT(message, HasSubstr("rank 3 breaks"));
    strategy.run(expert_step, model, adam, step);
  }
  const auto differences =
      strategy.run([&](ReplicaContext&, ExpertNet& net) { return difference_of_slices(net, whole); }, model);
  for (const double difference : differences.local_values()) EXPECT_LE(difference, kClose);
}

TEST(ExpertTrainingTest, AUnitKeepsTheMarksOfItsExperts) {
  MirroredStrategy strategy(cpu_devices(2), options_of({{"expert", 2}}));
  auto model = strategy.scope([&](ReplicaContext& replica) {
    const auto& axis = replica.axis("expert");
    ExpertNet net(ExpertNetParts{.experts = &axis, .shards = &axis});
    net->to(torch::kFloat);
    return net;
  });
  auto& net = model.local_values()[1];
  const auto up = net->named_parameters()["block.experts.up.weight"];
  EXPECT_EQ(up.scalar_type(), torch::kFloat);
  ASSERT_TRUE(is_slice(up));
  EXPECT_EQ(sharded_parameter_of(up)->offset, up.numel());
  EXPECT_FALSE(net->unit->gathers(up));
  EXPECT_TRUE(net->unit->gathers(net->named_parameters()["block.experts.router.weight"]));
}

TEST(ExpertTrainingTest, UnitsAlongAnotherAxisThanTheExpertsAreRefused) {
  auto options = options_of({{"expert", 2}, {"data", 2}});
  options.sharding = {.stage = 3, .axis = "data"};
  MirroredStrategy strategy(cpu_devices(4), options);
  auto model = strategy.scope(
      [&](ReplicaContext& replica) { return ExpertNet(ExpertNetParts{.experts = &replica.axis("expert")}); });
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                strategy.scope([&](ReplicaContext& replica) { return parallel_adam(model[replica]); });
              }),
              HasSubstr("expected shards along the axis data of stage 3, but got an optimizer of some along "
                        "expert"));
}

}  // namespace
}  // namespace lockstep
