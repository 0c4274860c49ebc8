#include "lockstep/training/callbacks/divergence_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/after_step.h"
#include "lockstep/tests/support/checkpoint_files.h"
#include "lockstep/tests/support/one_device_equivalence.h"
#include "lockstep/tests/support/worker_strategies.h"
#include "lockstep/training/metrics/loss_functions.h"
#include "lockstep/training/optimizers/fused_adam.h"
#include "lockstep/training/trainer/trainer.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// The next number above the tensor's last one.
void add_one_ulp(const torch::Tensor& tensor) {
  const torch::NoGradGuard no_grad;
  auto last = tensor.view({-1})[tensor.numel() - 1];
  last.fill_(std::nextafter(last.item<double>(), INFINITY));
}

std::string fit_with(Strategy& strategy, const std::function<void(FitState&)>& change, int64_t at_step = 3) {
  torch::manual_seed(17);
  const auto data = examples_of_three_classes();
  Trainer trainer(
      strategy, [](ReplicaContext&) { return TanhNet(); },
      [](const auto& parameters) { return FusedAdam(parameters, FusedAdamOptions(0.02)); }, cross_entropy);
  return error_of<InconsistentReplicas>([&] {
    trainer.fit(data.data, data.target,
                {.epochs = 4,
                 .callbacks = {testing::after_step(at_step, change),
                               std::make_shared<DivergenceCheck>(DivergenceCheckOptions{.every_steps = 2})},
                 .batches = {.global_batch_size = kBatchSize}});
  });
}

TEST(DivergenceCheckTest, ReplicasThatStayEqualPass) {
  MirroredStrategy strategy(cpu_devices(3), {.intra_op_threads = 1});
  EXPECT_EQ(fit_with(strategy, [](FitState&) {}), "no error");
}

TEST(DivergenceCheckTest, FindsOneUlpOfOneParameterAtItsNextInterval) {
  for (const size_t changed : {0, 1, 2}) {
    MirroredStrategy strategy(cpu_devices(3), {.intra_op_threads = 1});
    std::string name;
    const auto error = fit_with(strategy, [&](FitState& state) {
      const auto parameters = state.objects().modules[changed]->named_parameters();
      name = parameters.begin()->key();
      add_one_ulp(parameters.begin()->value());
    });
    EXPECT_THAT(error, AllOf(HasSubstr("after step 4"),
                             HasSubstr("replica " + std::to_string(changed) + " has other"),
                             HasSubstr("in parameter " + name)));
  }
}

TEST(DivergenceCheckTest, FindsOneUlpOfAnOptimizersStateAtTheFitsEnd) {
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
  const auto data = examples_of_three_classes();
  Trainer trainer(
      strategy, [](ReplicaContext&) { return TanhNet(); },
      [](const auto& parameters) { return FusedAdam(parameters, FusedAdamOptions(0.02)); }, cross_entropy);
  const auto change = [](FitState& state) {
    auto& states = state.objects().optimizers[1]->state();
    add_one_ulp(static_cast<FusedAdamParamState&>(*states.begin()->second).exp_avg_sq());
  };
  EXPECT_THAT(error_of<InconsistentReplicas>([&] {
                trainer.fit(
                    data.data, data.target,
                    {.callbacks = {testing::after_step(1, change), std::make_shared<DivergenceCheck>()},
                     .batches = {.global_batch_size = kExamples}});
              }),
              AllOf(HasSubstr("after step 1"), HasSubstr("replica 1 has other"), HasSubstr("exp_avg_sq")));
}

TEST(DivergenceCheckTest, TellsZerosOfBothSignsAndExchangedElementsApart) {
  const auto differ = [](const torch::Tensor& first, const torch::Tensor& second) {
    MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
    auto model = strategy.scope([](ReplicaContext&) { return TanhNet(); });
    const auto modules = module_pointers(model.local_values());
    for (size_t replica = 0; replica < 2; ++replica) {
      const torch::NoGradGuard no_grad;
      auto parameter = modules[replica]->parameters().front().view({-1});
      parameter.zero_();
      parameter.narrow(0, 0, first.numel()).copy_(replica == 0 ? first : second);
    }
    return error_of<InconsistentReplicas>([&] { check_divergence(strategy, 1, modules); }) != "no error";
  };
  const auto of = [](std::vector<double> values) { return torch::tensor(values, torch::kDouble); };
  EXPECT_TRUE(differ(of({0.0}), of({-0.0})));
  EXPECT_TRUE(differ(of({1, 2}), of({2, 1})));
  EXPECT_TRUE(differ(of({1, 1, 2}), of({2, 1, 1})));
  const auto bits = [](std::vector<int64_t> words) {
    return torch::tensor(words, torch::kLong).view(torch::kDouble);
  };
  EXPECT_TRUE(differ(bits({5, 7}), bits({8, 6})));
  EXPECT_TRUE(differ(bits({10, 10, 10}), bits({11, 8, 11})));
  EXPECT_FALSE(differ(of({NAN}), of({NAN})));
  EXPECT_FALSE(differ(of({1, 2}), of({1, 2})));
}

TEST(DivergenceCheckTest, AllWorkersFindTheSameReplica) {
  std::vector<std::string> errors(3);
  expect_no_worker_failed(run_strategies({1, 2, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
    const int rank = strategy.cluster_resolver()->rank();
    errors[static_cast<size_t>(rank)] = fit_with(strategy, [&](FitState& state) {
      if (rank == 1) add_one_ulp(state.objects().modules[1]->parameters().back());
    });
  }));
  EXPECT_THAT(errors[0], HasSubstr("replica 2 has other"));
  EXPECT_EQ(errors, std::vector<std::string>(3, errors[0]));
}

TEST(DivergenceCheckTest, RefusesNoSteps) {
  EXPECT_THROW(DivergenceCheck({.every_steps = 0}), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
