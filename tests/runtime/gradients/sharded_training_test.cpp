// Trainings with sharded state and gradients. Oracle: one torch::optim optimizer on the sum of all ranks'
// losses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "lockstep/runtime/precision/grad_scaler.h"
#include "lockstep/tests/runtime/gradients/sharded_training.h"
#include "lockstep/tests/support/sanitizer.h"

namespace lockstep {
namespace {

namespace optim = torch::optim;

constexpr int kSteps = compared_steps(20);
constexpr int kStepsWithChanges = few_if_sanitized(20, 10);  // before steps 5, 7 and 9

std::unique_ptr<optim::Optimizer> sgd(const Parameters& parameters) {
  return std::make_unique<optim::SGD>(parameters, optim::SGDOptions(0.01).momentum(0.9).weight_decay(0.1));
}
std::unique_ptr<optim::Optimizer> adam(const Parameters& parameters) {
  return std::make_unique<optim::Adam>(parameters, optim::AdamOptions(0.02).amsgrad(true));
}
/// Two groups with their own rates and weight decays; parameters of both lie in the same buckets.
std::unique_ptr<optim::Optimizer> adamw(const Parameters& parameters) {
  std::vector<optim::OptimizerParamGroup> groups;
  for (const size_t first : {0, 1}) {
    Parameters members;
    for (size_t i = first; i < parameters.size(); i += 2) members.push_back(parameters[i]);
    groups.emplace_back(members,
                        std::make_unique<optim::AdamWOptions>(
                            optim::AdamWOptions(first == 0 ? 0.02 : 0.005).weight_decay(first * 0.3)));
  }
  return std::make_unique<optim::AdamW>(groups, optim::AdamWOptions(0.02));
}
std::unique_ptr<optim::Optimizer> adagrad(const Parameters& parameters) {
  return std::make_unique<optim::Adagrad>(parameters,
                                          optim::AdagradOptions(0.05).initial_accumulator_value(0.5));
}
std::unique_ptr<optim::Optimizer> rmsprop(const Parameters& parameters) {
  return std::make_unique<optim::RMSprop>(parameters, optim::RMSpropOptions(0.01).momentum(0.5));
}

struct NamedOptimizer {
  const char* name;
  std::unique_ptr<optim::Optimizer> (*make)(const Parameters&);
};

/// One optimizer on the sum of the ranks' losses.
class OneDevice {
 public:
  explicit OneDevice(const MakeOptimizer& make)
      : parameters_(odd_parameters()), optimizer_(make(parameters_)) {}

  Parameters& parameters() { return parameters_; }
  optim::Optimizer& optimizer() { return *optimizer_; }
  void step(const std::function<at::Tensor()>& loss, std::optional<double> clip_norm = std::nullopt) {
    optimizer_->zero_grad();
    loss().backward();
    if (clip_norm) norm = torch::nn::utils::clip_grad_norm_(parameters_, *clip_norm);
    optimizer_->step();
  }
  double norm = 0;

 private:
  Parameters parameters_;
  std::unique_ptr<optim::Optimizer> optimizer_;
};

at::Tensor loss_of_all(const Parameters& parameters, int step, int ranks,
                       const std::vector<size_t>& unused = {}) {
  at::Tensor loss = torch::zeros({}, torch::kDouble);
  for (int rank = 0; rank < ranks; ++rank) loss = loss + odd_loss(parameters, step, rank, unused);
  return loss;
}

class ShardedOver : public testing::TestWithParam<ShardedLayout> {};
INSTANTIATE_TEST_SUITE_P(Layouts, ShardedOver,
                         testing::Values(ShardedLayout{1, 1, 1}, ShardedLayout{1, 2, 1},
                                         ShardedLayout{1, 4, 1}, ShardedLayout{1, 2, 2},
                                         ShardedLayout{2, 1, 1}, ShardedLayout{2, 2, 1},
                                         ShardedLayout{2, 4, 1}, ShardedLayout{2, 2, 2}),
                         [](const auto& info) { return info.param.name(); });

TEST_P(ShardedOver, TrainsAsOneDeviceWithEachElementwiseOptimizer) {
  for (const auto& [name, make] :
       {NamedOptimizer{"SGD", sgd}, NamedOptimizer{"Adam", adam}, NamedOptimizer{"AdamW", adamw},
        NamedOptimizer{"Adagrad", adagrad}, NamedOptimizer{"RMSprop", rmsprop}}) {
    SCOPED_TRACE(name);
    ShardedTraining training(GetParam(), odd_parameters, make, kShardedBuckets);
    OneDevice single(make);
    for (int step = 0; step < kSteps; ++step) {
      single.step([&] { return loss_of_all(single.parameters(), step, training.ranks()); });
      training.run([&](int rank) {
        training.optimizer(rank).zero_grad();
        odd_loss(training.parameters(rank), step, rank).backward();
        training.apply(rank);
      });
    }
    expect_parameters(training, single.parameters());
    EXPECT_EQ(training.group().finished_steps(),
              std::vector<int64_t>(static_cast<size_t>(training.ranks()), kSteps));
  }
}

// Hybrid sharding adds the ranks' gradients up in another order.
class ShardedOverAll : public testing::TestWithParam<ShardedLayout> {};
INSTANTIATE_TEST_SUITE_P(Layouts, ShardedOverAll,
                         testing::Values(ShardedLayout{1, 1, 1}, ShardedLayout{1, 2, 1},
                                         ShardedLayout{1, 4, 1}, ShardedLayout{2, 1, 1},
                                         ShardedLayout{2, 2, 1}, ShardedLayout{2, 4, 1}),
                         [](const auto& info) { return info.param.name(); });

TEST_P(ShardedOverAll, GivesTheBitsOfTheSameTrainingWithoutSharding) {
  ShardedTraining whole({0, GetParam().parts, 1}, odd_parameters, sgd, kShardedBuckets);
  ShardedTraining sharded(GetParam(), odd_parameters, sgd, kShardedBuckets);
  for (int step = 0; step < 5; ++step) {
    for (auto* training : {&whole, &sharded}) {
      training->run([&](int rank) {
        training->optimizer(rank).zero_grad();
        odd_loss(training->parameters(rank), step, rank).backward();
        training->apply(rank);
      });
    }
  }
  for (size_t i = 0; i < whole.parameters(0).size(); ++i)
    EXPECT_TRUE(torch::equal(whole.parameters(0)[i], sharded.parameters(0)[i])) << "parameter " << i;
}

TEST_P(ShardedOver, ClipsByTheNormOfAllElementsOnceEach) {
  ShardedTraining training(GetParam(), odd_parameters, adam, kShardedBuckets);
  OneDevice single(adam);
  for (int step = 0; step < kSteps; ++step) {
    const double limit = step % 2 == 0 ? 5.0 : 1e6;  // the second changes nothing
    single.step([&] { return loss_of_all(single.parameters(), step, training.ranks()); }, limit);
    training.run([&](int rank) {
      training.optimizer(rank).zero_grad();
      odd_loss(training.parameters(rank), step, rank).backward();
      const at::Tensor norm = training.apply(rank, {.clip_norm = limit});
      EXPECT_EQ(norm.scalar_type(), torch::kDouble);
      EXPECT_NEAR(norm.item<double>(), single.norm, 1e-12 * single.norm);
    });
  }
  expect_parameters(training, single.parameters());
}

TEST_P(ShardedOver, UnusedAndFrozenParametersKeepTheirValuesAndStates) {
  ShardedTraining training(GetParam(), odd_parameters, adamw, kShardedBuckets);
  OneDevice single(adamw);
  const auto freeze = [](Parameters& parameters, bool frozen) {
    for (const size_t i : {0, 4}) parameters[i].set_requires_grad(!frozen);
  };
  for (int step = 0; step < kStepsWithChanges; ++step) {
    // Nobody uses 5 and 8 in some steps. Only the first rank uses 1, and the last has an empty shard.
    const std::vector<size_t> unused = step % 3 == 1 ? std::vector<size_t>{5, 8} : std::vector<size_t>{};
    const auto unused_on = [&](int rank) {
      auto indices = unused;
      if (rank > 0) indices.push_back(1);
      return indices;
    };
    const auto has_batch = [&](int rank) { return rank == 0 || rank < training.ranks() - 1; };
    if (step == 5 || step == 9) {
      freeze(single.parameters(), step == 5);
      for (int rank = 0; rank < training.ranks(); ++rank) freeze(training.parameters(rank), step == 5);
    }
    single.step([&] {
      at::Tensor loss = torch::zeros({}, torch::kDouble);
      for (int rank = 0; rank < training.ranks(); ++rank)
        if (has_batch(rank)) loss = loss + odd_loss(single.parameters(), step, rank, unused_on(rank));
      return loss;
    });
    training.run([&](int rank) {
      training.optimizer(rank).zero_grad();
      if (has_batch(rank)) odd_loss(training.parameters(rank), step, rank, unused_on(rank)).backward();
      training.apply(rank);
    });
  }
  expect_parameters(training, single.parameters());
}

TEST_P(ShardedOver, ParametersThatAreUnfrozenLaterJoinWithStateOfTheirOwn) {
  const auto make = [] {
    auto parameters = odd_parameters();
    for (const size_t i : {0, 1, 4}) parameters[i].set_requires_grad(false);
    return parameters;
  };
  ShardedTraining training(GetParam(), make, adam, kShardedBuckets);
  OneDevice single(adam);
  for (const size_t i : {0, 1, 4}) single.parameters()[i].set_requires_grad(false);
  for (int step = 0; step < kStepsWithChanges; ++step) {
    if (step == 7) {
      for (const size_t i : {1, 4}) {
        single.parameters()[i].set_requires_grad(true);
        for (int rank = 0; rank < training.ranks(); ++rank)
          training.parameters(rank)[i].set_requires_grad(true);
      }
    }
    single.step([&] { return loss_of_all(single.parameters(), step, training.ranks()); });
    training.run([&](int rank) {
      training.optimizer(rank).zero_grad();
      odd_loss(training.parameters(rank), step, rank).backward();
      training.apply(rank);
    });
  }
  expect_parameters(training, single.parameters());
}

TEST_P(ShardedOver, HeldBackwardsAddUpBeforeTheyAreSummed) {
  ShardedTraining training(GetParam(), odd_parameters, sgd, kShardedBuckets);
  OneDevice single(sgd);
  for (int step = 0; step < kSteps; ++step) {
    single.step([&] {
      return loss_of_all(single.parameters(), 3 * step, training.ranks()) +
             loss_of_all(single.parameters(), 3 * step + 1, training.ranks()) +
             loss_of_all(single.parameters(), 3 * step + 2, training.ranks(), {2, 5});
    });
    training.run([&](int rank) {
      training.optimizer(rank).zero_grad();
      training.hold(rank, true);
      odd_loss(training.parameters(rank), 3 * step, rank).backward();
      odd_loss(training.parameters(rank), 3 * step + 1, rank).backward();
      training.hold(rank, false);
      odd_loss(training.parameters(rank), 3 * step + 2, rank, {2, 5}).backward();
      training.apply(rank);
    });
  }
  expect_parameters(training, single.parameters());
}

TEST_P(ShardedOver, AScalerSkipsTheStepOnAllRanksIfOneSlicesSumIsInfinite) {
  ShardedTraining training(GetParam(), odd_parameters, adam, kShardedBuckets);
  OneDevice single(adam);
  std::vector<GradScaler> scalers;
  for (int rank = 0; rank < training.ranks(); ++rank)
    scalers.emplace_back(torch::kCPU, GradScalerOptions{.init_scale = 1024, .growth_interval = 1000});
  double scale = 1024;
  for (int step = 0; step < kStepsWithChanges; ++step) {
    const bool overflows = step % 5 == 2;
    const auto element = static_cast<int64_t>(step) * 40 % 1200;  // in another slice each time
    if (!overflows)
      single.step([&] { return loss_of_all(single.parameters(), step, training.ranks()); }, 50.0);
    training.run([&](int rank) {
      training.optimizer(rank).zero_grad();
      auto& scaler = scalers[static_cast<size_t>(rank)];
      const Parameters& own = training.parameters(rank);
      at::Tensor loss = scaler.scale(odd_loss(own, step, rank));
      if (overflows && rank == training.ranks() - 1) {
        const double infinity = std::numeric_limits<double>::infinity();
        loss = loss + own[5].flatten().narrow(0, element, 1).sum() * infinity;
      }
      loss.backward();
      training.apply(rank, {.clip_norm = 50.0, .scaler = &scaler});
      scaler.update();
    });
    if (overflows) scale /= 2;
    for (const auto& scaler : scalers) EXPECT_EQ(scaler.get_scale(), scale) << "step " << step;
  }
  // Scales are powers of two, so that unscaled gradients are exact.
  expect_parameters(training, single.parameters());
}

TEST_P(ShardedOver, FollowsASchedulesRates) {
  ShardedTraining training(GetParam(), odd_parameters, adamw, kShardedBuckets);
  OneDevice single(adamw);
  const auto set_rates = [](optim::Optimizer& optimizer, int step) {
    for (auto& group : optimizer.param_groups()) group.options().set_lr(0.05 / (1 + step));
  };
  for (int step = 0; step < kSteps; ++step) {
    set_rates(single.optimizer(), step);
    single.step([&] { return loss_of_all(single.parameters(), step, training.ranks()); });
    training.run([&](int rank) {
      set_rates(training.optimizer(rank), step);
      training.optimizer(rank).zero_grad();
      odd_loss(training.parameters(rank), step, rank).backward();
      training.apply(rank);
    });
  }
  expect_parameters(training, single.parameters());
}

}  // namespace
}  // namespace lockstep
