#include "lockstep/training/callbacks/record_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lockstep/runtime/base/internal/utc_text.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/after_step.h"
#include "lockstep/tests/support/one_device_equivalence.h"
#include "lockstep/tests/support/test_files.h"
#include "lockstep/training/callbacks/backup_and_restore.h"
#include "lockstep/training/callbacks/image_tensor.h"
#include "lockstep/training/callbacks/metrics_logger.h"
#include "lockstep/training/metrics/confusion_matrix.h"
#include "lockstep/training/metrics/loss_functions.h"
#include "lockstep/training/reporting/records/measured_pipeline.h"
#include "lockstep/training/trainer/trainer.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

constexpr const char* kSeconds = "%Y-%m-%dT%H:%M:%SZ";  // in this form, times sort as texts do

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<nlohmann::json> json_lines_of(const std::string& path) {
  std::vector<nlohmann::json> lines;
  std::istringstream text(content_of(path));
  for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

class RecordedFit : public ::testing::Test {
 protected:
  RecordedFit() {
    TrainerOptions<TanhNet> options;
    options.evaluation_metrics = {{"confusion", ConfusionMatrix(3)}};
    trainer_.emplace(
        strategy_, [](ReplicaContext&) { return TanhNet(); }, momentum_sgd(), cross_entropy,
        MetricList{{"accuracy", CategoricalAccuracy()}}, options);
  }

  History fit(const std::shared_ptr<Callback>& callback, int64_t epochs = 2) {
    return fit_with({callback}, epochs);
  }
  History fit_with(const Callbacks& callbacks, int64_t epochs = 2) {
    const detail::TensorPairs pairs(data_.data, data_.target);
    return trainer_->fit(pairs, {.epochs = epochs,
                                 .validation = strategy_.distribute_dataset(pairs, {.global_batch_size = 7}),
                                 .callbacks = callbacks,
                                 .batches = {.global_batch_size = kBatchSize}});
  }

  testing::TemporaryFolder folder_;
  RunDirectory directory_{folder_.path() + "/run"};
  MirroredStrategy strategy_{cpu_devices(2), {.intra_op_threads = 1}};
  Example data_ = examples_of_three_classes();
  std::optional<Trainer<TanhNet>> trainer_;
};

TEST_F(RecordedFit, WritesEveryEpochsLogs) {
  const auto record = std::make_shared<RecordRun>(directory_.paths());
  const auto history = fit(record);
  record->finish(RunStatus::kCompleted);
  std::vector<nlohmann::json> epochs;
  for (const auto& line : json_lines_of(directory_.paths().metrics_jsonl())) {
    if (line["kind"] == "epoch") epochs.push_back(line);
  }
  ASSERT_EQ(epochs.size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    for (const std::string name :
         {"loss", "accuracy", "validation_loss", "validation_accuracy", "learning_rate"})
      EXPECT_EQ(epochs[i][name].get<double>(), *history.epochs[i].find(name)) << name;
    EXPECT_EQ(epochs[i]["epoch"], i + 1);
    EXPECT_EQ(epochs[i]["step"], 3 * (i + 1));
  }
  const auto csv = content_of(directory_.paths().metrics_csv());
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 3);
  EXPECT_THAT(csv, ::testing::StartsWith("epoch,step,loss,accuracy,validation_loss,validation_accuracy,"));
}

TEST_F(RecordedFit, TellsItsStartUpFromItsTraining) {
  const auto began = std::chrono::steady_clock::now() - std::chrono::seconds(1000);
  const auto record = std::make_shared<RecordRun>(directory_.paths(), RecordRunOptions{.began = began});
  const auto history = fit(record);
  record->finish(RunStatus::kCompleted);
  const auto end = json_lines_of(directory_.paths().metrics_jsonl()).back();
  EXPECT_EQ(end["kind"], "end");
  EXPECT_GE(end["start_up_seconds"].get<double>(), 1000);
  EXPECT_LT(end["seconds"].get<double>(), 1000);
  EXPECT_EQ(end["images"], 2 * data_.target.size(0));
  EXPECT_FALSE(end.contains("steps_before"));
}

TEST_F(RecordedFit, WritesTheStepOfAPipelineAndChartsIt) {
  const auto schedule = one_forward_one_backward_schedule(2, 3);
  const auto record = std::make_shared<RecordRun>(directory_.paths());
  fit(record);
  record->set_pipeline(pipeline_record(
      schedule, simulate_pipeline(schedule, uniform_pipeline_times(schedule, 1, 2)), {.step = 2}));
  record->finish(RunStatus::kCompleted);
  std::vector<nlohmann::json> steps, actions;
  for (const auto& line : json_lines_of(directory_.paths().metrics_jsonl())) {
    if (line["kind"] == "pipeline") steps.push_back(line);
    if (line["kind"] == "pipeline_action") actions.push_back(line);
  }
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_EQ(steps[0]["step"], 2);
  EXPECT_EQ(steps[0]["schedule"], "1f1b");
  EXPECT_NEAR(steps[0]["bubble"].get<double>(), 1.0 / 4, 1e-12);
  ASSERT_EQ(actions.size(), 2 * 3 * 2 + 2 * 3 * 2);  // computations, and sends and receives
  EXPECT_EQ(steps[0]["actions"], actions.size());
  EXPECT_EQ(actions[0]["op"], "forward");
  EXPECT_EQ(actions[0]["end"], 1.0);
  EXPECT_THAT(content_of(directory_.paths().report()), HasSubstr("bubble planned 0.250, measured 0.250"));
}

TEST_F(RecordedFit, CountsTheExamplesOfAnEpochThatWasCut) {
  const auto record = std::make_shared<RecordRun>(directory_.paths());
  fit_with({record, testing::interrupt_after(2)});
  record->finish(RunStatus::kInterrupted, "SIGTERM");
  const auto end = json_lines_of(directory_.paths().metrics_jsonl()).back();
  EXPECT_EQ(end["epochs"], 0);
  EXPECT_EQ(end["steps"], 2);
  EXPECT_EQ(end["images"], 2 * kBatchSize);
}

TEST_F(RecordedFit, CountsItsOwnShareOfAResumedFit) {
  const auto backup = std::make_shared<BackupAndRestore>(
      BackupOptions{.folder = folder_.path() + "/backup", .on_message = [](const std::string&) {}});
  // Ends in the second epoch, after 5 steps of 2 x 3.
  fit_with({testing::interrupt_after(5), backup});
  const auto record = std::make_shared<RecordRun>(directory_.paths());
  fit_with({record, backup});
  record->finish(RunStatus::kCompleted);
  const auto totals = record->record().totals;
  EXPECT_EQ(totals.epochs, 2);
  EXPECT_EQ(totals.steps, 6);
  EXPECT_EQ(totals.steps_before, 5);
  EXPECT_EQ(totals.images, data_.target.size(0) - 2 * kBatchSize) << "those of the last step";
}

TEST_F(RecordedFit, RecordsTheLossOfTheStepsSinceTheLastRecordedOne) {
  std::vector<double> alone;
  AloneOptions options;
  options.losses = &alone;
  options.schedule.epochs = 1;
  torch::manual_seed(17);
  trainer_.emplace(
      strategy_, [](ReplicaContext&) { return TanhNet(); }, momentum_sgd(), cross_entropy);
  trained_alone<TanhNet>(make_tanh_net, data_, momentum_sgd(), options);
  const auto record = std::make_shared<RecordRun>(directory_.paths(), RecordRunOptions{.log_every = 1});
  fit(record, 1);
  ASSERT_EQ(record->record().steps.size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(*record->record().steps[i].loss, alone[i], 1e-10);
    EXPECT_EQ(record->record().steps[i].step, static_cast<int64_t>(i) + 1);
    EXPECT_EQ(record->record().steps[i].learning_rate, 0.1);
  }
}

TEST_F(RecordedFit, KeepsTheConfusionMatrixOfTheLastValidation) {
  const auto record = std::make_shared<RecordRun>(
      directory_.paths(), RecordRunOptions{.title = "Three <classes>", .class_names = {"cat", "dog"}});
  fit(record);
  const auto expected =
      trainer_->evaluate(data_.data, data_.target).tensors.front().second.to(torch::kLong).contiguous();
  ASSERT_TRUE(record->record().confusion.has_value());
  EXPECT_EQ(record->record().confusion->counts,
            std::vector<int64_t>(expected.const_data_ptr<int64_t>(), expected.const_data_ptr<int64_t>() + 9));
  EXPECT_EQ(record->record().confusion->class_names, (std::vector<std::string>{"cat", "dog", "2"}));
  record->set_misclassified({{.png = encode_image(torch::zeros({1, 2, 2})), .true_class = "cat"}}, 5);
  record->finish(RunStatus::kStoppedEarly, "enough");
  const auto report = content_of(directory_.paths().report());
  EXPECT_THAT(report, HasSubstr("Three &lt;classes&gt;"));
  EXPECT_THAT(report, HasSubstr("enough"));
  const auto end = json_lines_of(directory_.paths().metrics_jsonl()).back();
  EXPECT_EQ(end["status"], "stopped_early");
  EXPECT_EQ(end["steps"], 6);
  EXPECT_EQ(end["images"], 26);
}

TEST_F(RecordedFit, BeginsWithItsStart) {
  const std::string began = utc_text(std::chrono::system_clock::now(), kSeconds);
  const auto record =
      std::make_shared<RecordRun>(directory_.paths(), RecordRunOptions{.hosts = {"node7", "node8"}});
  fit(record, 1);
  record->finish(RunStatus::kCompleted);
  const auto start = json_lines_of(directory_.paths().metrics_jsonl()).front();
  EXPECT_EQ(start["kind"], "start");
  EXPECT_GE(start["time"].get<std::string>(), began);
  EXPECT_LE(start["time"].get<std::string>(), utc_text(std::chrono::system_clock::now(), kSeconds));
  EXPECT_EQ(start["hosts"], "node7,node8");
  EXPECT_EQ(start["version"], RunStart::now().version);
  EXPECT_THAT(content_of(directory_.paths().report()), HasSubstr(" on node7, node8 with Lockstep "));
}

TEST_F(RecordedFit, WritesEventFilesForTrainingAndValidation) {
  const auto record = std::make_shared<RecordRun>(directory_.paths());
  fit(record);
  for (const std::string part : {"/train", "/validation"}) {
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(directory_.paths().tensorboard() + part)) {
      EXPECT_THAT(entry.path().filename().string(), ::testing::StartsWith("events.out.tfevents."));
      EXPECT_GT(entry.file_size(), 100U);
      ++files;
    }
    EXPECT_EQ(files, 1) << part;
  }
}

TEST_F(RecordedFit, IsWrittenByLoggersAlone) {
  const std::string csv = folder_.path() + "/log.csv", lines = folder_.path() + "/log.jsonl";
  auto both = std::make_shared<CsvLogger>(csv);
  const auto history = fit(both);
  fit(std::make_shared<JsonLinesLogger>(JsonLinesLoggerOptions{.path = lines, .log_every = 2}));
  const auto text = content_of(csv);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_THAT(text, HasSubstr("validation_accuracy"));
  std::vector<std::string> kinds;
  for (const auto& line : json_lines_of(lines)) kinds.push_back(line["kind"]);
  EXPECT_EQ(kinds, (std::vector<std::string>{"step", "epoch", "step", "step", "epoch"}));  // steps 2, 4, 6
  EXPECT_THAT([&] { fit(both); },
              ::testing::ThrowsMessage<std::system_error>(
                  ::testing::AllOf(HasSubstr("[CsvLogger] expected the name of a new file, but got '" + csv),
                                   HasSubstr("RecordRun"))));
  EXPECT_EQ(content_of(csv), text);
  EXPECT_THROW(JsonLinesLogger({.path = lines, .log_every = -1}), InvalidArgument);
}

TEST_F(RecordedFit, IsWrittenForTensorBoardAlone) {
  const std::string tb = folder_.path() + "/tb";
  fit(std::make_shared<TensorBoard>(TensorBoardOptions{.folder = tb, .log_every = 1}));
  for (const std::string part : {"/train", "/validation"})
    EXPECT_FALSE(std::filesystem::is_empty(tb + part)) << part;
  EXPECT_THROW(TensorBoard({.folder = ""}), InvalidArgument);
  EXPECT_THROW(TensorBoard({.folder = tb, .log_every = 0}), InvalidArgument);
}

TEST_F(RecordedFit, CountsThePartsOfExamples) {
  const auto record = std::make_shared<RecordRun>(
      directory_.paths(), RecordRunOptions{.log_every = 1, .examples = "tokens", .parts_per_example = 100});
  const auto history = fit(record);
  EXPECT_EQ(record->record().totals.images, 2 * kExamples * 100);
  const auto& epoch = record->record().epochs.back();
  EXPECT_DOUBLE_EQ(*epoch.images_per_second, 100 * history.epochs.back().at("examples_per_second"));
}

TEST_F(RecordedFit, ReportsSamplesAndReferenceLosses) {
  const auto record = std::make_shared<RecordRun>(directory_.paths());
  record->set_reference_losses({{"second", 2.0}, {"first", 1.0}});
  record->add_sample({.title = "step 6", .prompt = "once", .text = " upon"});
  fit(record);
  record->finish(RunStatus::kCompleted);
  EXPECT_EQ(record->record().reference_losses.front().name, "first");
  EXPECT_THAT(content_of(directory_.paths().report()), HasSubstr("<b>once</b> upon"));
}

TEST_F(RecordedFit, RefusesToRecordNoSteps) {
  EXPECT_THROW(RecordRun(directory_.paths(), {.parts_per_example = 0}), InvalidArgument);
  EXPECT_THROW(RecordRun(directory_.paths(), {.log_every = 0}), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
