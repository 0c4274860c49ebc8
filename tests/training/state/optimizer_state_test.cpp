#include "lockstep/training/state/optimizer_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/tests/support/checkpoint_files.h"
#include "lockstep/tests/support/optimizer_comparison.h"
#include "lockstep/training/optimizers/fused_adam.h"
#include "lockstep/training/optimizers/fused_sgd.h"

// optimizer_state_python_test.py shows that the states equal Python's.

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

void run_gradient_steps(torch::optim::Optimizer& optimizer, const std::vector<torch::Tensor>& parameters,
                        int first, int last) {
  for (int step = first; step < last; ++step) {
    set_gradients(parameters, step);
    optimizer.step();
  }
}

template <typename Trained, typename Resumed, typename Options>
void expect_continues(torch::Dtype dtype, const Options& options) {
  const auto parameters = make_parameters(dtype);
  Trained trained(parameters, options);
  run_gradient_steps(trained, parameters, 0, 4);
  std::vector<torch::Tensor> copies;
  for (const auto& parameter : parameters)
    copies.push_back(parameter.detach().clone().set_requires_grad(true));
  Resumed resumed(copies, 0.5);
  load_optimizer_state(resumed, optimizer_state(trained));
  run_gradient_steps(trained, parameters, 4, 7);
  run_gradient_steps(resumed, copies, 4, 7);
  if (std::is_same_v<Trained, Resumed>) {
    EXPECT_EQ(largest_distance(parameters, copies), 0);
  } else {
    EXPECT_LT(largest_distance(parameters, copies), 1e-12);
  }
}

TEST(OptimizerStateTest, AnotherOptimizerContinuesBitByBit) {
  for (const auto dtype : {torch::kFloat32, torch::kFloat64}) {
    expect_continues<FusedAdam, FusedAdam>(dtype, FusedAdamOptions(0.01).amsgrad(true).weight_decay(0.1));
    expect_continues<FusedAdamW, FusedAdamW>(dtype, FusedAdamWOptions(0.01).betas({0.5, 0.9}));
    expect_continues<FusedSgd, FusedSgd>(dtype, FusedSgdOptions(0.1).momentum(0.9).nesterov(true));
  }
}

TEST(OptimizerStateTest, FusedAndPlainOptimizersContinueEachOther) {
  expect_continues<FusedAdam, torch::optim::Adam>(torch::kFloat64, FusedAdamOptions(0.01).weight_decay(0.1));
  expect_continues<torch::optim::Adam, FusedAdam>(torch::kFloat64,
                                                  torch::optim::AdamOptions(0.01).amsgrad(true));
}

TEST(OptimizerStateTest, AStateIsCopiedNotShared) {
  const auto parameters = make_parameters(torch::kFloat32);
  FusedSgd trained(parameters, FusedSgdOptions(0.1).momentum(0.9));
  run_gradient_steps(trained, parameters, 0, 1);
  FusedSgd resumed(parameters, FusedSgdOptions(0.1).momentum(0.9));
  load_optimizer_state(resumed, optimizer_state(trained));
  const auto buffer = [&](FusedSgd& optimizer) {
    auto& state = *optimizer.state().at(parameters[0].unsafeGetTensorImpl());
    return static_cast<FusedSgdParamState&>(state).momentum_buffer();
  };
  EXPECT_TRUE(torch::equal(buffer(trained), buffer(resumed)));
  EXPECT_NE(buffer(trained).data_ptr(), buffer(resumed).data_ptr());
}

std::string state_refusal(torch::optim::Optimizer& optimizer, const StateValue& state) {
  return error_of<CheckpointError>([&] { load_optimizer_state(optimizer, state, "run.pt"); });
}

TEST(OptimizerStateTest, StatesOfOtherParametersAreRefusedAndNothingChanges) {
  const auto small = torch::ones({2, 3}, torch::requires_grad());
  const auto large = torch::ones({5, 4}, torch::requires_grad());
  FusedAdam from_large({large}, 0.1);
  large.mutable_grad() = torch::ones({5, 4});
  from_large.step();
  FusedAdam optimizer({small}, 0.25);
  EXPECT_EQ(state_refusal(optimizer, optimizer_state(from_large)),
            "run.pt: state['state'][0]['exp_avg']: expected Float [2, 3], but got Float [5, 4]");
  EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 0.25);
  EXPECT_TRUE(optimizer.state().empty());

  FusedAdam two({small, large}, 0.1);
  EXPECT_THAT(state_refusal(two, optimizer_state(from_large)),
              HasSubstr("state['param_groups'][0]['params']: expected 2 parameters, but got 1"));
  FusedAdam groups(std::vector<torch::optim::OptimizerParamGroup>{{{small}}, {{large}}}, 0.1);
  EXPECT_THAT(state_refusal(groups, optimizer_state(from_large)),
              HasSubstr("state['param_groups']: expected 2 groups, but got 1"));
}

TEST(OptimizerStateTest, StatesOfOtherKindsOfOptimizersAreRefused) {
  const auto weight = torch::ones({2}, torch::requires_grad());
  FusedAdam adam({weight});
  FusedAdamW adam_w({weight});
  FusedSgd sgd({weight});
  torch::optim::Adam plain({weight});
  EXPECT_THAT(state_refusal(adam, optimizer_state(adam_w)),
              HasSubstr("['decoupled_weight_decay']: expected False, as of an Adam, but got True"));
  EXPECT_THAT(state_refusal(adam_w, optimizer_state(adam)),
              HasSubstr("expected True, as of an AdamW, but got False"));
  EXPECT_THAT(state_refusal(adam, optimizer_state(sgd)),
              HasSubstr("state['param_groups'][0]: expected a key 'betas', but got none"));
  EXPECT_THAT(state_refusal(sgd, optimizer_state(adam)),
              HasSubstr("expected a key 'momentum', but got none"));
  FusedAdam climbing({weight}, FusedAdamOptions(0.1).maximize(true));
  EXPECT_THAT(state_refusal(plain, optimizer_state(climbing)), HasSubstr("['maximize']: expected False"));
  torch::optim::RMSprop other({weight});
  EXPECT_THAT(error_of<InvalidArgument>([&] { optimizer_state(other); }),
              StartsWith("[optimizer_state] expected FusedAdam"));
}

template <typename Optimizer>
void expect_options_refused(const std::string& name, const StateValue& value) {
  const auto weight = torch::ones({2}, torch::requires_grad());
  Optimizer optimizer({weight}, 0.25);
  auto state = optimizer_state(optimizer);
  auto group =
      std::get<StateValue::Dict>(std::get<StateValue::List>(state.entries[1].value.data())[0].data());
  for (auto& entry : group.entries)
    if (entry.key == StateValue::Key(name)) entry.value = value;
  state.entries[1].value = StateValue::List{StateValue(group)};
  EXPECT_THAT(
      state_refusal(optimizer, state),
      StartsWith("run.pt: state['param_groups'][0]: expected options that the optimizer takes, but got "))
      << name;
  EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 0.25);
}

TEST(OptimizerStateTest, OptionsThatTheOptimizerItselfRefusesAreRefused) {
  const double nan = std::nan("");
  const StateValue betas = StateValue::Tuple{{0.9, 1.0}};
  expect_options_refused<FusedAdam>("lr", nan);
  expect_options_refused<FusedAdam>("betas", betas);
  expect_options_refused<FusedAdamW>("eps", -1e-8);
  expect_options_refused<FusedSgd>("momentum", -0.5);
  expect_options_refused<FusedSgd>("nesterov", true);
  expect_options_refused<torch::optim::Adam>("lr", nan);
  expect_options_refused<torch::optim::AdamW>("betas", betas);
  expect_options_refused<torch::optim::SGD>("lr", -1.0);
}

TEST(OptimizerStateTest, WhatIsNoStateIsRefused) {
  const auto weight = torch::ones({2}, torch::requires_grad());
  FusedAdam adam({weight});
  EXPECT_EQ(state_refusal(adam, 7), "run.pt: state: expected a dict, but got 7");
  EXPECT_EQ(state_refusal(adam, StateValue::Dict()),
            "run.pt: state: expected a key 'param_groups', but got none");
  auto state = optimizer_state(adam);
  StateValue::Dict of_weight;
  of_weight.add("step", -1.0);
  StateValue::Dict states;
  states.add(0, of_weight);
  state.entries[0].value = states;
  EXPECT_THAT(state_refusal(adam, state),
              HasSubstr("state['state'][0]['step']: expected a number of steps, but got -1"));
  states.entries[0].key = 3;
  state.entries[0].value = states;
  EXPECT_THAT(state_refusal(adam, state), HasSubstr("state['state'][3]: expected the number of a parameter"));
}

}  // namespace
}  // namespace lockstep
