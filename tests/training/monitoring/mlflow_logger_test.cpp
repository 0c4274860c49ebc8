#include "lockstep/training/monitoring/mlflow_logger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/after_step.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/one_device_equivalence.h"
#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/tests/support/text_files.h"
#include "lockstep/tests/support/worker_strategies.h"
#include "lockstep/training/callbacks/backup_and_restore.h"
#include "lockstep/training/metrics/loss_functions.h"
#include "lockstep/training/trainer/trainer.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::interrupt_after;
using testing::names_in;
using testing::read_text;
using testing::TemporaryFolder;

/// A metric's values and steps, without its times.
using Points = std::vector<std::pair<std::string, int64_t>>;

Points points_of(const std::string& run, const std::string& metric) {
  Points points;
  std::istringstream words(read_text(run + "/metrics/" + metric));
  int64_t time = 0, step = 0;
  for (std::string value; words >> time >> value >> step;) points.emplace_back(value, step);
  return points;
}

class MlflowLoggerTest : public ::testing::Test {
 protected:
  std::shared_ptr<MlflowLogger> logger(const std::string& folder = "mlruns") const {
    return std::make_shared<MlflowLogger>(
        MlflowLoggerOptions{.run = {.folder = folder_.file(folder), .experiment = "digits", .name = "first"},
                            .parameters = {{"learning-rate", "0.1"}},
                            .log_every = 2});
  }
  History fit(Strategy& strategy, int64_t epochs, const Callbacks& callbacks) const {
    torch::manual_seed(17);
    Trainer<TanhNet> trainer(
        strategy, [](ReplicaContext&) { return TanhNet(); }, momentum_sgd(), cross_entropy);
    const detail::TensorPairs pairs(data_.data, data_.target);
    return trainer.fit(pairs, {.epochs = epochs,
                               .validation = strategy.distribute_dataset(pairs, {.global_batch_size = 7}),
                               .callbacks = callbacks,
                               .batches = {.global_batch_size = kBatchSize, .shuffle_seed = 3}});
  }
  History fit(int64_t epochs, const Callbacks& callbacks) {
    MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1});
    return fit(strategy, epochs, callbacks);
  }
  std::shared_ptr<BackupAndRestore> backup() const {
    return std::make_shared<BackupAndRestore>(
        BackupOptions{.folder = folder_.file("backup"), .on_message = [](const std::string&) {}});
  }
  /// The folders of all runs in the store's only experiment.
  std::vector<std::string> runs(const std::string& folder = "mlruns") const {
    const std::string experiment = folder_.file(folder) + "/" + names_in(folder_.file(folder)).at(0);
    std::vector<std::string> runs;
    for (const auto& name : names_in(experiment))
      if (name != "meta.yaml" && name != "tags") runs.push_back(experiment + "/" + name);
    return runs;
  }
  static std::string meta(const std::string& run) { return read_text(run + "/meta.yaml"); }

  TemporaryFolder folder_;
  Example data_ = examples_of_three_classes();
};

TEST_F(MlflowLoggerTest, WritesTheLogsOfEpochsAndOfSomeSteps) {
  const auto history = fit(2, {logger()});
  ASSERT_EQ(runs().size(), 1U);
  const std::string run = runs().front();
  for (const auto& [name, value] : history.epochs.back()) {
    const auto points = points_of(run, name);
    ASSERT_EQ(points.size(), 2U) << name;
    EXPECT_EQ(std::stod(points[1].first), value) << name;
    EXPECT_EQ(points[1].second, 6) << name;
  }
  EXPECT_THAT(points_of(run, "epoch"), ElementsAre(std::pair("1", 3), std::pair("2", 6)));
  std::vector<int64_t> steps;
  for (const auto& [value, step] : points_of(run, "step/loss")) steps.push_back(step);
  EXPECT_THAT(steps, ElementsAre(2, 4, 6));
  EXPECT_EQ(read_text(run + "/params/learning-rate"), "0.1");
  EXPECT_EQ(read_text(run + "/tags/mlflow.runName"), "first");
  EXPECT_THAT(meta(run), HasSubstr("status: 3\n"));  // FINISHED
}

TEST_F(MlflowLoggerTest, ContinuesTheRunOfAnInterruptedFit) {
  fit(3, {logger("whole")});
  const auto first = logger();
  fit(3, {first, interrupt_after(5), backup()});
  ASSERT_EQ(runs().size(), 1U);
  EXPECT_THAT(meta(runs().front()), HasSubstr("status: 5\n"));  // KILLED
  // The process was not killed at once: it trained and wrote further steps, which will be trained again.
  MlflowRun({.folder = folder_.file("mlruns"),
             .experiment = "digits",
             .id = std::filesystem::path(runs().front()).filename()})
      .add_metric("step/loss", 1e9, {.step = 6});
  fit(3, {logger(), backup()});
  ASSERT_EQ(runs().size(), 1U);
  const std::string run = runs().front(), whole = runs("whole").front();
  EXPECT_THAT(meta(run), HasSubstr("status: 3\n"));
  for (const std::string name : {"loss", "validation_loss", "epoch", "learning_rate", "step/learning_rate"})
    EXPECT_EQ(points_of(run, name), points_of(whole, name)) << name;
  // The record of steps starts over with the process.
  EXPECT_EQ(points_of(run, "step/loss").size(), points_of(whole, "step/loss").size());
  EXPECT_EQ(points_of(run, "step/loss").front(), points_of(whole, "step/loss").front());
}

TEST_F(MlflowLoggerTest, BeginsANewRunForEachFit) {
  const auto twice = logger();
  fit(1, {twice});
  fit(1, {twice});
  EXPECT_EQ(runs().size(), 2U);
}

TEST_F(MlflowLoggerTest, AppendsToTheRunOfAGivenId) {
  fit(2, {logger()});
  const std::string run = runs().front();
  const auto earlier = points_of(run, "learning_rate");
  auto twice = earlier;
  twice.insert(twice.end(), earlier.begin(), earlier.end());
  const auto again = std::make_shared<MlflowLogger>(
      MlflowLoggerOptions{.run = {.folder = folder_.file("mlruns"),
                                  .experiment = "digits",
                                  .id = std::filesystem::path(run).filename()}});
  fit(2, {again});  // from its first step on: nothing is resumed
  ASSERT_EQ(runs().size(), 1U);
  EXPECT_EQ(points_of(run, "learning_rate"), twice);
}

TEST_F(MlflowLoggerTest, SaysThatAFitFailed) {
  {
    const auto failing = logger();
    const auto breaks = testing::after_step(2, [](FitState&) { throw std::runtime_error("broken"); });
    EXPECT_THROW(fit(1, {failing, breaks}), std::runtime_error);
    EXPECT_THAT(meta(runs().front()), HasSubstr("status: 1\n"));  // RUNNING: nothing has changed it yet
  }
  EXPECT_THAT(meta(runs().front()), HasSubstr("status: 4\n"));  // FAILED
}

TEST_F(MlflowLoggerTest, LeavesTheRunOpenForArtifactsIfAsked) {
  const auto open = logger();
  open->keep_run();
  fit(1, {open});
  ASSERT_NE(open->run(), nullptr);
  EXPECT_THAT(meta(open->run()->folder()), HasSubstr("status: 1\n"));
  open->run()->set_artifact("report.html", "<html>");
  open->finish(RunStatus::kStoppedEarly, "good enough");
  EXPECT_EQ(open->run(), nullptr);
  const std::string run = runs().front();
  EXPECT_EQ(read_text(run + "/artifacts/report.html"), "<html>");
  EXPECT_EQ(read_text(run + "/tags/stop_reason"), "good enough");
  EXPECT_THAT(meta(run), HasSubstr("status: 3\n"));
}

TEST_F(MlflowLoggerTest, IsWrittenByTheChiefAlone) {
  const auto errors = run_strategies({1, 1}, [&](MultiWorkerMirroredStrategy& strategy) {
    const bool is_chief = strategy.cluster_resolver()->rank() == 0;
    fit(strategy, 1, {logger(is_chief ? "mlruns" : "others")});
  });
  for (const auto& error : errors) EXPECT_EQ(text_of(error), "none");
  EXPECT_EQ(runs().size(), 1U);
  EXPECT_FALSE(std::filesystem::exists(folder_.file("others")));
}

TEST_F(MlflowLoggerTest, RefusesWrongOptions) {
  EXPECT_THAT(message_of<InvalidArgument>([] { MlflowLogger callback({}); }), HasSubstr("a folder"));
  EXPECT_THAT(
      message_of<InvalidArgument>([] { MlflowLogger callback({.run = {.folder = "x"}, .log_every = 0}); }),
      HasSubstr("log_every of 1 or more steps, but got 0"));
}

}  // namespace
}  // namespace lockstep
