#include "lockstep/training/callbacks/model_checkpoint.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/one_device_equivalence.h"
#include "lockstep/tests/support/test_files.h"
#include "lockstep/tests/support/worker_training.h"
#include "lockstep/training/checkpoints/weights_file.h"
#include "lockstep/training/metrics/loss_functions.h"
#include "lockstep/training/trainer/trainer.h"

namespace lockstep {
namespace {

/// Sets each epoch's loss to what the test says, and keeps the parameters of every epoch.
class EpochScript : public Callback {
 public:
  explicit EpochScript(std::vector<double> losses) : losses_(std::move(losses)) {}
  void on_epoch_end(FitState& state) override {
    state.logs.set("loss", losses_[static_cast<size_t>(state.epoch - 1)]);
    parameters.push_back(values_of(state.objects().modules.front()->parameters()));
  }
  std::vector<std::vector<torch::Tensor>> parameters;

 private:
  std::vector<double> losses_;
};

class ModelCheckpointTest : public ::testing::Test {
 protected:
  Trainer<TanhNet> make_trainer() {
    return {strategy_, [](ReplicaContext&) { return TanhNet(); }, momentum_sgd(), cross_entropy};
  }
  /// Loads weights in the order of the module's parameters, since a .safetensors file has its own order.
  std::vector<torch::Tensor> weights_in(const std::string& name) const {
    const auto weights = load_weights(folder_.path() + "/" + name);
    std::vector<torch::Tensor> values;
    for (const auto& parameter : TanhNet()->named_parameters()) {
      for (const auto& [key, tensor] : weights) {
        if (key == parameter.key()) values.push_back(tensor);
      }
    }
    return values;
  }
  /// Shuffled, so that resuming needs the right epoch.
  FitOptions<> options(int64_t epochs, Callbacks callbacks) const {
    return {.epochs = epochs,
            .callbacks = std::move(callbacks),
            .batches = {.global_batch_size = kBatchSize, .shuffle_seed = 4}};
  }

  testing::TemporaryFolder folder_;
  MirroredStrategy strategy_{cpu_devices(2), {.intra_op_threads = 1}};
  Example data_ = examples_of_three_classes();
};

TEST_F(ModelCheckpointTest, SavesTheBestAndTheLastEpoch) {
  auto trainer = make_trainer();
  const auto script = std::make_shared<EpochScript>(
      std::vector<double>{3, 1, std::numeric_limits<double>::quiet_NaN(), 1, 2});
  const auto checkpoint = std::make_shared<ModelCheckpoint>(ModelCheckpointOptions{.folder = folder_.path()});
  trainer.fit(data_.data, data_.target, options(5, {script, checkpoint}));
  EXPECT_EQ(checkpoint->best_epoch(), 2);
  for (const std::string ending : {".safetensors", ".pt"}) {
    EXPECT_TRUE(bit_equal(weights_in("best" + ending), script->parameters[1])) << ending;
    EXPECT_TRUE(bit_equal(weights_in("last" + ending), script->parameters[4])) << ending;
  }
}

TEST_F(ModelCheckpointTest, SavesEverySoManyEpochsAndTheVeryLast) {
  auto trainer = make_trainer();
  const auto script = std::make_shared<EpochScript>(std::vector<double>(5, 1.0));
  const auto checkpoint = std::make_shared<ModelCheckpoint>(
      ModelCheckpointOptions{.folder = folder_.path() + "/new", .save_best = false, .every_epochs = 3});
  trainer.fit(data_.data, data_.target, options(5, {script, checkpoint}));
  EXPECT_TRUE(bit_equal(weights_in("new/last.safetensors"), script->parameters[4]));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/new/best.pt"));
}

TEST_F(ModelCheckpointTest, IsWhereAnotherFitGoesOnToTheSameBits) {
  auto whole = make_trainer();
  const auto start = values_of(whole.model().primary()->parameters());
  auto batches = [&] {
    return strategy_.distribute_dataset(detail::TensorPairs(data_.data, data_.target),
                                        {.global_batch_size = kBatchSize, .shuffle_seed = 4});
  };
  auto first = Trainer(
      strategy_, [&](ReplicaContext&) { return tanh_net_of(start); }, momentum_sgd(), cross_entropy);
  // Epochs of two steps, while an epoch of the dataset has three.
  auto all = batches();
  whole.fit(all, {.epochs = 4, .steps_per_epoch = 2});
  auto some = batches();
  const auto checkpoint = std::make_shared<ModelCheckpoint>(ModelCheckpointOptions{.folder = folder_.path()});
  first.fit(some, {.epochs = 2, .steps_per_epoch = 2, .callbacks = {checkpoint}});
  auto resumed = make_trainer();
  TrainingState state(strategy_);
  state.add_model(resumed.model());
  state.add_optimizer("optimizer", resumed.optimizer());
  state.add_scaler(resumed.scaler());
  const auto progress = state.load(folder_.path() + "/last.pt");
  EXPECT_EQ(progress.epoch, 2);
  EXPECT_EQ(progress.step, 4);
  EXPECT_EQ(progress.dataset_epoch, 1);
  EXPECT_EQ(progress.position, 1);
  EXPECT_EQ(progress.metrics.count("loss"), 1U);
  auto rest = batches();
  rest.restore({.epoch = progress.dataset_epoch, .step = progress.position});
  resumed.fit(
      rest, {.epochs = 2, .steps_per_epoch = 2, .epochs_done = progress.epoch, .steps_done = progress.step});
  EXPECT_TRUE(bit_equal(values_of(resumed.model().primary()->parameters()),
                        values_of(whole.model().primary()->parameters())));
}

TEST_F(ModelCheckpointTest, KeepsTheBestOfTheRunThatItGoesOnWith) {
  for (const bool is_another : {false, true}) {
    auto trainer = make_trainer();
    const auto script = std::make_shared<EpochScript>(std::vector<double>{2, 1, 3, 2});
    auto checkpoint = std::make_shared<ModelCheckpoint>(ModelCheckpointOptions{.folder = folder_.path()});
    trainer.fit(data_.data, data_.target, options(2, {script, checkpoint}));
    if (is_another) {
      checkpoint =
          std::make_shared<ModelCheckpoint>(ModelCheckpointOptions{.folder = folder_.path(), .best = 1});
    }
    auto more = options(2, {script, checkpoint});
    more.epochs_done = 2;
    more.steps_done = 6;
    trainer.fit(data_.data, data_.target, more);
    EXPECT_TRUE(bit_equal(weights_in("best.safetensors"), script->parameters[1])) << is_another;
    EXPECT_TRUE(bit_equal(weights_in("last.safetensors"), script->parameters[3])) << is_another;
  }
}

TEST_F(ModelCheckpointTest, RefusesOptionsThatSaveNowhere) {
  EXPECT_THROW(ModelCheckpoint({.folder = ""}), InvalidArgument);
  EXPECT_THROW(ModelCheckpoint({.folder = "x", .every_epochs = 0}), InvalidArgument);
}

TEST(ModelCheckpointOverWorkers, IsWrittenByOne) {
  const testing::TemporaryFolder folder;
  const auto data = examples_of_three_classes();
  const auto start = initial_values();
  const auto train = [&](MultiWorkerMirroredStrategy& strategy) {
    Trainer trainer(
        strategy, [&](ReplicaContext&) { return tanh_net_of(start); }, momentum_sgd(), cross_entropy);
    trainer.fit(
        data.data, data.target,
        {.callbacks = {std::make_shared<ModelCheckpoint>(ModelCheckpointOptions{.folder = folder.path()})},
         .batches = {.global_batch_size = kBatchSize}});
    TrainingState state(strategy);
    state.add_model(trainer.model());
    state.add_optimizer("optimizer", trainer.optimizer());
    state.add_scaler(trainer.scaler());
    EXPECT_EQ(state.load(folder.path() + "/best.pt").step, 3);
  };
  expect_no_worker_failed(run_strategies({1, 1}, train, [](int, WorkerSetUp&) {}));
}

}  // namespace
}  // namespace lockstep
