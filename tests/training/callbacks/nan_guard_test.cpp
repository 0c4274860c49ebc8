#include "lockstep/training/callbacks/nan_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/after_step.h"
#include "lockstep/tests/support/checkpoint_files.h"
#include "lockstep/tests/support/one_device_equivalence.h"
#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/tests/support/worker_training.h"
#include "lockstep/tests/training/callbacks/fixed_metric.h"
#include "lockstep/training/callbacks/backup_and_restore.h"
#include "lockstep/training/callbacks/fit_records.h"
#include "lockstep/training/metrics/loss_functions.h"
#include "lockstep/training/metrics/metrics.h"
#include "lockstep/training/optimizers/fused_adam.h"
#include "lockstep/training/state/optimizer_state.h"
#include "lockstep/training/trainer/trainer.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TemporaryFolder;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kGuardedBatch = 8;
constexpr int64_t kGuardedBatches = 6;

/// A net with statistics, which a bad batch spoils even if no step uses it.
struct GuardedNetImpl : torch::nn::Module {
  GuardedNetImpl() {
    norm = register_module("norm", torch::nn::BatchNorm1d(6));
    dense = register_module("dense", torch::nn::Linear(6, 3));
    to(torch::kDouble);
    // Not drawn: workers in threads share the process's generator.
    const torch::NoGradGuard no_grad;
    dense->weight.copy_(torch::linspace(-1, 1, 18, torch::kDouble).reshape({3, 6}));
    dense->bias.zero_();
  }
  torch::Tensor forward(const torch::Tensor& x) { return dense(norm(x)); }
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Linear dense{nullptr};
};
TORCH_MODULE(GuardedNet);

Example guarded_examples() {
  torch::manual_seed(3);
  const auto data = torch::randn({kGuardedBatch * kGuardedBatches, 6}, torch::kDouble);
  return {data, data.narrow(1, 0, 3).argmax(1)};
}

/// Sets a value of one row of each of these batches, counted from 0, to `value`.
Example with_broken(const Example& examples, const std::vector<int64_t>& batches, double value = kNaN) {
  auto data = examples.data.clone();
  for (const int64_t batch : batches) data[batch * kGuardedBatch + 5][2] = value;
  return {data, examples.target};
}

Example without(const Example& examples, const std::vector<int64_t>& batches) {
  std::vector<torch::Tensor> rows;
  for (int64_t batch = 0; batch < kGuardedBatches; ++batch) {
    if (std::find(batches.begin(), batches.end(), batch) != batches.end()) continue;
    rows.push_back(torch::arange(batch * kGuardedBatch, (batch + 1) * kGuardedBatch));
  }
  const auto kept = torch::cat(rows);
  return {examples.data.index_select(0, kept), examples.target.index_select(0, kept)};
}

/// The outcome of a fit: parameters, buffers and optimizer states of all local replicas, and the logs.
struct GuardedOutcome {
  std::vector<torch::Tensor> tensors;
  std::vector<double> losses;
  std::vector<double> accuracies;

  void expect_equal(const GuardedOutcome& expected, const std::string& what) const {
    EXPECT_TRUE(bit_equal(tensors, expected.tensors)) << what;
    EXPECT_EQ(losses, expected.losses) << what;
    EXPECT_EQ(accuracies, expected.accuracies) << what;
  }
};

GuardedOutcome fit_guarded(Strategy& strategy, const Example& examples, Callbacks callbacks,
                           int64_t epochs = 2) {
  Trainer trainer(
      strategy, [](ReplicaContext&) { return GuardedNet(); },
      [](const auto& parameters) { return FusedAdam(parameters, 0.05); }, cross_entropy,
      {{"accuracy", CategoricalAccuracy()}});
  const auto history = trainer.fit(
      examples.data, examples.target,
      {.epochs = epochs, .callbacks = std::move(callbacks), .batches = {.global_batch_size = kGuardedBatch}});
  GuardedOutcome outcome;
  const auto add = [&](const std::string&, const torch::Tensor& tensor) {
    outcome.tensors.push_back(tensor.detach().clone());
  };
  for (const auto& model : trainer.model().local_values()) {
    for (const auto& tensor : model->parameters()) add("", tensor);
    for (const auto& tensor : model->buffers()) add("", tensor);
  }
  for (const auto& optimizer : trainer.optimizer().local_values())
    visit_tensors(StateValue(optimizer_state(*optimizer)), add);
  for (const auto& logs : history.epochs) {
    outcome.losses.push_back(*logs.find("loss"));
    outcome.accuracies.push_back(*logs.find("accuracy"));
  }
  return outcome;
}

class NanGuardTest : public ::testing::Test {
 protected:
  std::shared_ptr<NanGuard> guard(NotFiniteAction action, int64_t every_steps = 0,
                                  int64_t max_consecutive = 3) {
    return std::make_shared<NanGuard>(
        NanGuardOptions{.every_steps = every_steps,
                        .action = action,
                        .max_consecutive = max_consecutive,
                        .on_message = [this](const std::string& line) { lines_.push_back(line); }});
  }

  MirroredStrategy strategy_{cpu_devices(2), {.intra_op_threads = 1}};
  Example examples_ = guarded_examples();
  std::vector<std::string> lines_;
};

TEST_F(NanGuardTest, NamesTheFirstStepAndReplica) {
  const auto broken = with_broken(examples_, {1, 3});
  for (const int64_t every : {0, 1, 4}) {
    int64_t steps = 0;
    const auto last = testing::after_step(kGuardedBatches, [&](FitState&) { ++steps; });
    try {
      fit_guarded(strategy_, broken, {guard(NotFiniteAction::kStop, every), last});
      FAIL() << "nothing was thrown";
    } catch (const NotFinite& error) {
      EXPECT_EQ(error.place().epoch, 1);
      EXPECT_EQ(error.place().step, 2);
      EXPECT_EQ(error.place().replica, 1);  // has rows 4 to 7 of each batch
      EXPECT_EQ(error.place().device, cpu_devices(2)[1]);
    }
    EXPECT_EQ(steps, every == 0 ? 1 : 0) << "steps after the look";
  }
}

TEST_F(NanGuardTest, FindsAParameterThatNoLossHasShownYet) {
  const auto break_last = testing::after_step(kGuardedBatches, [](FitState& state) {
    const torch::NoGradGuard no_grad;
    state.objects().modules[1]->parameters().back()[0] = INFINITY;
  });
  try {
    fit_guarded(strategy_, examples_, {break_last, guard(NotFiniteAction::kStop)}, 1);
    FAIL() << "nothing was thrown";
  } catch (const NotFinite& error) {
    EXPECT_EQ(error.place().step, kGuardedBatches);
    EXPECT_EQ(error.place().replica, 1);
    EXPECT_EQ(error.place().tensor, "parameter dense.bias");
  }
}

TEST_F(NanGuardTest, WithoutSuchAStepItChangesNothing) {
  const auto expected = fit_guarded(strategy_, examples_, {});
  for (const auto action : {NotFiniteAction::kStop, NotFiniteAction::kSkip, NotFiniteAction::kRollBack})
    fit_guarded(strategy_, examples_, {guard(action, 2)}).expect_equal(expected, "action");
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(NanGuardTest, SkipsAStepAsIfItsBatchHadNotBeenThere) {
  for (const std::vector<int64_t>& batches :
       std::vector<std::vector<int64_t>>{{0}, {2}, {kGuardedBatches - 1}, {0, 1, 4}}) {
    for (const double value : {kNaN, std::numeric_limits<double>::infinity()}) {
      const auto expected = fit_guarded(strategy_, without(examples_, batches), {});
      const auto skip = guard(NotFiniteAction::kSkip);
      fit_guarded(strategy_, with_broken(examples_, batches, value), {skip})
          .expect_equal(expected, ::testing::PrintToString(batches));
      EXPECT_EQ(skip->num_undone(), 2 * static_cast<int64_t>(batches.size()));  // in each epoch
    }
  }
}

TEST_F(NanGuardTest, SaysWhichStepsItHasUndone) {
  fit_guarded(strategy_, with_broken(examples_, {2}), {guard(NotFiniteAction::kSkip)}, 1);
  fit_guarded(strategy_, with_broken(examples_, {4, 5}), {guard(NotFiniteAction::kRollBack, 3)}, 1);
  const std::string replica = "replica 1 (" + cpu_devices(2)[1] + ")";
  EXPECT_THAT(lines_, ElementsAre("[fit] expected finite losses, but in epoch 1, step 3, " + replica +
                                      " has one that is not: the step is undone",
                                  "[fit] expected finite losses, but in epoch 1, step 5, " + replica +
                                      " has one that is not: the last 3 steps are undone"));
}

TEST_F(NanGuardTest, NamesTheStepOfTheEpochAfterOthersWereUndone) {
  fit_guarded(strategy_, with_broken(examples_, {1, 4}), {guard(NotFiniteAction::kSkip)}, 1);
  ASSERT_EQ(lines_.size(), 2U);
  EXPECT_THAT(lines_[1], HasSubstr("in epoch 1, step 5, replica 1"));
}

TEST_F(NanGuardTest, RollsBackToTheLastLookAtWhichAllWasFinite) {
  // Checks after steps 2 and 4 of 6, and at the epoch's end, which is after step 6.
  const auto expected = fit_guarded(strategy_, without(examples_, {2, 3}), {});
  fit_guarded(strategy_, with_broken(examples_, {2}), {guard(NotFiniteAction::kRollBack, 2)})
      .expect_equal(expected, "in the middle");
  // Checks after step 4 and at the end.
  const auto without_last = fit_guarded(strategy_, without(examples_, {4, 5}), {});
  fit_guarded(strategy_, with_broken(examples_, {4}), {guard(NotFiniteAction::kRollBack, 4)})
      .expect_equal(without_last, "at the end");
}

TEST_F(NanGuardTest, UndoesAWholeEpochWhereItLooksAtItsEndOnly) {
  const auto break_second = testing::after_step(kGuardedBatches + 2, [](FitState& state) {
    const torch::NoGradGuard no_grad;
    for (const auto& model : state.objects().modules) model->parameters().front().fill_(kNaN);
  });
  const auto expected = fit_guarded(strategy_, examples_, {}, 1);
  const auto outcome = fit_guarded(strategy_, examples_, {break_second, guard(NotFiniteAction::kRollBack)});
  EXPECT_TRUE(bit_equal(outcome.tensors, expected.tensors));
  EXPECT_TRUE(std::isnan(outcome.losses[1]));  // 0 would be the best of all
  EXPECT_TRUE(std::isnan(outcome.accuracies[1]));
}

TEST_F(NanGuardTest, AGoodEpochBetweenBadOnesIsNoConsecutiveOne) {
  const auto break_at = [](int64_t step) {
    return testing::after_step(step, [](FitState& state) {
      const torch::NoGradGuard no_grad;
      for (const auto& model : state.objects().modules) model->parameters().front().fill_(kNaN);
    });
  };
  const auto fit_with = [&](const std::vector<int64_t>& epochs) {
    Callbacks callbacks;
    for (const int64_t epoch : epochs) callbacks.push_back(break_at(epoch * kGuardedBatches));
    callbacks.push_back(guard(NotFiniteAction::kRollBack, 0, 1));
    fit_guarded(strategy_, examples_, callbacks, 6);
  };
  EXPECT_NO_THROW(fit_with({1, 3, 5}));
  EXPECT_THROW(fit_with({1, 3, 4}), NotFinite);
}

TEST_F(NanGuardTest, LeavesNoLossOfUndoneStepsInTheRecords) {
  class Records : public Callback {
   public:
    void on_epoch_begin(FitState& state) override { recorder_.begin_epoch(state); }
    void on_step_end(FitState& state) override { losses.push_back(recorder_.next(state).loss); }
    std::vector<std::optional<double>> losses;

   private:
    StepRecorder recorder_;
  };
  const auto records = [&](const Example& examples, Callbacks before) {
    const auto recorded = std::make_shared<Records>();
    before.push_back(recorded);
    fit_guarded(strategy_, examples, before, 1);
    return recorded->losses;
  };
  auto expected = records(without(examples_, {2}), {});
  const auto skipped = records(with_broken(examples_, {2}), {guard(NotFiniteAction::kSkip)});
  expected.insert(expected.begin() + 2, std::nullopt);
  EXPECT_EQ(skipped, expected);
}

TEST_F(NanGuardTest, EndsTheFitWhereTooManyLooksInARowFindThem) {
  const auto skip = guard(NotFiniteAction::kSkip, 0, 2);
  EXPECT_NO_THROW(fit_guarded(strategy_, with_broken(examples_, {0, 1, 3, 4}), {skip}));
  EXPECT_EQ(skip->num_undone(), 8);
  try {
    fit_guarded(strategy_, with_broken(examples_, {2, 3, 4}), {skip});
    FAIL() << "nothing was thrown";
  } catch (const NotFinite& error) {
    EXPECT_EQ(error.place().step, 5);
  }
}

TEST_F(NanGuardTest, PutsRightWhatIsToBeSaved) {
  const TemporaryFolder folder;
  const auto saving = [&](const std::string& name) {
    return std::make_shared<BackupAndRestore>(BackupOptions{.folder = folder.file(name),
                                                            .save_every = SaveInterval::steps(1),
                                                            .on_message = [](const std::string&) {}});
  };
  // The checkpoint is due after step 3, before the guard's own check.
  const auto expected = fit_guarded(strategy_, without(examples_, {2}), {}, 1);
  fit_guarded(strategy_, with_broken(examples_, {2}),
              {guard(NotFiniteAction::kRollBack, 2), saving("rolled back")}, 1);
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("step 3, replica 1 (" + cpu_devices(2)[1] +
                                            ") has one that is not: the step is undone")));
  // The last checkpoint holds what the guard has left.
  auto outcome = fit_guarded(strategy_, with_broken(examples_, {2}), {saving("rolled back")}, 1);
  EXPECT_TRUE(bit_equal(outcome.tensors, expected.tensors));
}

TEST_F(NanGuardTest, KeepsTheLearningRateThatIsSet) {
  const auto halve = testing::after_step(2, [](FitState& state) { state.set_learning_rate(0.025); });
  double rate = 0;
  const auto look = testing::after_step(3, [&](FitState& state) { rate = state.learning_rate(); });
  fit_guarded(strategy_, with_broken(examples_, {2}), {guard(NotFiniteAction::kSkip), halve, look}, 1);
  EXPECT_EQ(rate, 0.025);
}

TEST_F(NanGuardTest, RefusesToUndoWhereAMetricCannotBePutBack) {
  Trainer trainer(
      strategy_, [](ReplicaContext&) { return GuardedNet(); },
      [](const auto& parameters) { return FusedAdam(parameters, 0.05); }, cross_entropy,
      {{"unrestorable", FixedMetric()}});
  EXPECT_THAT(
      [&] { trainer.fit(examples_.data, examples_.target, {.callbacks = {guard(NotFiniteAction::kSkip)}}); },
      ::testing::ThrowsMessage<InvalidArgument>(HasSubstr("'unrestorable' has none")));
  EXPECT_NO_THROW(
      trainer.fit(examples_.data, examples_.target, {.callbacks = {guard(NotFiniteAction::kStop)}}));
}

TEST_F(NanGuardTest, RefusesASecondOneThatUndoes) {
  EXPECT_THROW(
      fit_guarded(strategy_, examples_, {guard(NotFiniteAction::kSkip), guard(NotFiniteAction::kRollBack)}),
      InvalidArgument);
}

TEST_F(NanGuardTest, RefusesOptionsOutOfRange) {
  EXPECT_THROW(NanGuard({.every_steps = -1}), InvalidArgument);
  EXPECT_THROW(NanGuard({.max_consecutive = 0}), InvalidArgument);
}

TEST(NanGuardOverWorkers, AllUndoTheSameStep) {
  const auto examples = guarded_examples();
  const auto data = with_broken(examples, {3});  // in the last replica's shard
  std::vector<GuardedOutcome> outcomes(2), expected(2);
  std::vector<int64_t> undone(2), lines(2);
  const auto train = [&](MultiWorkerMirroredStrategy& strategy) {
    const auto rank = static_cast<size_t>(strategy.cluster_resolver()->rank());
    const auto skip = std::make_shared<NanGuard>(NanGuardOptions{
        .action = NotFiniteAction::kSkip, .on_message = [&, rank](const std::string&) { ++lines[rank]; }});
    expected[rank] = fit_guarded(strategy, without(examples, {3}), {});
    outcomes[rank] = fit_guarded(strategy, data, {skip});
    undone[rank] = skip->num_undone();
  };
  expect_no_worker_failed(run_strategies({2, 1}, train, [](int, WorkerSetUp&) {}));
  for (size_t rank = 0; rank < 2; ++rank)
    outcomes[rank].expect_equal(expected[rank], "worker " + std::to_string(rank));
  EXPECT_THAT(undone, ElementsAre(2, 2));
  EXPECT_THAT(lines, ElementsAre(2, 0));  // only worker 0 reports it
}

}  // namespace
}  // namespace lockstep
