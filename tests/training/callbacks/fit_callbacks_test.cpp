#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/after_step.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/one_device_equivalence.h"
#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/training/callbacks/backup_and_restore.h"
#include "lockstep/training/callbacks/early_stopping.h"
#include "lockstep/training/callbacks/learning_rate_schedule.h"
#include "lockstep/training/callbacks/model_checkpoint.h"
#include "lockstep/training/metrics/loss_functions.h"
#include "lockstep/training/trainer/trainer.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Records its calls.
class CallRecorder : public Callback {
 public:
  explicit CallRecorder(int64_t stop_after = -1) : stop_after_(stop_after) {}
  void on_fit_begin(FitState&) override { calls.emplace_back("fit begin"); }
  void on_epoch_begin(FitState& state) override { add("epoch begin", state.epoch); }
  void on_step_begin(FitState& state) override { rates_before.push_back(state.learning_rate()); }
  void on_step_end(FitState& state) override {
    add("step", state.step);
    rates.push_back(state.learning_rate());
    if (state.global_step == stop_after_) state.stop("enough");
  }
  void on_test_begin(FitState&) override { calls.emplace_back("test begin"); }
  void on_test_step_end(FitState& state) override { add("test step", state.test_step); }
  void on_epoch_end(FitState& state) override { add("epoch end", state.examples); }
  void on_fit_end(FitState& state) override { add("fit end", state.epoch); }

  std::vector<std::string> calls;
  std::vector<double> rates;
  std::vector<double> rates_before;

 private:
  void add(const std::string& what, int64_t number) { calls.push_back(what + " " + std::to_string(number)); }
  int64_t stop_after_;
};

/// Sets each epoch's loss to what the test says.
class ScriptedLoss : public Callback {
 public:
  explicit ScriptedLoss(std::vector<double> losses) : losses_(std::move(losses)) {}
  void on_epoch_end(FitState& state) override {
    state.logs.set("loss", losses_[static_cast<size_t>(state.epoch - 1)]);
  }

 private:
  std::vector<double> losses_;
};

class FitCallbacks : public ::testing::Test {
 protected:
  MirroredStrategy strategy_{cpu_devices(2), {.intra_op_threads = 1}};
  Example data_ = examples_of_three_classes();
  Trainer<TanhNet> trainer_{strategy_, [](ReplicaContext&) { return TanhNet(); }, momentum_sgd(),
                            cross_entropy};
  FitOptions<> options_{.batches = {.global_batch_size = kBatchSize}};

  History fit(int64_t epochs, Callbacks callbacks) {
    options_.epochs = epochs;
    options_.callbacks = std::move(callbacks);
    return trainer_.fit(data_.data, data_.target, options_);
  }
  History fit_scripted(std::vector<double> losses, std::shared_ptr<Callback> callback,
                       std::shared_ptr<Callback> other = std::make_shared<Callback>()) {
    const auto epochs = static_cast<int64_t>(losses.size());
    return fit(epochs,
               {std::make_shared<ScriptedLoss>(std::move(losses)), std::move(callback), std::move(other)});
  }
};

TEST_F(FitCallbacks, AreCalledInOrderWithHowFarTheFitIs) {
  const auto recorder = std::make_shared<CallRecorder>();
  options_.validation =
      strategy_.distribute_dataset(detail::TensorPairs(data_.data, data_.target), {.global_batch_size = 7});
  options_.steps_per_epoch = 2;
  const auto history = fit(2, {recorder});
  EXPECT_THAT(recorder->calls,
              ElementsAre("fit begin",  //
                          "epoch begin 1", "step 1", "step 2", "test begin", "test step 1", "test step 2",
                          "epoch end 10",  //
                          // The dataset's last batch has 3 examples.
                          "epoch begin 2", "step 1", "step 2", "test begin", "test step 1", "test step 2",
                          "epoch end 8",  //
                          "fit end 2"));
  EXPECT_EQ(history.stop_reason, "");
}

TEST_F(FitCallbacks, StopAfterTheStepTheyAreIn) {
  const auto recorder = std::make_shared<CallRecorder>(4);
  const auto history = fit(3, {recorder});
  EXPECT_THAT(recorder->calls, ElementsAre("fit begin", "epoch begin 1", "step 1", "step 2", "step 3",
                                           "epoch end 13", "epoch begin 2", "step 1", "fit end 2"));
  EXPECT_EQ(history.epochs.size(), 1U);
  EXPECT_EQ(history.steps, 4);
  EXPECT_EQ(history.stop_reason, "enough");
}

TEST_F(FitCallbacks, GoOnFromWhereAnEarlierFitEnded) {
  const auto recorder = std::make_shared<CallRecorder>();
  options_.epochs_done = 4;
  options_.steps_done = 12;
  const auto history = fit(1, {recorder, cosine_schedule(1.0)});
  EXPECT_EQ(recorder->calls[1], "epoch begin 5");
  EXPECT_EQ(recorder->rates.front(), cosine_decay(12, 15));
  EXPECT_EQ(history.steps, 3);
}

TEST_F(FitCallbacks, CosineScheduleWarmsUpAndFalls) {
  const auto recorder = std::make_shared<CallRecorder>();
  fit(2, {cosine_schedule(0.5, {.warmup_steps = 2}), recorder});
  EXPECT_THAT(recorder->rates, ElementsAre(0.25, 0.5, 0.5, 0.5 * cosine_decay(1, 4), 0.5 * cosine_decay(2, 4),
                                           0.5 * cosine_decay(3, 4)));
}

TEST_F(FitCallbacks, CosineScheduleNeedsToKnowItsEnd) {
  const auto make = [this](const InputContext&) {
    return [this, done = false]() mutable -> std::optional<Example> {
      if (std::exchange(done, true)) return std::nullopt;
      return data_;
    };
  };
  auto stream = strategy_.distribute_datasets_from_function(make);
  EXPECT_THROW(trainer_.fit(stream, {.callbacks = {cosine_schedule(0.5)}}), InvalidArgument);
  EXPECT_NO_THROW(trainer_.fit(stream, {.callbacks = {cosine_schedule(0.5, {.num_steps = 10})}}));
}

TEST_F(FitCallbacks, StepScheduleFallsEverySoManyEpochs) {
  const auto recorder = std::make_shared<CallRecorder>();
  options_.steps_per_epoch = 1;
  fit(5, {step_schedule(1.0, {.epochs = 2, .factor = 0.5}), recorder});
  EXPECT_THAT(recorder->rates, ElementsAre(1, 1, 0.5, 0.5, 0.25));
}

TEST_F(FitCallbacks, ReduceOnPlateauFallsWhereNothingGetsBetter) {
  const auto recorder = std::make_shared<CallRecorder>();
  options_.steps_per_epoch = 1;
  trainer_.optimizer().local_values();
  fit_scripted({3, 2, 2, 2, 2, 1},
               std::make_shared<ReduceOnPlateau>(
                   ReduceOnPlateauOptions{.monitor = {.name = "loss"}, .factor = 0.5, .patience = 2}),
               recorder);
  // Epochs 3 and 4 are no better than 2.
  EXPECT_THAT(recorder->rates, ElementsAre(0.1, 0.1, 0.1, 0.1, 0.05, 0.05));
}

TEST_F(FitCallbacks, KeepTheRatiosOfParameterGroups) {
  Trainer<TanhNet> trainer(
      strategy_, [](ReplicaContext&) { return TanhNet(); },
      [](TanhNet& model) {
        std::vector<torch::optim::OptimizerParamGroup> groups;
        groups.emplace_back(model->first->parameters());
        groups.emplace_back(model->second->parameters(), std::make_unique<torch::optim::SGDOptions>(0.4));
        return torch::optim::SGD(groups, torch::optim::SGDOptions(0.1));
      },
      cross_entropy);
  options_.callbacks = {constant_schedule(0.5)};
  trainer.fit(data_.data, data_.target, options_);
  for (auto& optimizer : trainer.optimizer().local_values()) {
    EXPECT_DOUBLE_EQ(optimizer->param_groups()[0].options().get_lr(), 0.5);
    EXPECT_DOUBLE_EQ(optimizer->param_groups()[1].options().get_lr(), 2.0);
  }
}

TEST_F(FitCallbacks, TellNoReasonWhereTheLastEpochWasDone) {
  const auto stopping =
      std::make_shared<EarlyStopping>(EarlyStoppingOptions{.monitor = {.name = "loss"}, .patience = 1});
  const auto history = fit_scripted({1, 2}, stopping);
  EXPECT_EQ(history.epochs.size(), 2U);
  EXPECT_EQ(history.stop_reason, "");
}

TEST_F(FitCallbacks, EarlyStoppingStopsAfterItsPatienceAndPutsTheBestBack) {
  /// Keeps the parameters of every epoch.
  class Keeper : public Callback {
   public:
    void on_epoch_end(FitState& state) override {
      kept.push_back(values_of(state.objects().modules.front()->parameters()));
    }
    std::vector<std::vector<torch::Tensor>> kept;
  };
  const auto keeper = std::make_shared<Keeper>();
  const auto stopping = std::make_shared<EarlyStopping>(
      EarlyStoppingOptions{.monitor = {.name = "loss"}, .patience = 2, .restore_best = true});
  const auto history = fit_scripted({3, 1, 2, std::numeric_limits<double>::quiet_NaN(), 0}, stopping, keeper);
  EXPECT_EQ(history.epochs.size(), 4U);
  EXPECT_EQ(stopping->best_epoch(), 2);
  EXPECT_EQ(history.stop_reason, "loss is not better than in epoch 2 since 2 epochs");
  for (const auto& model : trainer_.model().local_values())
    EXPECT_TRUE(bit_equal(values_of(model->parameters()), keeper->kept[1]));
}

TEST_F(FitCallbacks, AWrongMonitorIsRefusedBeforeTheFirstEpoch) {
  const auto message_for = [&](const std::shared_ptr<Callback>& callback) {
    const auto recorder = std::make_shared<CallRecorder>();
    const auto message = message_of<InvalidArgument>([&] { fit(1, {recorder, callback}); });
    EXPECT_THAT(recorder->calls, ElementsAre("fit begin"));
    return message;
  };
  EXPECT_EQ(message_for(std::make_shared<EarlyStopping>()),
            "[EarlyStopping] expected one of loss, learning_rate, examples_per_second, data_wait to monitor, "
            "but got 'validation_loss'; to validate after every epoch, set FitOptions::validation");
  const MonitorOptions of_keras{.name = "val_loss"};
  EXPECT_THAT(message_for(std::make_shared<ReduceOnPlateau>(ReduceOnPlateauOptions{.monitor = of_keras})),
              AllOf(StartsWith("[ReduceOnPlateau] "), HasSubstr("set FitOptions::validation")));
  options_.validation = {data_.data, data_.target};
  EXPECT_EQ(message_for(std::make_shared<EarlyStopping>(EarlyStoppingOptions{.monitor = of_keras})),
            "[EarlyStopping] expected one of loss, learning_rate, examples_per_second, data_wait, "
            "validation_loss to monitor, but got 'val_loss'; the validation's value is called "
            "'validation_loss'");
  const testing::TemporaryFolder folder;
  EXPECT_THAT(message_for(std::make_shared<ModelCheckpoint>(
                  ModelCheckpointOptions{.folder = folder.path(), .monitor = of_keras})),
              StartsWith("[ModelCheckpoint] "));
  EXPECT_THAT(
      message_for(std::make_shared<BackupAndRestore>(BackupOptions{.folder = folder.path()}, of_keras)),
      StartsWith("[BackupAndRestore] "));
}

TEST_F(FitCallbacks, AMonitorMayWatchAValueThatACallbackAdds) {
  /// Adds a value of its own after each epoch.
  class AddScore : public Callback {
   public:
    void on_epoch_end(FitState& state) override { state.logs.set("score", 1); }
  };
  const auto stopping =
      std::make_shared<EarlyStopping>(EarlyStoppingOptions{.monitor = {.name = "score"}, .patience = 2});
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(fit(5, {std::make_shared<AddScore>(), stopping}).epochs.size(), 3U);
  // It might be a mistake, which would cost an epoch.
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("[EarlyStopping] no value is called 'score' among loss, learning_rate, "));
  EXPECT_THAT(message_of<InvalidArgument>([&] { fit(1, {stopping}); }), HasSubstr("but got 'score'"));
}

TEST(FitCallbackOptions, AreCheckedWhereTheyAreGiven) {
  EXPECT_EQ(
      message_of<InvalidArgument>([] { EarlyStopping stopping({.patience = 0}); }),
      "[EarlyStopping] expected a patience of 1 or more epochs, but got 0; 1 stops after the first epoch "
      "that is not better, as Keras's 0 does");
  EXPECT_THROW(EarlyStopping({.monitor = {.min_delta = -1}}), InvalidArgument);
  EXPECT_THROW(ReduceOnPlateau({.factor = 1}), InvalidArgument);
  EXPECT_THROW(ReduceOnPlateau({.patience = 0}), InvalidArgument);
  EXPECT_THROW(cosine_schedule(0), InvalidArgument);
  EXPECT_THROW(cosine_schedule(1, {.warmup_steps = -1}), InvalidArgument);
  EXPECT_THROW(step_schedule(1, {.epochs = 0}), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
