// Strategies whose optimizers' state is sharded. Oracle: the same training without sharding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>

#include "lockstep/runtime/collectives/gradient_compression.h"
#include "lockstep/runtime/gradients/optimizer_group.h"
#include "lockstep/strategies/core/strategy.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/sanitizer.h"
#include "lockstep/tests/support/tanh_net.h"
#include "lockstep/tests/support/worker_strategies.h"
#include "lockstep/tests/support/worker_training.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int kShardingSteps = compared_steps(20);

MirroredStrategy strategy_of(int replicas, const ShardingOptions& sharding, const Mesh& mesh = {}) {
  return MirroredStrategy(cpu_devices(replicas),
                          {.intra_op_threads = 1,
                           .seed = 1,
                           .mesh = mesh,
                           .sharding = sharding,
                           .buckets = {.first_bucket_bytes = 64, .bucket_bytes = 128}});
}

/// A training of TanhNet by one optimizer.
template <typename Optimizer, typename Options>
class NetTraining {
 public:
  NetTraining(int replicas, int stage, const Options& options, const Mesh& mesh = {})
      : strategy(strategy_of(replicas, {.stage = stage}, mesh)) {
    torch::manual_seed(1);
    model.emplace(strategy.scope([](ReplicaContext&) { return TanhNet(); }));
    optimizer.emplace(strategy.scope(
        [&](ReplicaContext& replica) { return Optimizer((*model)[replica]->parameters(), options); }));
  }

  static void backward(ReplicaContext& replica, TanhNet& own, Optimizer& of_replica, int step) {
    of_replica.zero_grad();
    auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(10 * step + replica.replica_id()));
    own(torch::randn({4, 6}, generator, torch::kDouble).to(replica.device())).square().sum().backward();
  }

  double step(int number) {
    const auto norms = strategy.run(
        [number](ReplicaContext& replica, TanhNet& own, Optimizer& of_replica) {
          backward(replica, own, of_replica, number);
          return replica.apply_gradients(of_replica, {.clip_norm = 2.0});
        },
        *model, *optimizer);
    return norms[0].template item<double>();
  }

  std::vector<torch::Tensor> parameters(size_t replica) {
    return model->local_values()[replica]->parameters();
  }

  MirroredStrategy strategy;
  std::optional<Mirrored<TanhNet>> model;
  std::optional<Mirrored<Optimizer>> optimizer;
};

using Sgd = torch::optim::SGD;
using SgdTraining = NetTraining<Sgd, torch::optim::SGDOptions>;
const torch::optim::SGDOptions kMomentum = torch::optim::SGDOptions(0.1).momentum(0.9);

TEST(StrategySharding, TrainsAsWithoutInEachStage) {
  for (const int replicas : {1, 2, 3}) {
    using Adamw = NetTraining<torch::optim::AdamW, torch::optim::AdamWOptions>;
    const auto options = torch::optim::AdamWOptions(0.02).weight_decay(0.1);
    Adamw whole(replicas, 0, options);
    Adamw stage_1(replicas, 1, options);
    Adamw stage_2(replicas, 2, options);
    for (int step = 0; step < kShardingSteps; ++step) {
      const double norm = whole.step(step);
      EXPECT_NEAR(stage_1.step(step), norm, 1e-12 * norm);
      EXPECT_NEAR(stage_2.step(step), norm, 1e-12 * norm);
    }
    for (size_t replica = 0; replica < static_cast<size_t>(replicas); ++replica) {
      EXPECT_LT(largest_difference(stage_1.parameters(replica), whole.parameters(0)), 1e-12);
      EXPECT_LT(largest_difference(stage_2.parameters(replica), whole.parameters(0)), 1e-12);
      EXPECT_EQ(largest_difference(stage_1.parameters(replica), stage_1.parameters(0)), 0);
    }
  }
}

TEST(StrategySharding, TrainsAsWithoutOverOneAxisOfAMesh) {
  using Adamw = NetTraining<torch::optim::AdamW, torch::optim::AdamWOptions>;
  const auto options = torch::optim::AdamWOptions(0.02).weight_decay(0.1);
  Adamw whole(4, 0, options);
  for (int step = 0; step < kShardingSteps; ++step) whole.step(step);
  for (const Mesh& mesh : {Mesh{{"data", 2}, {"shard", 2}}, Mesh{{"shard", 2}, {"data", 2}},
                           Mesh{{"data", 4}, {"shard", 1}}, Mesh{{"data", 1}, {"shard", 4}}}) {
    for (const int stage : {1, 2}) {
      SCOPED_TRACE(mesh.str() + " at stage " + std::to_string(stage));
      Adamw sharded(4, stage, options, mesh);
      EXPECT_THAT(sharded.strategy.describe(), HasSubstr(c10::str("sharding stage ", stage, " over shard")));
      for (int step = 0; step < kShardingSteps; ++step) sharded.step(step);
      for (size_t replica = 0; replica < 4; ++replica) {
        EXPECT_LT(largest_difference(sharded.parameters(replica), whole.parameters(0)), 1e-12);
        EXPECT_EQ(largest_difference(sharded.parameters(replica), sharded.parameters(0)), 0);
      }
    }
  }
}

TEST(StrategySharding, TrainsAsWithoutOverWorkers) {
  SgdTraining whole(4, 0, kMomentum);
  const std::vector<torch::Tensor> start = values_of(whole.parameters(0));
  for (int step = 0; step < 5; ++step) whole.step(step);
  const auto expected = whole.parameters(0);
  for (const auto& sharded :
       {std::pair(Mesh(), 1), std::pair(Mesh(), 2), std::pair(Mesh{{"data", 2}, {"shard", 2}}, 2),
        std::pair(Mesh{{"shard", 2}, {"data", 2}}, 1)}) {
    const Mesh& mesh = sharded.first;
    const int stage = sharded.second;
    for (const auto& layout : {std::vector{2, 2}, std::vector{1, 3}}) {
      SCOPED_TRACE(mesh.str() + " at stage " + std::to_string(stage));
      expect_no_worker_failed(run_strategies(
          layout,
          [&](MultiWorkerMirroredStrategy& strategy) {
            auto model = strategy.scope([&](ReplicaContext&) { return tanh_net_of(start); });
            auto optimizer = strategy.scope(
                [&](ReplicaContext& replica) { return Sgd(model[replica]->parameters(), kMomentum); });
            for (int step = 0; step < 5; ++step) {
              strategy.run(
                  [step](ReplicaContext& replica, TanhNet& own, Sgd& of_replica) {
                    SgdTraining::backward(replica, own, of_replica, step);
                    replica.apply_gradients(of_replica, {.clip_norm = 2.0});
                  },
                  model, optimizer);
            }
            for (const auto& own : model.local_values())
              EXPECT_LT(largest_difference(own->parameters(), expected), 1e-12);
          },
          [&](int, WorkerSetUp& set_up) {
            set_up.options.mesh = mesh;
            set_up.options.sharding.stage = stage;
            set_up.options.buckets = {.first_bucket_bytes = 64, .bucket_bytes = 128};
          }));
    }
  }
}

TEST(StrategySharding, RefusesWhatItCannotDivide) {
  const auto error_of = [](const StrategyOptions& options) {
    return message_of<InvalidArgument>([&] { MirroredStrategy(cpu_devices(2), options); });
  };
  EXPECT_THAT(error_of({.sharding = {.stage = 4}}), HasSubstr("expected a stage from 0 to 3, but got 4"));
  EXPECT_THAT(error_of({.sharding = {.axis = "data"}}), HasSubstr("a stage from 1 to 3 with the axis data"));
  EXPECT_THAT(error_of({.sharding = {.stage = 1, .axis = "shard"}}),
              HasSubstr("an axis of the mesh data=2, but got 'shard'"));
  StrategyOptions compressed{.sharding = {.stage = 1}};
  compressed.communication.gradient_compression = make_gradient_compression("float16");
  EXPECT_THAT(error_of(compressed), HasSubstr("sharding: expected no gradient compression"));
}

TEST(StrategySharding, SeveralOptimizersAndAWeightThatIsUsedTwiceTrainAsWithout) {
  const auto train = [](int stage) {
    auto strategy = strategy_of(2, {.stage = stage});
    torch::manual_seed(1);
    auto model = strategy.scope([](ReplicaContext&) { return TanhNet(); });
    auto sgd = strategy.scope(
        [&](ReplicaContext& replica) { return Sgd(model[replica]->first->parameters(), kMomentum); });
    auto adamw = strategy.scope([&](ReplicaContext& replica) {
      return torch::optim::AdamW(model[replica]->second->parameters(), torch::optim::AdamWOptions(0.02));
    });
    const auto step = [](ReplicaContext& replica, TanhNet& own, Sgd& first, torch::optim::AdamW& second) {
      first.zero_grad();
      second.zero_grad();
      auto x = torch::full({2, 6}, 0.3 + replica.replica_id(), torch::kDouble).to(replica.device());
      for (int use = 0; use < 2; ++use) x = torch::tanh(own->first(x)).matmul(own->first->weight);
      own(x).square().sum().backward();
      replica.apply_gradients(second);
      replica.apply_gradients(first);
    };
    for (int i = 0; i < kShardingSteps; ++i) strategy.run(step, model, sgd, adamw);
    return values_of(model.primary()->parameters());
  };
  const auto expected = train(0);
  for (const int stage : {1, 2}) EXPECT_LT(largest_difference(train(stage), expected), 1e-12);
}

TEST(StrategySharding, ReducedGradientsAreWholeInStage1AndRefusedInStage2) {
  const auto look = [](ReplicaContext& replica, TanhNet& own, Sgd& optimizer) {
    SgdTraining::backward(replica, own, optimizer, 0);
    replica.reduce_gradients(optimizer);
    return own->first->weight.grad().square().sum();
  };
  SgdTraining whole(2, 0, kMomentum);
  SgdTraining stage_1(2, 1, kMomentum);
  const auto expected = whole.strategy.run(look, *whole.model, *whole.optimizer);
  const auto given = stage_1.strategy.run(look, *stage_1.model, *stage_1.optimizer);
  for (const size_t replica : {0, 1})
    EXPECT_EQ(given.local_values()[replica].item<double>(), expected.local_values()[0].item<double>());
  SgdTraining stage_2(2, 2, kMomentum);
  try {
    stage_2.strategy.run(look, *stage_2.model, *stage_2.optimizer);
    FAIL() << "expected an error";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("'first.weight'"), HasSubstr("stage 2"), HasSubstr("stage 1")));
  }
}

TEST(StrategySharding, ARunThatFailsBeforeTheStepCanBeRepeated) {
  SgdTraining training(2, 2, kMomentum);
  SgdTraining whole(2, 0, kMomentum);
  for (int step = 0; step < 3; ++step) {
    EXPECT_THROW(training.strategy.run(
                     [step](ReplicaContext& replica, TanhNet& own, Sgd& optimizer) {
                       SgdTraining::backward(replica, own, optimizer, 50);
                       if (replica.replica_id() == step % 2) throw std::domain_error("planted");
                       replica.apply_gradients(optimizer);
                     },
                     *training.model, *training.optimizer),
                 std::domain_error);
    training.strategy.restore_consistency(*training.model, *training.optimizer);
    training.step(step);
    whole.step(step);
  }
  EXPECT_LT(largest_difference(training.parameters(1), whole.parameters(0)), 1e-12);
}

TEST(StrategySharding, AStepThatWasCutOffCannotBeRepairedAndTheErrorSaysHowToGoOn) {
  SgdTraining training(2, 1, kMomentum);
  training.step(0);
  EXPECT_THROW(training.strategy.run(
                   [](ReplicaContext& replica, TanhNet& own, Sgd& optimizer) {
                     SgdTraining::backward(replica, own, optimizer, 1);
                     replica.reduce_gradients(optimizer);
                     if (replica.replica_id() == 1) throw std::domain_error("planted");
                     replica.apply_gradients(optimizer);
                   },
                   *training.model, *training.optimizer),
               std::domain_error);
  for (int call = 0; call < 2; ++call) {
    try {
      if (call == 0) training.step(1);
      if (call == 1) training.strategy.restore_consistency(*training.model, *training.optimizer);
      FAIL() << "expected an error";
    } catch (const InconsistentReplicas& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("1, 1 finished steps"), HasSubstr("from a checkpoint")));
    }
  }
}

TEST(StrategySharding, RefusesAnOptimizerThatIsNotElementwiseInScope) {
  auto strategy = strategy_of(2, {.stage = 1});
  auto model = strategy.scope([](ReplicaContext&) { return TanhNet(); });
  try {
    strategy.scope([&](ReplicaContext& replica) {
      return std::make_shared<torch::optim::LBFGS>(model[replica]->parameters());
    });
    FAIL() << "expected an error";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("LBFGS"), HasSubstr("elementwise")));
  }
}

}  // namespace
}  // namespace lockstep
