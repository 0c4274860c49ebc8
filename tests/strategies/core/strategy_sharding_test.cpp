// Strategies whose optimizers' state is sharded. Oracle: the same training without sharding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>

#include "lockstep/runtime/gradients/optimizer_group.h"
#include "lockstep/strategies/core/strategy.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/tanh_net.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class ShardedStrategy : public Strategy {
 public:
  ShardedStrategy(int replicas, int stage) : Strategy(configure(replicas, stage)) {}

 private:
  static StrategyConfig configure(int replicas, int stage) {
    StrategyConfig config;
    config.name = "ShardedStrategy";
    config.devices = parse_devices(cpu_devices(replicas));
    config.intra_op_threads = 1;
    config.seed = 1;
    config.buckets = {.first_bucket_bytes = 64, .bucket_bytes = 128};
    config.sharding = stage;
    return config;
  }
};

/// A training of TanhNet by one optimizer.
template <typename Optimizer, typename Options>
class NetTraining {
 public:
  NetTraining(int replicas, int stage, const Options& options) : strategy(replicas, stage) {
    torch::manual_seed(1);
    model.emplace(strategy.scope([](ReplicaContext&) { return TanhNet(); }));
    optimizer.emplace(strategy.scope(
        [&](ReplicaContext& replica) { return Optimizer((*model)[replica]->parameters(), options); }));
  }

  static void backward(ReplicaContext& replica, TanhNet& own, Optimizer& of_replica, int step) {
    of_replica.zero_grad();
    auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(10 * step + replica.replica_id()));
    own(torch::randn({4, 6}, generator, torch::kDouble)).square().sum().backward();
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

  ShardedStrategy strategy;
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
    for (int step = 0; step < 20; ++step) {
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

TEST(StrategySharding, SeveralOptimizersAndAWeightThatIsUsedTwiceTrainAsWithout) {
  const auto train = [](int stage) {
    ShardedStrategy strategy(2, stage);
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
      auto x = torch::full({2, 6}, 0.3 + replica.replica_id(), torch::kDouble);
      for (int use = 0; use < 2; ++use) x = torch::tanh(own->first(x)).matmul(own->first->weight);
      own(x).square().sum().backward();
      replica.apply_gradients(second);
      replica.apply_gradients(first);
    };
    for (int i = 0; i < 20; ++i) strategy.run(step, model, sgd, adamw);
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
  ShardedStrategy strategy(2, 1);
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
