#include "lockstep/training/state/training_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/checkpoint_files.h"
#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/tests/support/worker_strategies.h"
#include "lockstep/training/checkpoints/weights_file.h"
#include "lockstep/training/optimizers/fused_adam.h"
#include "lockstep/training/optimizers/fused_sgd.h"
#include "lockstep/training/state/state_dict.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::TemporaryFolder;

/// Dropout draws from each replica's stream, and BatchNorm has each replica's own statistics.
torch::nn::Sequential make_noisy_net(int64_t outputs = 2) {
  // No bias in front of BatchNorm: its gradient is only rounding, which Adam would magnify.
  return torch::nn::Sequential(torch::nn::Linear(torch::nn::LinearOptions(4, 6).bias(false)),
                               torch::nn::BatchNorm1d(6), torch::nn::Dropout(0.5),
                               torch::nn::Linear(6, outputs));
}

/// A complete training.
struct NoisyTraining {
  explicit NoisyTraining(Strategy& made_by, int64_t outputs = 2, int seed = 1)
      : strategy(made_by), state(made_by) {
    torch::manual_seed(seed);
    model.emplace(strategy.scope([&](ReplicaContext&) { return make_noisy_net(outputs); }));
    optimizer.emplace(strategy.scope([&](ReplicaContext& replica) {
      return FusedAdam((*model)[replica]->parameters(), FusedAdamOptions(0.01));
    }));
    scaler.emplace(strategy.scope([](ReplicaContext& replica) {
      return GradScaler(replica.device(), {.init_scale = 4, .growth_interval = 3});
    }));
    state.add_model(*model);
    state.add_optimizer("adam", *optimizer);
    state.add_scaler(*scaler);
  }

  void run_steps(int first, int last) {
    for (int step = first; step < last; ++step) {
      strategy.run(
          [](ReplicaContext& replica, torch::nn::Sequential& net, FusedAdam& adam, GradScaler& scale,
             int now) {
            auto generator =
                at::detail::createCPUGenerator(static_cast<uint64_t>(100 * now + replica.replica_id()));
            const auto input = torch::randn({8, 4}, generator).to(replica.device());
            adam.zero_grad();
            scale.scale(net->forward(input).square().mean()).backward();
            replica.apply_gradients(adam, {.scaler = &scale});
            scale.update();
          },
          *model, *optimizer, *scaler, step);
    }
  }

  Strategy& strategy;
  std::optional<Mirrored<torch::nn::Sequential>> model;
  std::optional<Mirrored<FusedAdam>> optimizer;
  std::optional<Mirrored<GradScaler>> scaler;
  TrainingState state;
};

void expect_equal_models(const torch::nn::Module& given, const torch::nn::Module& expected) {
  const auto states = std::pair(state_dict(given), state_dict(expected));
  for (size_t i = 0; i < states.second.size(); ++i)
    EXPECT_TRUE(torch::equal(states.first[i].second.cpu(), states.second[i].second.cpu()))
        << states.second[i].first;
}

TEST(TrainingStateTest, AnotherRunContinuesBitByBit) {
  const TemporaryFolder folder;
  const auto path = folder.file("state.pt");
  MirroredStrategy strategy(cpu_devices(2));
  NoisyTraining training(strategy);
  training.run_steps(0, 5);
  training.state.save(
      path, {.epoch = 1, .step = 5, .position = 2, .shuffle_seed = -3, .metrics = {{"loss", 0.25}}});
  training.run_steps(5, 9);

  MirroredStrategy other(cpu_devices(2));
  NoisyTraining resumed(other, 2, /*seed=*/7);
  const auto progress = resumed.state.load(path);
  EXPECT_EQ(progress.epoch, 1);
  EXPECT_EQ(progress.step, 5);
  EXPECT_EQ(progress.position, 2);
  EXPECT_EQ(progress.shuffle_seed, -3);
  EXPECT_EQ(progress.metrics, (std::map<std::string, double>{{"loss", 0.25}}));
  EXPECT_EQ(resumed.scaler->primary().state().scale, 8);
  EXPECT_EQ(resumed.scaler->primary().state().growth_tracker, 2);
  resumed.run_steps(5, 9);
  for (size_t replica = 0; replica < 2; ++replica) {
    expect_equal_models(*resumed.model->local_values()[replica], *training.model->local_values()[replica]);
  }
  // The replicas' statistics do differ, so the loop above checks each of them.
  EXPECT_FALSE(torch::equal(training.model->local_values()[0]->named_buffers()["1.running_mean"].cpu(),
                            training.model->local_values()[1]->named_buffers()["1.running_mean"].cpu()));
}

TEST(TrainingStateTest, AnotherNumberOfReplicasGetsTheMeanOfTheBuffers) {
  const TemporaryFolder folder;
  const auto path = folder.file("state.pt");
  MirroredStrategy two(cpu_devices(2));
  NoisyTraining training(two);
  training.run_steps(0, 3);
  training.state.save(path, {});
  const auto mean_of = [&](const std::string& name) {
    const auto& models = training.model->local_values();
    const auto sum =
        models[0]->named_buffers()[name].cpu().to(torch::kFloat64) + models[1]->named_buffers()[name].cpu();
    return (sum / 2).to(torch::kFloat32);
  };
  for (const int replicas : {1, 3}) {
    MirroredStrategy strategy(cpu_devices(replicas));
    NoisyTraining resumed(strategy, 2, /*seed=*/7);
    resumed.state.load(path);
    for (const auto& model : resumed.model->local_values()) {
      EXPECT_TRUE(torch::equal(model->named_buffers()["1.running_mean"].cpu(), mean_of("1.running_mean")));
      EXPECT_TRUE(torch::equal(model->named_buffers()["1.running_var"].cpu(), mean_of("1.running_var")));
      EXPECT_EQ(model->named_buffers()["1.num_batches_tracked"].item<int64_t>(), 3);
      EXPECT_TRUE(torch::equal(model->named_parameters()["0.weight"].cpu(),
                               training.model->primary()->named_parameters()["0.weight"].cpu()));
    }
    resumed.run_steps(3, 4);
  }
}

TEST(TrainingStateTest, WorkersSaveTogetherAndOneProcessContinues) {
  const TemporaryFolder folder;
  const auto path = folder.file("state.pt");
  std::vector<torch::nn::Sequential> trained(3, nullptr);
  expect_no_worker_failed(run_strategies({2, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
    NoisyTraining training(strategy);
    training.run_steps(0, 3);
    training.state.save(path, {.step = 3});
    training.run_steps(3, 5);
    for (int local = 0; local < strategy.num_local_replicas(); ++local) {
      trained[static_cast<size_t>(strategy.first_local_replica() + local)] =
          training.model->local_values()[static_cast<size_t>(local)];
    }
  }));
  expect_no_worker_failed(run_strategies({1, 2}, [&](MultiWorkerMirroredStrategy& strategy) {
    NoisyTraining resumed(strategy, 2, /*seed=*/7);
    EXPECT_EQ(resumed.state.load(path).step, 3);
    resumed.run_steps(3, 5);
    for (int local = 0; local < strategy.num_local_replicas(); ++local) {
      // Sums over other groups of replicas round differently.
      const auto& expected = *trained[static_cast<size_t>(strategy.first_local_replica() + local)];
      const auto& given = *resumed.model->local_values()[static_cast<size_t>(local)];
      const auto states = std::pair(state_dict(given), state_dict(expected));
      for (size_t i = 0; i < states.second.size(); ++i)
        EXPECT_TRUE(torch::allclose(states.first[i].second.cpu(), states.second[i].second.cpu(), 1e-4, 1e-5))
            << states.second[i].first;
    }
  }));
  EXPECT_EQ(folder.num_files(), 1U);
}

TEST(TrainingStateTest, ItsWeightsAreThoseOfAnEvaluation) {
  const TemporaryFolder folder;
  const auto path = folder.file("state.pt");
  MirroredStrategy strategy(cpu_devices(2));
  NoisyTraining training(strategy);
  training.run_steps(0, 3);
  training.state.save(path, {});
  auto net = make_noisy_net();
  init_weights(*net, path);
  training.model->eval();
  expect_equal_models(*net, *training.model->primary());
}

TEST(TrainingStateTest, StatesOfOtherModelsAndOptimizersAreRefusedByTheFirstTensorThatDiffers) {
  const TemporaryFolder folder;
  const auto path = folder.file("state.pt");
  MirroredStrategy strategy(cpu_devices(2));
  NoisyTraining training(strategy);
  training.run_steps(0, 1);
  training.state.save(path, {});
  NoisyTraining wider(strategy, 5);
  EXPECT_EQ(error_of<CheckpointError>([&] { wider.state.load(path); }),
            path + ": tensor '3.weight': expected Float [5, 6], but got Float [2, 6]");

  auto sgd = strategy.scope(
      [&](ReplicaContext& replica) { return FusedSgd((*training.model)[replica]->parameters(), 0.1); });
  TrainingState of_sgd(strategy);
  of_sgd.add_model(*training.model);
  of_sgd.add_optimizer("adam", sgd);
  EXPECT_THAT(
      error_of<CheckpointError>([&] { of_sgd.load(path); }),
      HasSubstr(path +
                ": optimizer 'adam': state['param_groups'][0]: expected a key 'momentum', but got none"));
  TrainingState of_another(strategy);
  of_another.add_model(*training.model);
  of_another.add_optimizer("sgd", sgd);
  EXPECT_EQ(error_of<CheckpointError>([&] { of_another.load(path); }),
            path + ": state['optimizers']: expected a key 'sgd', but got none");
}

TEST(TrainingStateTest, OtherFormatsAndDamageAreRefused) {
  const TemporaryFolder folder;
  const auto path = folder.file("state.pt");
  MirroredStrategy strategy(cpu_devices(2));
  NoisyTraining training(strategy);
  training.state.save(path, {});
  const auto whole = std::get<StateValue::Dict>(load_state_file(path).data());
  const auto refused = [&](const std::string& key, StateValue value) {
    auto dict = whole;
    for (auto& entry : dict.entries)
      if (std::get<std::string>(entry.key) == key) entry.value = value;
    save_state_file(path, dict);
    return error_of<CheckpointError>([&] { training.state.load(path); });
  };
  StateValue::Dict later;
  later.add("format", 2);
  later.add("version", "9.1");
  EXPECT_EQ(refused("lockstep", later),
            path + ": state['lockstep']['format']: expected at most 1, but got 2, of Lockstep 9.1");
  EXPECT_EQ(refused("lockstep", 3), path + ": state['lockstep']: expected a dict, but got 3");
  EXPECT_EQ(refused("progress", StateValue::Dict()),
            path + ": state['progress']: expected a key 'epoch', but got none");

  auto replicas = std::get<StateValue::Dict>(whole.find("replicas")->data());
  const auto change_replicas = [&](const std::string& key, const StateValue& value) {
    auto changed = replicas;
    for (auto& entry : changed.entries)
      if (std::get<std::string>(entry.key) == key) entry.value = value;
    return refused("replicas", changed);
  };
  EXPECT_THAT(change_replicas("generators", StateValue::List()),
              HasSubstr("['generators']: expected 2 generators, but got 0"));
  const auto garbage = torch::full({5056}, 255, torch::kUInt8);
  EXPECT_THAT(change_replicas("generators", StateValue::List{garbage, garbage}),
              HasSubstr("['generators'][0]: expected the state of a random generator"));
  EXPECT_THAT(change_replicas("buffers", StateValue::Dict()),
              HasSubstr("['buffers']: expected a key '1.running_mean', but got none"));
  auto buffers = std::get<StateValue::Dict>(replicas.find("buffers")->data());
  buffers.entries[0].value = torch::ones({2, 3});
  EXPECT_THAT(change_replicas("buffers", buffers),
              HasSubstr("['1.running_mean']: expected Float [2, 6], but got Float [2, 3]"));
  StateValue::Dict scaler;
  scaler.add("scale", -1.0);
  scaler.add("growth_tracker", 0);
  EXPECT_THAT(refused("scaler", scaler), HasSubstr("state['scaler']: expected the state of a GradScaler"));
}

TEST(TrainingStateTest, WhatALaterFormatAddsIsIgnored) {
  const TemporaryFolder folder;
  const auto path = folder.file("state.pt");
  MirroredStrategy strategy(cpu_devices(2));
  NoisyTraining training(strategy);
  training.state.save(path, {.step = 4});
  auto dict = std::get<StateValue::Dict>(load_state_file(path).data());
  dict.add("buckets", StateValue::List{1, 2});
  save_state_file(path, dict);
  EXPECT_EQ(training.state.load(path).step, 4);
}

TEST(TrainingStateTest, MistakesOfCallersAreRefused) {
  MirroredStrategy strategy(cpu_devices(1));
  TrainingState state(strategy);
  EXPECT_THAT(error_of<InvalidArgument>([&] { state.save("state.pt", {}); }),
              HasSubstr("expected a model, but got none"));
  NoisyTraining training(strategy);
  EXPECT_THAT(error_of<InvalidArgument>([&] { training.state.add_model(*training.model); }),
              HasSubstr("expected one model"));
  EXPECT_THAT(error_of<InvalidArgument>([&] { training.state.add_optimizer("adam", *training.optimizer); }),
              HasSubstr("'adam' twice"));
  EXPECT_THAT(error_of<InvalidArgument>([&] { training.state.add_scaler(*training.scaler); }),
              HasSubstr("expected one scaler"));
}

}  // namespace
}  // namespace lockstep
