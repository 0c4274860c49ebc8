// Trainings of models that are cut along an axis, and sharded over another one. Oracle: the same training of
// the whole model on data replicas.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/runtime/precision/grad_scaler.h"
#include "lockstep/tests/strategies/parallel/units_net.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/sanitizer.h"
#include "lockstep/tests/support/worker_strategies.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int kShardedSteps = compared_steps(20);
constexpr double kShardedTolerance = 1e-12;

StrategyOptions sharded_options_of(const Mesh& mesh, int stage) {
  return {.intra_op_threads = 1,
          .seed = 3,
          .mesh = mesh,
          .sharding = {.stage = stage},
          .buckets = {.first_bucket_bytes = 64, .bucket_bytes = 256},
          .timeout = std::chrono::minutes(2)};
}

/// Trains the model under the strategy, and expects what WholeNet became.
template <typename Net>
void expect_sharded_training_of(Strategy& strategy, Mirrored<Net>& model, const ParallelRun& whole) {
  auto adam = strategy.scope([&](ReplicaContext& replica) { return parallel_adam(model[replica]); });
  for (int step = 0; step < kShardedSteps; ++step) {
    const auto results = strategy.run(parallel_step<Net>, model, adam, step);
    std::vector<double> losses;
    for (const auto& result : results.local_values()) losses.push_back(result.loss);
    const auto at = static_cast<size_t>(step);
    const double loss = strategy.reduce(ReduceOp::kSum, PerReplica<double>(losses, results.devices()));
    ASSERT_NEAR(loss, whole.losses[at], kShardedTolerance) << "step " << step;
    for (const auto& result : results.local_values())
      ASSERT_NEAR(result.norm.template item<double>(), whole.norms[at], kShardedTolerance) << "step " << step;
  }
  const auto differences =
      strategy.run([&](ReplicaContext&, Net& net) { return difference_of_parts(net, whole); }, model);
  for (const double difference : differences.local_values()) EXPECT_LE(difference, kShardedTolerance);
}

/// With units in stage 3, and without otherwise.
void expect_sharded_training(Strategy& strategy, const ParallelRun& whole) {
  if (strategy.sharding().stage == 3) {
    auto model = strategy.scope(
        [&](ReplicaContext& replica) { return make_units_net(replica, strategy.sharding().axis); });
    expect_sharded_training_of(strategy, model, whole);
    return;
  }
  auto model = strategy.scope([](ReplicaContext& replica) { return ParallelNet(replica.axis("tensor")); });
  expect_sharded_training_of(strategy, model, whole);
}

using ShardedParallelCase = std::tuple<std::string, int>;

class ShardedParallelTest : public testing::TestWithParam<ShardedParallelCase> {
 protected:
  static Mesh mesh() { return parse_mesh(std::get<0>(GetParam())); }
  static StrategyOptions options() { return sharded_options_of(mesh(), std::get<1>(GetParam())); }
  static const ParallelRun& whole() {
    static std::map<int, ParallelRun> runs;  // by the number of replicas
    const int replicas = mesh().num_replicas();
    if (!runs.contains(replicas)) runs.emplace(replicas, trained_whole(replicas, kShardedSteps));
    return runs.at(replicas);
  }
};

TEST_P(ShardedParallelTest, TrainsAsTheWholeModel) {
  MirroredStrategy strategy(cpu_devices(mesh().size()), options());
  expect_sharded_training(strategy, whole());
}

TEST_P(ShardedParallelTest, TrainsAsTheWholeModelOverWorkers) {
  const auto& expected = whole();
  const int ranks = mesh().size();
  for (const auto& layout :
       {std::vector<int>(static_cast<size_t>(ranks), 1), std::vector<int>{ranks / 2, ranks - ranks / 2}}) {
    SCOPED_TRACE(testing::Message() << layout.size() << " workers");
    expect_no_worker_failed(run_strategies(
        layout, [&](MultiWorkerMirroredStrategy& strategy) { expect_sharded_training(strategy, expected); },
        [&](int, WorkerSetUp& set_up) { set_up.options = options(); }));
  }
}

INSTANTIATE_TEST_SUITE_P(MeshesAndStages, ShardedParallelTest,
                         testing::Combine(testing::Values("shard=2,tensor=2", "tensor=2,shard=2",
                                                          "data=2,tensor=2", "data=2,shard=2,tensor=2"),
                                          testing::Values(1, 2, 3)),
                         [](const auto& info) {
                           std::string name = std::get<0>(info.param);
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return c == '=' || c == ','; }, '_');
                           return name + "_stage_" + std::to_string(std::get<1>(info.param));
                         });

TEST(ShardedParallelStrategyTest, UnitsNeedNoOptionOfTheStrategy) {
  const Mesh mesh{{"data", 2}, {"tensor", 2}};
  MirroredStrategy strategy(cpu_devices(4), sharded_options_of(mesh, 0));
  auto model = strategy.scope([](ReplicaContext& replica) { return make_units_net(replica, "data"); });
  expect_sharded_training_of(strategy, model, trained_whole(2, kShardedSteps));
}

TEST(ShardedParallelStrategyTest, AnAxisOfOneRankShardsNothing) {
  const auto whole = trained_whole(1, kShardedSteps);
  for (const int stage : {1, 2, 3}) {
    SCOPED_TRACE(stage);
    MirroredStrategy strategy(cpu_devices(2), sharded_options_of({{"data", 1}, {"tensor", 2}}, stage));
    expect_sharded_training(strategy, whole);
  }
}

TEST(ShardedParallelStrategyTest, EachRankHoldsItsShareOfItsRows) {
  for (const int stage : {1, 2, 3}) {
    SCOPED_TRACE(stage);
    MirroredStrategy strategy(cpu_devices(4), sharded_options_of({{"shard", 2}, {"tensor", 2}}, stage));
    const auto count = [&](auto& model) {
      auto adam = strategy.scope([&](ReplicaContext& replica) { return parallel_adam(model[replica]); });
      strategy.run(parallel_step<std::remove_cvref_t<decltype(model.primary())>>, model, adam, 0);
      for (auto& own : adam.local_values()) {
        int64_t elements = 0;
        for (const auto& [key, state] : own.state())
          elements += static_cast<torch::optim::AdamWParamState&>(*state).exp_avg().numel();
        // All but the bias of down and the norm are cut. Slices end at cache lines.
        const int64_t cut = kVocabulary * kFeatures + (kFeatures + 1) * kHidden + kHidden * kFeatures +
                            (kFeatures + 1) * kVocabulary;
        EXPECT_LE(elements, cut / 4 + 3 * kFeatures + 5 * 8);
      }
    };
    if (stage == 3) {
      auto model = strategy.scope([](ReplicaContext& replica) { return make_units_net(replica, "shard"); });
      count(model);
    } else {
      auto model =
          strategy.scope([](ReplicaContext& replica) { return ParallelNet(replica.axis("tensor")); });
      count(model);
    }
  }
}

TEST(ShardedParallelStrategyTest, GradScalerSkipsAStepOnAllRanksIfOneElementIsNotFinite) {
  for (const int stage : {1, 2}) {
    SCOPED_TRACE(stage);
    MirroredStrategy strategy(cpu_devices(4), sharded_options_of({{"shard", 2}, {"tensor", 2}}, stage));
    auto model = strategy.scope([](ReplicaContext& replica) { return ParallelNet(replica.axis("tensor")); });
    auto adam = strategy.scope([&](ReplicaContext& replica) { return parallel_adam(model[replica]); });
    auto scaler =
        strategy.scope([](ReplicaContext&) { return GradScaler(torch::kCPU, {.init_scale = 1024}); });
    const auto step = [](ReplicaContext& replica, ParallelNet& net, torch::optim::AdamW& optimizer,
                         GradScaler& own, bool is_broken) {
      optimizer.zero_grad();
      const auto before = net->norm->weight.detach().clone();
      const auto [ids, targets] = own_examples(replica, 0);
      unsigned hook = 0;
      if (replica.rank() == 3) {
        hook = net->up->bias.register_hook([is_broken](const torch::Tensor& gradient) {
          auto changed = gradient.clone();
          if (is_broken) changed[0] = std::numeric_limits<double>::infinity();
          return changed;
        });
      }
      own.scale(net->forward(ids, targets).mean()).backward();
      if (replica.rank() == 3) net->up->bias.remove_hook(hook);
      replica.apply_gradients(optimizer, {.scaler = &own});
      own.update();
      return std::pair(torch::equal(before, net->norm->weight.detach()), own.state().scale);
    };
    for (const bool is_broken : {true, false}) {
      const auto results = strategy.run(step, model, adam, scaler, is_broken);
      for (const auto& [is_same, scale] : results.local_values()) {
        EXPECT_EQ(is_same, is_broken);
        EXPECT_EQ(scale, 512);
      }
    }
  }
}

TEST(ShardedParallelStrategyTest, ARankThatThrowsReleasesTheOthersAndTheNextStepIsExact) {
  const auto whole = trained_whole(2, 3);
  for (const int stage : {1, 2, 3}) {
    SCOPED_TRACE(stage);
    MirroredStrategy strategy(cpu_devices(4), sharded_options_of({{"shard", 2}, {"tensor", 2}}, stage));
    const auto train = [&](auto& model) {
      using Net = std::remove_cvref_t<decltype(model.primary())>;
      auto adam = strategy.scope([&](ReplicaContext& replica) { return parallel_adam(model[replica]); });
      const auto failing = [](ReplicaContext& replica, Net& net, torch::optim::AdamW& optimizer) {
        optimizer.zero_grad();
        const auto [ids, targets] = own_examples(replica, 0);
        if (replica.rank() == 3) throw std::runtime_error("rank 3 breaks");
        net->forward(ids, targets).sum().backward();
        replica.apply_gradients(optimizer);
      };
      for (int step = 0; step < 3; ++step) {
        const auto message = message_of<std::runtime_error>([&] { strategy.run(failing, model, adam); });
        EXPECT_THAT(message, HasSubstr("rank 3 breaks"));
        strategy.run(parallel_step<Net>, model, adam, step);
      }
      for (auto& net : model.local_values()) EXPECT_LE(difference_of_parts(net, whole), kShardedTolerance);
    };
    if (stage == 3) {
      auto model = strategy.scope([](ReplicaContext& replica) { return make_units_net(replica, "shard"); });
      train(model);
    } else {
      auto model =
          strategy.scope([](ReplicaContext& replica) { return ParallelNet(replica.axis("tensor")); });
      train(model);
    }
  }
}

TEST(ShardedParallelStrategyTest, ModelAxesDoNotShard) {
  const auto refusal_of = [](const Mesh& mesh, const std::string& axis) {
    auto options = sharded_options_of(mesh, 2);
    options.sharding.axis = axis;
    return message_of<InvalidArgument>([&] { MirroredStrategy(cpu_devices(mesh.size()), options); });
  };
  EXPECT_THAT(
      refusal_of({{"data", 2}, {"tensor", 2}}, "tensor"),
      AllOf(HasSubstr("sharding"), HasSubstr("such as data, but got tensor, along which models are cut")));
  EXPECT_THAT(refusal_of({{"tensor", 2}}, ""), HasSubstr("but got tensor=2: data=1,tensor=2 would do"));
  EXPECT_THAT(refusal_of({{"data", 2}}, "shard"), HasSubstr("expected an axis of the mesh"));
  MirroredStrategy strategy(cpu_devices(2), sharded_options_of({{"tensor", 2}}, 0));
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                strategy.scope([](ReplicaContext& replica) { return make_units_net(replica, "tensor"); });
              }),
              AllOf(HasSubstr("[Sharded]"), HasSubstr("along tensor, along which layers are cut")));
}

TEST(ShardedParallelStrategyTest, TheUsualAxisIsShardOrTheLastThatCutsTheBatch) {
  const auto axis_of = [](const char* mesh) {
    MirroredStrategy strategy(cpu_devices(parse_mesh(mesh).size()), sharded_options_of(parse_mesh(mesh), 1));
    return strategy.sharding().axis;
  };
  EXPECT_EQ(axis_of("shard=2,data=1,tensor=2"), "shard");
  EXPECT_EQ(axis_of("other=1,data=2,context=1,tensor=2"), "data");
  EXPECT_EQ(axis_of("data=2,other=2"), "other");
  EXPECT_EQ(axis_of("context=2,tensor=1"), "context");
}

}  // namespace
}  // namespace lockstep
