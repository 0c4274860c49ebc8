#include "lockstep/training/callbacks/backup_and_restore.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/datasets/tensors/tensor_dataset.h"
#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/after_step.h"
#include "lockstep/tests/support/checkpoint_files.h"
#include "lockstep/tests/support/one_device_equivalence.h"
#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/tests/support/text_files.h"
#include "lockstep/tests/support/worker_strategies.h"
#include "lockstep/tests/training/callbacks/fixed_metric.h"
#include "lockstep/training/callbacks/early_stopping.h"
#include "lockstep/training/callbacks/learning_rate_schedule.h"
#include "lockstep/training/callbacks/nan_guard.h"
#include "lockstep/training/checkpoints/checkpoint_store.h"
#include "lockstep/training/metrics/confusion_matrix.h"
#include "lockstep/training/metrics/loss_functions.h"
#include "lockstep/training/optimizers/fused_adam.h"
#include "lockstep/training/state/optimizer_state.h"
#include "lockstep/training/trainer/trainer.h"

namespace lockstep {
namespace {

using testing::after_step;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::interrupt_after;
using ::testing::IsEmpty;
using testing::TemporaryFolder;

/// Draws from its replica's stream, and keeps its own replica's statistics of shards of any size.
struct NoisyNetImpl : torch::nn::Module {
  NoisyNetImpl() {
    dropout = register_module("dropout", torch::nn::Dropout(0.3));
    dense = register_module("dense", torch::nn::Linear(6, 3));
    seen = register_buffer("seen", torch::zeros({6}));
    to(torch::kDouble);
    // Not drawn: workers in threads share the process's generator.
    const torch::NoGradGuard no_grad;
    dense->weight.copy_(torch::linspace(-1, 1, 18, torch::kDouble).reshape({3, 6}));
    dense->bias.zero_();
  }
  torch::Tensor forward(const torch::Tensor& x) {
    if (is_training()) {
      const torch::NoGradGuard no_grad;
      seen.add_(x.sum(0));
    }
    return dense(dropout(x * (1 + 0.1 * seen.tanh())));
  }
  torch::nn::Dropout dropout{nullptr};
  torch::nn::Linear dense{nullptr};
  torch::Tensor seen;
};
TORCH_MODULE(NoisyNet);

constexpr int64_t kFitEpochs = 3;
/// kFitEpochs epochs of kExamples in batches of kBatchSize.
constexpr int64_t kStepsOfFit = kFitEpochs * ((kExamples + kBatchSize - 1) / kBatchSize);

/// Interrupts a fit in the validation of an epoch.
class InterruptValidation : public Callback {
 public:
  explicit InterruptValidation(int64_t epoch) : epoch_(epoch) {}
  void on_test_step_end(FitState& state) override {
    if (state.epoch == epoch_) state.interrupt("enough");
  }

 private:
  int64_t epoch_;
};

/// The whole outcome of a fit, for comparison bit by bit.
struct Outcome {
  std::vector<torch::Tensor> tensors;  // parameters, buffers and optimizer state of every local replica
  std::vector<Logs> epochs;
  bool is_at_end = false;
  double learning_rate = 0;

  void expect_equal(const Outcome& expected, const std::string& what) const {
    EXPECT_TRUE(bit_equal(tensors, expected.tensors)) << what;
    EXPECT_EQ(learning_rate, expected.learning_rate) << what;
    ASSERT_EQ(epochs.size(), expected.epochs.size()) << what;
    for (size_t epoch = 0; epoch < epochs.size(); ++epoch) {
      for (const auto& [name, value] : expected.epochs[epoch]) {
        if (name == "examples_per_second" || name == "data_wait") continue;  // depends on the clock
        EXPECT_EQ(epochs[epoch].find(name), value) << what << ", epoch " << epoch + 1 << ", " << name;
      }
    }
  }
};

struct FitSetUp {
  Callbacks callbacks{};  // run before those of every fit
  std::optional<BackupOptions> backup{};
  std::optional<MonitorOptions> best{};
  int64_t epochs = kFitEpochs;
  int64_t batch_size = kBatchSize;
  uint64_t shuffle_seed = 5;
};

Outcome fit_noisily(Strategy& strategy, const FitSetUp& set_up) {
  static const Example data = examples_of_three_classes();
  Trainer trainer(
      strategy, [](ReplicaContext&) { return NoisyNet(); },
      [](const auto& parameters) { return FusedAdam(parameters, FusedAdamOptions(0.02)); }, cross_entropy,
      {{"accuracy", CategoricalAccuracy()}, {"confusion", ConfusionMatrix(3)}});
  auto batches = strategy.distribute_dataset(
      TensorDataset(data.data, data.target),
      {.global_batch_size = set_up.batch_size, .shuffle_seed = set_up.shuffle_seed});
  Callbacks callbacks = set_up.callbacks;
  callbacks.push_back(std::make_shared<ReduceOnPlateau>(
      ReduceOnPlateauOptions{.monitor = {.name = "validation_accuracy", .min_delta = 0.9}, .patience = 1}));
  callbacks.push_back(std::make_shared<EarlyStopping>(
      EarlyStoppingOptions{.monitor = {.name = "loss"}, .patience = 10, .restore_best = true}));
  if (set_up.backup) callbacks.push_back(std::make_shared<BackupAndRestore>(*set_up.backup, set_up.best));
  const auto history =
      trainer.fit(batches, {.epochs = set_up.epochs,
                            .validation = strategy.distribute_dataset(TensorDataset(data.data, data.target),
                                                                      {.global_batch_size = 4}),
                            .callbacks = callbacks,
                            .clip_norm = 1.0});
  Outcome outcome{.epochs = history.epochs, .is_at_end = history.stop_reason.empty()};
  for (const auto& model : trainer.model().local_values()) {
    for (const auto& tensor : model->parameters()) outcome.tensors.push_back(tensor.detach().clone());
    for (const auto& tensor : model->buffers()) outcome.tensors.push_back(tensor.clone());
  }
  for (const auto& optimizer : trainer.optimizer().local_values()) {
    outcome.learning_rate = optimizer->param_groups().front().options().get_lr();
    visit_tensors(
        StateValue(optimizer_state(*optimizer)),
        [&](const std::string&, const torch::Tensor& tensor) { outcome.tensors.push_back(tensor.clone()); });
  }
  return outcome;
}

BackupOptions quiet_backup(const std::string& folder) {
  return {.folder = folder, .on_message = [](const std::string&) {}};
}

class BackupAndRestoreOnReplicas : public ::testing::TestWithParam<int> {
 protected:
  MirroredStrategy make_strategy() {
    return MirroredStrategy(cpu_devices(GetParam()), {.intra_op_threads = 1, .seed = 7});
  }
};

TEST_P(BackupAndRestoreOnReplicas, AFitInterruptedAfterAnyStepComesToTheSameEnd) {
  auto whole_strategy = make_strategy();
  const Outcome whole = fit_noisily(whole_strategy, {});
  for (int64_t step = 1; step < kStepsOfFit; ++step) {
    const TemporaryFolder folder;
    const auto backup = quiet_backup(folder.file("backup"));
    {
      auto strategy = make_strategy();
      const auto part = fit_noisily(strategy, {.callbacks = {interrupt_after(step)}, .backup = backup});
      ASSERT_FALSE(part.is_at_end);
    }
    auto strategy = make_strategy();
    const auto resumed = fit_noisily(strategy, {.backup = backup});
    EXPECT_TRUE(resumed.is_at_end);
    resumed.expect_equal(whole, "interrupted after step " + std::to_string(step));
  }
}

TEST_P(BackupAndRestoreOnReplicas, AFitInterruptedInValidationComesToTheSameEnd) {
  auto whole_strategy = make_strategy();
  const Outcome whole = fit_noisily(whole_strategy, {});
  for (int64_t epoch = 1; epoch <= kFitEpochs; ++epoch) {
    const TemporaryFolder folder;
    const auto backup = quiet_backup(folder.file("backup"));
    {
      auto strategy = make_strategy();
      fit_noisily(strategy, {.callbacks = {std::make_shared<InterruptValidation>(epoch)}, .backup = backup});
    }
    auto strategy = make_strategy();
    fit_noisily(strategy, {.backup = backup}).expect_equal(whole, "epoch " + std::to_string(epoch));
  }
}

TEST_P(BackupAndRestoreOnReplicas, AFitThatFailedGoesOnFromItsLastCheckpoint) {
  auto whole_strategy = make_strategy();
  const Outcome whole = fit_noisily(whole_strategy, {});
  for (const auto& every : {SaveInterval::epochs(1), SaveInterval::steps(2), SaveInterval::minutes(1e-9)}) {
    for (const bool asynchronous : {false, true}) {
      const TemporaryFolder folder;
      auto backup = quiet_backup(folder.file("backup"));
      backup.save_every = every;
      backup.asynchronous = asynchronous;
      {
        auto strategy = make_strategy();
        // The failing step saves nothing.
        const auto fail =
            after_step(kStepsOfFit - 1, [](FitState&) { throw std::runtime_error("a failure"); });
        EXPECT_THROW(fit_noisily(strategy, {.callbacks = {fail}, .backup = backup}), std::runtime_error);
      }
      const auto newest = list_checkpoints(backup.folder);
      ASSERT_FALSE(newest.empty());
      const int64_t steps_per_epoch = kStepsOfFit / kFitEpochs;
      const int64_t saved = every.unit == SaveUnit::kEpochs  ? (kFitEpochs - 1) * steps_per_epoch
                            : every.unit == SaveUnit::kSteps ? (kStepsOfFit - 2) / 2 * 2
                                                             : kStepsOfFit - 2;
      EXPECT_EQ(read_manifest(newest.front()).step, saved);
      auto strategy = make_strategy();
      fit_noisily(strategy, {.backup = backup}).expect_equal(whole, every.str());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Replicas, BackupAndRestoreOnReplicas, ::testing::Values(1, 2, 3));

TEST(BackupAndRestoreTest, AnotherNumberOfReplicasTakesEveryExampleOnceAnEpoch) {
  // Without noise and per-replica statistics, any number of replicas gives the same within rounding.
  for (const auto& [before, after] : std::vector<std::pair<int, int>>{{2, 1}, {1, 2}, {3, 2}}) {
    const TemporaryFolder folder;
    const auto data = examples_of_three_classes();
    const auto fit = [&](int replicas, const Callbacks& callbacks, bool is_backed_up) {
      MirroredStrategy strategy(cpu_devices(replicas), {.intra_op_threads = 1, .seed = 7});
      torch::manual_seed(17);
      Trainer trainer(strategy, [](ReplicaContext&) { return TanhNet(); }, momentum_sgd(), cross_entropy,
                      {{"accuracy", CategoricalAccuracy()}, {"confusion", ConfusionMatrix(3)}});
      auto all = callbacks;
      if (is_backed_up)
        all.push_back(std::make_shared<BackupAndRestore>(quiet_backup(folder.file("backup"))));
      const auto history = trainer.fit(TensorDataset(data.data, data.target),
                                       {.epochs = kFitEpochs,
                                        .callbacks = all,
                                        .batches = {.global_batch_size = kBatchSize, .shuffle_seed = 5}});
      return std::pair(values_of(trainer.model().primary()->parameters()), history);
    };
    const auto [expected, whole] = fit(1, {}, false);
    fit(before, {interrupt_after(5)}, true);
    const auto [parameters, history] = fit(after, {}, true);
    EXPECT_LT(largest_difference(parameters, expected), 1e-12) << before << " to " << after;
    ASSERT_EQ(history.epochs.size(), whole.epochs.size());
    for (size_t epoch = 0; epoch < history.epochs.size(); ++epoch) {
      // Over all examples of the epoch, including those before the interruption.
      EXPECT_NEAR(*history.epochs[epoch].find("loss"), *whole.epochs[epoch].find("loss"), 1e-12);
      EXPECT_EQ(history.epochs[epoch].find("accuracy"), whole.epochs[epoch].find("accuracy"));
    }
  }
}

TEST(BackupAndRestoreTest, AFinishedFitIsResumedAtItsEnd) {
  const TemporaryFolder folder;
  auto backup = quiet_backup(folder.file("backup"));
  backup.save_every = SaveInterval::steps(1000);
  const auto fit = [](const FitSetUp& set_up) {
    MirroredStrategy strategy(cpu_devices(2), {.seed = 7});
    return fit_noisily(strategy, set_up);
  };
  const Outcome whole = fit({.backup = backup});
  fit({.backup = backup}).expect_equal(whole, "at its end");
  // With fewer epochs there is nothing to do, and nothing is lost.
  EXPECT_EQ(fit({.backup = backup, .epochs = 1}).epochs.size(), kFitEpochs);
  // With more epochs it continues as if it had them from the beginning, whatever the end of the first fit,
  // where EarlyStopping restores the best weights, did to the model.
  fit({.backup = backup, .epochs = kFitEpochs + 2})
      .expect_equal(fit({.epochs = kFitEpochs + 2}), "with two more epochs");
}

TEST(BackupAndRestoreTest, TellsTheConfigurationThatTheCheckpointWasSavedWith) {
  const TemporaryFolder folder;
  std::vector<std::string> resumed_from;
  for (const std::string configuration : {"first", "second", "third"}) {
    auto backup = quiet_backup(folder.file("backup"));
    backup.configuration = configuration;
    backup.on_resume = [&](const std::string& earlier) { resumed_from.push_back(earlier); };
    MirroredStrategy strategy(cpu_devices(1), {.seed = 7});
    // The third fit finds the second one's checkpoint, which has one epoch more than the first one's.
    fit_noisily(strategy, {.backup = backup, .epochs = configuration == "first" ? 1 : 2});
  }
  EXPECT_EQ(resumed_from, (std::vector<std::string>{"first", "second"}));
}

TEST(BackupAndRestoreTest, AFitThatWasStoppedEarlyStaysSoHoweverOftenItIsStarted) {
  const TemporaryFolder folder;
  const auto backup = quiet_backup(folder.file("backup"));
  const auto fit = [&](int64_t patience) {
    MirroredStrategy strategy(cpu_devices(1), {.seed = 7});
    // No value is better than the first.
    const MonitorOptions never{.name = "loss", .min_delta = 1000};
    return fit_noisily(strategy, {.callbacks = {std::make_shared<EarlyStopping>(
                                      EarlyStoppingOptions{.monitor = never, .patience = patience})},
                                  .backup = backup,
                                  .epochs = 10});
  };
  EXPECT_EQ(fit(2).epochs.size(), 3);
  for (int start = 0; start < 3; ++start) {
    EXPECT_EQ(fit(2).epochs.size(), 3);
    EXPECT_EQ(read_manifest(list_checkpoints(backup.folder).front()).epoch, 3);
  }
  // With more patience it continues where it stopped.
  EXPECT_EQ(fit(4).epochs.size(), 5);
}

TEST(BackupAndRestoreTest, AnotherBatchSizeWithinAnEpochIsRefused) {
  const TemporaryFolder folder;
  const auto backup = quiet_backup(folder.file("backup"));
  MirroredStrategy strategy(cpu_devices(1), {.seed = 7});
  fit_noisily(strategy, {.callbacks = {interrupt_after(4)}, .backup = backup});
  EXPECT_THAT(error_of<CheckpointError>(
                  [&] { fit_noisily(strategy, {.backup = backup, .batch_size = kBatchSize - 1}); }),
              HasSubstr("as many batches: 3, but got 4"));
}

TEST(BackupAndRestoreTest, AnotherOrderWithinAnEpochIsRefused) {
  const TemporaryFolder folder;
  const auto backup = quiet_backup(folder.file("backup"));
  MirroredStrategy strategy(cpu_devices(1), {.seed = 7});
  fit_noisily(strategy, {.callbacks = {interrupt_after(4)}, .backup = backup});
  EXPECT_THAT(
      error_of<CheckpointError>([&] { fit_noisily(strategy, {.backup = backup, .shuffle_seed = 6}); }),
      HasSubstr("within an epoch of batches of 5 out of 13 examples, shuffled with seed 5, but got "
                "batches of 5 out of 13 examples, shuffled with seed 6"));
}

TEST(BackupAndRestoreTest, AStateThatIsNotFiniteTakesNoCheckpointsPlace) {
  const auto break_model = after_step(3, [](FitState& state) {
    const torch::NoGradGuard no_grad;
    state.objects().modules.front()->parameters().front().fill_(NAN);
  });
  const TemporaryFolder folder;
  auto backup = quiet_backup(folder.file("backup"));
  backup.save_every = SaveInterval::steps(1);
  MirroredStrategy strategy(cpu_devices(1), {.seed = 7});
  // The loss does not show it before step 4.
  EXPECT_THAT(
      error_of<NotFinite>([&] { fit_noisily(strategy, {.callbacks = {break_model}, .backup = backup}); }),
      HasSubstr("after epoch 1, step 3, replica 0 has NaN or infinity in parameter dense."));
  EXPECT_EQ(read_manifest(list_checkpoints(backup.folder).front()).step, 2);
}

TEST(BackupAndRestoreTest, KeepsTheBestEpochsCheckpointOverInterruptions) {
  /// The first epoch is the best; among the later ones, each is better than the one before.
  class Score : public Callback {
   public:
    void on_epoch_end(FitState& state) override {
      state.logs.set("score", state.epoch == 1 ? 100.0 : static_cast<double>(state.epoch));
    }
  };
  constexpr int64_t kStepsOfEpoch = kStepsOfFit / kFitEpochs;
  MirroredStrategy strategy(cpu_devices(1), {.seed = 7});
  const TemporaryFolder folder;
  auto backup = quiet_backup(folder.file("backup"));
  backup.keep_last = 1;
  const MonitorOptions best{.name = "score", .mode = MonitorMode::kMax};
  const auto steps = [&] {
    std::vector<int64_t> kept;
    for (const auto& path : list_checkpoints(backup.folder)) {
      kept.push_back(read_manifest(path).step);
      EXPECT_EQ(read_manifest(path).is_best, kept.back() == kStepsOfEpoch);
    }
    return kept;
  };
  fit_noisily(strategy, {.callbacks = {std::make_shared<Score>(), interrupt_after(kStepsOfEpoch + 2)},
                         .backup = backup,
                         .best = best});
  EXPECT_THAT(steps(), ElementsAre(kStepsOfEpoch + 2, kStepsOfEpoch));
  fit_noisily(strategy, {.callbacks = {std::make_shared<Score>()}, .backup = backup, .best = best});
  EXPECT_THAT(steps(), ElementsAre(kStepsOfFit, kStepsOfEpoch));
}

TEST(BackupAndRestoreTest, RemovesTheCheckpointsOnSuccessOnlyAndOnRequest) {
  const TemporaryFolder folder;
  auto backup = quiet_backup(folder.file("backup"));
  backup.delete_on_success = true;
  MirroredStrategy strategy(cpu_devices(1));
  fit_noisily(strategy, {.callbacks = {interrupt_after(5)}, .backup = backup});
  EXPECT_FALSE(list_checkpoints(backup.folder).empty());
  fit_noisily(strategy, {.backup = backup});
  EXPECT_THAT(testing::names_in(backup.folder), IsEmpty());
}

/// Fits on the workers of `layout` once undisturbed, and once interrupted after step 5 and resumed. Expects
/// the same outcome on each. `backup_of` says where a worker saves.
void expect_workers_resume(const std::vector<int>& layout,
                           const std::function<BackupOptions(size_t rank)>& backup_of) {
  std::vector<Outcome> whole(layout.size()), part(layout.size()), resumed(layout.size());
  const auto fit_into = [&](std::vector<Outcome>& outcomes, const Callbacks& callbacks, bool is_backed_up) {
    expect_no_worker_failed(run_strategies(
        layout,
        [&](MultiWorkerMirroredStrategy& strategy) {
          const auto rank = static_cast<size_t>(strategy.cluster_resolver()->rank());
          FitSetUp set_up{.callbacks = callbacks};
          if (is_backed_up) set_up.backup = backup_of(rank);
          outcomes[rank] = fit_noisily(strategy, set_up);
        },
        [](int, WorkerSetUp& set_up) { set_up.options.seed = 7; }));
  };
  fit_into(whole, {}, false);
  fit_into(part, {interrupt_after(5)}, true);
  fit_into(resumed, {}, true);
  for (size_t rank = 0; rank < layout.size(); ++rank)
    resumed[rank].expect_equal(whole[rank], "worker " + std::to_string(rank));
}

TEST(BackupAndRestoreTest, WorkersResumeFromWorkerZerosFolder) {
  for (const std::vector<int>& layout : {std::vector<int>{1, 1}, {2, 1}, {1, 1, 1}}) {
    const TemporaryFolder folder;
    // Only worker 0's folder is used: the others' cannot be made.
    expect_workers_resume(layout, [&](size_t rank) {
      return quiet_backup(rank == 0 ? folder.file("backup") : "/proc/none/backup");
    });
  }
}

TEST(BackupAndRestoreTest, WorkersResumeFromWhatTheyHaveWrittenTogether) {
  for (const std::vector<int>& layout : {std::vector<int>{1, 1}, {2, 1}, {1, 1, 1}}) {
    for (const bool asynchronous : {false, true}) {
      const TemporaryFolder folder;
      expect_workers_resume(layout, [&](size_t) {
        auto backup = quiet_backup(folder.file("backup"));
        backup.save_every = SaveInterval::steps(2);
        backup.asynchronous = asynchronous;
        backup.sharded = true;
        return backup;
      });
    }
  }
}

TEST(BackupAndRestoreTest, AMetricThatCannotBeRestoredIsNamed) {
  const TemporaryFolder folder;
  MirroredStrategy strategy(cpu_devices(1));
  const auto data = examples_of_three_classes();
  Trainer trainer(strategy, [](ReplicaContext&) { return TanhNet(); }, momentum_sgd(), cross_entropy,
                  {{"fixed", FixedMetric()}});
  auto backup = quiet_backup(folder.file("backup"));
  backup.save_every = SaveInterval::steps(1);
  EXPECT_THAT(error_of<InvalidArgument>([&] {
                trainer.fit(data.data, data.target,
                            {.callbacks = {std::make_shared<BackupAndRestore>(backup)}});
              }),
              HasSubstr("'fixed' has none"));
}

}  // namespace
}  // namespace lockstep
