#include "lockstep/training/callbacks/learning_rate_finder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <memory>
#include <stdexcept>
#include <vector>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/worker_strategies.h"
#include "lockstep/tests/training/averaging/averaged_fit.h"
#include "lockstep/training/state/training_state.h"

namespace lockstep {
namespace {

using testing::AveragedFit;
using ::testing::HasSubstr;

/// One weight w with the loss w * w / 2, whatever the examples: a step by SGD multiplies w by 1 - rate.
struct ParabolaImpl : torch::nn::Module {
  ParabolaImpl() { w = register_parameter("w", torch::ones({1}, torch::kDouble)); }
  torch::Tensor forward(const torch::Tensor& x) { return w.expand({x.size(0)}); }
  torch::Tensor w;
};
TORCH_MODULE(Parabola);

Trainer<Parabola> parabola_trainer(Strategy& strategy) {
  return {strategy, [](ReplicaContext&) { return Parabola(); },
          [](std::vector<torch::Tensor> parameters) {
            return torch::optim::SGD(std::move(parameters), torch::optim::SGDOptions(0.125));
          },
          [](const torch::Tensor& w, const torch::Tensor&) { return w * w / 2; }};
}

DistributedDataset<Example> batches_of(Strategy& strategy) {
  return strategy.distribute_dataset(
      detail::TensorPairs(torch::zeros({12, 1}, torch::kDouble), torch::zeros({12}, torch::kLong)),
      {.global_batch_size = 4});
}

/// Returns the sweep that the formula gives.
LearningRateSweep expected_sweep(const LearningRateFinderOptions& options) {
  LearningRateSweep sweep;
  double w = 1, mean = 0, lowest = INFINITY;
  for (int64_t i = 0; i < options.steps; ++i) {
    const double rate =
        options.min_learning_rate * std::pow(options.max_learning_rate / options.min_learning_rate,
                                             static_cast<double>(i) / static_cast<double>(options.steps - 1));
    const double loss = w * w / 2;
    w *= 1 - rate;
    mean = options.smoothing * mean + (1 - options.smoothing) * loss;
    const double smoothed = mean / (1 - std::pow(options.smoothing, static_cast<double>(i + 1)));
    sweep.learning_rates.push_back(rate);
    sweep.losses.push_back(loss);
    sweep.smoothed_losses.push_back(smoothed);
    lowest = std::min(lowest, smoothed);
    if (smoothed > options.divergence * lowest) {
      sweep.has_diverged = true;
      break;
    }
  }
  return sweep;
}

void expect_equal(const LearningRateSweep& actual, const LearningRateSweep& expected) {
  EXPECT_EQ(actual.has_diverged, expected.has_diverged);
  ASSERT_EQ(actual.losses.size(), expected.losses.size());
  ASSERT_EQ(actual.learning_rates.size(), expected.losses.size());
  ASSERT_EQ(actual.smoothed_losses.size(), expected.losses.size());
  for (size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(actual.learning_rates[i], expected.learning_rates[i], 1e-12 * expected.learning_rates[i]);
    EXPECT_NEAR(actual.losses[i], expected.losses[i], 1e-12);
    EXPECT_NEAR(actual.smoothed_losses[i], expected.smoothed_losses[i], 1e-12);
  }
}

TEST(FindLearningRate, SeesTheLossesOfAParabolaUntilTheyDiverge) {
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
  auto trainer = parabola_trainer(strategy);
  auto batches = batches_of(strategy);
  const LearningRateFinderOptions options{
      .min_learning_rate = 1e-4, .max_learning_rate = 100, .steps = 60, .smoothing = 0.5};
  const auto sweep = find_learning_rate(trainer, batches, options);
  const auto expected = expected_sweep(options);
  EXPECT_TRUE(expected.has_diverged);
  EXPECT_LT(expected.losses.size(), 60U);
  expect_equal(sweep, expected);
  EXPECT_EQ(sweep.suggestion, steepest_learning_rate(sweep));
  // Beyond a rate of 2 the weight grows; the loss falls fastest well below.
  EXPECT_GT(*sweep.suggestion, 0.01);
  EXPECT_LT(*sweep.suggestion, 2);
}

TEST(FindLearningRate, GoesThroughAllRatesIfNothingDiverges) {
  MirroredStrategy strategy(cpu_devices(1), {.intra_op_threads = 1});
  auto trainer = parabola_trainer(strategy);
  auto batches = batches_of(strategy);
  const LearningRateFinderOptions options{
      .min_learning_rate = 1e-3, .max_learning_rate = 0.1, .steps = 20, .smoothing = 0};
  const auto sweep = find_learning_rate(trainer, batches, options);
  expect_equal(sweep, expected_sweep(options));
  EXPECT_EQ(sweep.losses.size(), 20U);
  EXPECT_NEAR(sweep.learning_rates.back(), 0.1, 1e-12);
}

TEST(FindLearningRate, PutsEverythingBackToTheBit) {
  // With momentum, BatchNorm and dropout, in the middle of a training.
  AveragedFit plain, searched;
  plain.fit(1, {});
  searched.fit(1, {});
  auto batches = searched.strategy.distribute_dataset(detail::TensorPairs(searched.data, searched.target),
                                                      {.global_batch_size = 8, .shuffle_seed = 3});
  batches.restore({4, 1});
  const auto sweep = find_learning_rate(*searched.trainer, batches, {.max_learning_rate = 1, .steps = 9});
  EXPECT_EQ(sweep.losses.size(), 9U);
  EXPECT_EQ(batches.position(), (DatasetPosition{4, 1}));
  for (size_t replica = 0; replica < 2; ++replica) {
    testing::expect_bits(searched.weights()[replica].parameters, plain.weights()[replica].parameters,
                         "parameter");
    testing::expect_bits(searched.weights()[replica].buffers, plain.weights()[replica].buffers, "buffer");
  }
  // The same further training shows that momenta, rates and random streams are as before.
  plain.fit(2, {});
  searched.fit(2, {});
  for (size_t replica = 0; replica < 2; ++replica)
    testing::expect_bits(searched.weights()[replica].parameters, plain.weights()[replica].parameters,
                         "parameter after more steps");
}

TEST(FindLearningRate, PutsEverythingBackAfterAnError) {
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
  auto trainer = parabola_trainer(strategy);
  int64_t batch = 0;
  auto batches = batches_of(strategy).map([&](const Example& shard) {
    if (++batch == 5) throw std::runtime_error("broken batch");
    return shard;
  });
  EXPECT_THAT(message_of<std::runtime_error>([&] { find_learning_rate(trainer, batches); }),
              HasSubstr("broken batch"));
  EXPECT_EQ(trainer.model().primary()->w.item<double>(), 1);
  EXPECT_EQ(trainer.optimizer().primary()->param_groups()[0].options().get_lr(), 0.125);
  EXPECT_EQ(batches.position(), (DatasetPosition{0, 0}));
}

TEST(FindLearningRate, AgreesOnTheLossesOfAllWorkers) {
  std::vector<LearningRateSweep> sweeps(2);
  const LearningRateFinderOptions options{
      .min_learning_rate = 1e-4, .max_learning_rate = 100, .steps = 60, .smoothing = 0.5};
  const auto errors = run_strategies({1, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
    auto trainer = parabola_trainer(strategy);
    auto batches = batches_of(strategy);
    sweeps[static_cast<size_t>(strategy.cluster_resolver()->rank())] =
        find_learning_rate(trainer, batches, options);
  });
  for (const auto& error : errors) EXPECT_EQ(text_of(error), "none");
  for (const auto& sweep : sweeps) expect_equal(sweep, expected_sweep(options));
}

/// Does what the finder does, by one sum of a loss and a count in each step.
class FindByHand : public Callback {
 public:
  explicit FindByHand(std::vector<double> rates) : rates_(std::move(rates)) {}
  void on_step_begin(FitState& state) override {
    state.set_learning_rate(rates_.at(static_cast<size_t>(state.step)));
  }
  void on_step_end(FitState& state) override {
    const auto now = state.local_loss();
    const auto sum = state.strategy().reduce(
        ReduceOp::kSum, state.strategy().distribute_values_from_function([&](const ValueContext&) {
          return torch::tensor({now.first - seen_.first, now.second - seen_.second}, torch::kDouble);
        }));
    losses.push_back(sum[0].item<double>() / sum[1].item<double>());
    seen_ = now;
  }

  std::vector<double> losses;

 private:
  std::vector<double> rates_;
  std::pair<double, double> seen_;
};

TEST(FindLearningRate, AsksTheOtherWorkersOnceAStep) {
  const LearningRateFinderOptions options{.min_learning_rate = 1e-3, .max_learning_rate = 0.1, .steps = 7};
  const auto expected = expected_sweep(options);
  const auto by_hand = std::make_shared<FindByHand>(expected.learning_rates);
  LearningRateSweep sweep;
  // A second sum of worker 0 would meet the gradients of worker 1.
  const auto errors = run_strategies({1, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
    auto trainer = parabola_trainer(strategy);
    auto batches = batches_of(strategy);
    if (strategy.cluster_resolver()->rank() == 0) {
      sweep = find_learning_rate(trainer, batches, options);
    } else {
      trainer.fit(batches, {.steps_per_epoch = options.steps, .callbacks = {by_hand}});
    }
  });
  for (const auto& error : errors) EXPECT_EQ(text_of(error), "none");
  expect_equal(sweep, expected);
  EXPECT_EQ(by_hand->losses, sweep.losses);
}

TEST(FindLearningRate, RefusesWrongOptions) {
  const auto refusal = [](const LearningRateFinderOptions& options) {
    return message_of<InvalidArgument>([&] { LearningRateFinder finder(options); });
  };
  EXPECT_THAT(refusal({.min_learning_rate = 0}), HasSubstr("a positive min_learning_rate, but got 0"));
  EXPECT_THAT(refusal({.max_learning_rate = 1e-8}), HasSubstr("a max_learning_rate above"));
  EXPECT_THAT(refusal({.steps = 1}), HasSubstr("2 or more steps, but got 1"));
  EXPECT_THAT(refusal({.smoothing = 1}), HasSubstr("a smoothing of at least 0 and below 1"));
  EXPECT_THAT(refusal({.divergence = 1}), HasSubstr("a divergence above 1"));
}

}  // namespace
}  // namespace lockstep
