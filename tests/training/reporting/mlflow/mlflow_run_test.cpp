#include "lockstep/training/reporting/mlflow/mlflow_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <system_error>
#include <thread>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/other_process.h"
#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/tests/support/text_files.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using testing::names_in;
using testing::read_text;

class MlflowRunTest : public ::testing::Test {
 protected:
  MlflowRunOptions options(const std::string& id = "") const {
    return {.folder = folder_.file("mlruns"), .experiment = "digits", .name = "a run", .id = id};
  }
  static std::string meta(const MlflowRun& run) { return read_text(run.folder() + "/meta.yaml"); }

  testing::TemporaryFolder folder_;
};

// That MLflow itself reads these files is tested in mlflow_run_test.py.

TEST_F(MlflowRunTest, HasTheFoldersOfAFileStore) {
  MlflowRun run(options());
  EXPECT_THAT(run.id(), MatchesRegex("[0-9a-f]{32}"));
  EXPECT_THAT(names_in(run.folder()), ElementsAre("artifacts", "meta.yaml", "metrics", "params", "tags"));
  run.set_parameter("learning-rate", "0.001");
  run.add_metric("step/loss", 0.5, {.step = 10, .milliseconds = 1700000000123});
  run.add_metric("step/loss", NAN, {.step = 20, .milliseconds = 1700000000456});
  run.add_metric("step/loss", -INFINITY, {.step = 30, .milliseconds = 1700000000789});
  run.set_artifact("config.json", "{}");
  EXPECT_EQ(read_text(run.folder() + "/params/learning-rate"), "0.001");
  EXPECT_EQ(read_text(run.folder() + "/metrics/step/loss"),
            "1700000000123 0.5 10\n1700000000456 nan 20\n1700000000789 -inf 30\n");
  EXPECT_EQ(read_text(run.folder() + "/artifacts/config.json"), "{}");
}

TEST_F(MlflowRunTest, SaysHowItEnded) {
  MlflowRun run(options());
  EXPECT_THAT(meta(run), HasSubstr("status: 1\n"));
  EXPECT_THAT(meta(run), HasSubstr("end_time: null\n"));
  run.end(MlflowStatus::kKilled);
  EXPECT_THAT(meta(run), HasSubstr("status: 5\n"));
  EXPECT_THAT(meta(run), ::testing::Not(HasSubstr("end_time: null\n")));
  run.end(MlflowStatus::kFailed);
  EXPECT_THAT(meta(run), HasSubstr("status: 4\n"));
}

TEST_F(MlflowRunTest, GoesOnWithItsStartItsNameAndTheStepsBeforeOne) {
  std::string id, start;
  {
    MlflowRun run(options());
    id = run.id();
    for (int step = 1; step <= 4; ++step)
      run.add_metric("loss", step / 4.0, {.step = step, .milliseconds = 1000 + step});
    run.add_metric("late", 1, {.step = 4});
    run.end(MlflowStatus::kKilled);
    start = meta(run).substr(meta(run).find("start_time"), 30);
  }
  auto again = options(id);
  again.name = "";
  MlflowRun run(again);
  run.remove_metrics_after(2);
  EXPECT_EQ(run.id(), id);
  EXPECT_THAT(meta(run), HasSubstr(start.substr(0, start.find('\n'))));
  EXPECT_THAT(meta(run), HasSubstr("status: 1\n"));
  EXPECT_EQ(read_text(run.folder() + "/tags/mlflow.runName"), "a run");
  EXPECT_EQ(read_text(run.folder() + "/metrics/loss"), "1001 0.25 1\n1002 0.5 2\n");
  EXPECT_FALSE(std::filesystem::exists(run.folder() + "/metrics/late"));
}

TEST_F(MlflowRunTest, AppendsToTheMetricsOfAnEarlierRun) {
  std::string id;
  {
    MlflowRun run(options());
    id = run.id();
    run.add_metric("step/loss", 0.5, {.step = 3, .milliseconds = 1001});
  }
  MlflowRun run(options(id));
  run.add_metric("step/loss", 0.25, {.step = 1, .milliseconds = 1002});
  EXPECT_EQ(read_text(run.folder() + "/metrics/step/loss"), "1001 0.5 3\n1002 0.25 1\n");
}

TEST_F(MlflowRunTest, NamesAMetricWhoseFolderHasGone) {
  MlflowRun run(options());
  run.add_metric("step/loss", 0.5, {.step = 1});
  std::filesystem::remove_all(run.folder() + "/metrics");
  // It looks for the folders of a name once: a training writes many numbers.
  EXPECT_THAT(message_of<std::system_error>([&] { run.add_metric("step/loss", 0.5, {.step = 2}); }),
              HasSubstr(run.folder() + "/metrics/step/loss"));
}

TEST_F(MlflowRunTest, DropsALineWithoutItsEnd) {
  MlflowRun run(options());
  run.add_metric("loss", 0.5, {.step = 1, .milliseconds = 1001});
  testing::write_text(run.folder() + "/metrics/loss", "1001 0.5 1\n1002 0.2");
  run.remove_metrics_after(10);
  EXPECT_EQ(read_text(run.folder() + "/metrics/loss"), "1001 0.5 1\n");
}

/// 24 MiB, most of which stay.
TEST_F(MlflowRunTest, TakesNoMoreMemoryForALongerMetric) {
  MlflowRun run(options());
  std::string metric;
  for (int64_t step = 1; metric.size() < size_t{24} << 20; ++step)
    metric += "1700000000000 0.123456789 " + std::to_string(step) + "\n";
  testing::write_text(run.folder() + "/metrics/loss", metric + "1700000000000 0.5 999999999\n");
  EXPECT_LT(testing::peak_memory_of([&] {
              run.remove_metrics_after(999'999'998);
              return true;
            }),
            uint64_t{8} << 20);
  EXPECT_TRUE(read_text(run.folder() + "/metrics/loss") == metric);
}

TEST_F(MlflowRunTest, ChangesNothingBehindALink) {
  MlflowRun run(options());
  const std::string elsewhere = folder_.write("elsewhere/loss", "1001 0.5 100\n");
  std::filesystem::create_symlink(elsewhere, run.folder() + "/metrics/link");
  run.remove_metrics_after(1);
  std::filesystem::remove_all(run.folder() + "/metrics");
  std::filesystem::create_directory_symlink(folder_.file("elsewhere"), run.folder() + "/metrics");
  run.remove_metrics_after(1);
  EXPECT_EQ(read_text(elsewhere), "1001 0.5 100\n");
}

/// Somebody else's experiment, whose file would make every later run wait.
TEST_F(MlflowRunTest, DoesNotWaitForAPipe) {
  std::filesystem::create_directories(folder_.file("mlruns/1"));
  ASSERT_EQ(::mkfifo(folder_.file("mlruns/1/meta.yaml").c_str(), 0600), 0);
  EXPECT_FALSE(MlflowRun(options()).id().empty());
}

TEST_F(MlflowRunTest, WritesNoPathOutsideItsFolder) {
  MlflowRun run(options());
  for (const std::string name :
       {"../../escape", "/absolute", "a//b", "", ".", "..", "a/../b", "loss@5", "end/"})
    run.set_parameter(name, "x");
  EXPECT_THAT(names_in(run.folder() + "/params"),
              ElementsAre(".._.._escape", "_", "_.", "_..", "_absolute", "a_.._b", "a__b", "end_", "loss_5"));
  EXPECT_FALSE(std::filesystem::exists(folder_.file("mlruns/escape")));
  EXPECT_THAT(message_of<InvalidArgument>([&] { run.set_artifact("../x", ""); }), HasSubstr("'../x'"));
}

TEST_F(MlflowRunTest, SharesItsExperimentWithRunsThatBeginAtTheSameTime) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([&] { MlflowRun run(options()); });
  for (auto& thread : threads) thread.join();
  ASSERT_THAT(names_in(folder_.file("mlruns")), ElementsAre(MatchesRegex("[0-9]{18}")));
  EXPECT_EQ(names_in(folder_.file("mlruns/" + names_in(folder_.file("mlruns")).front())).size(), 10U);
}

TEST_F(MlflowRunTest, FindsAnExperimentThatMlflowMade) {
  folder_.write(
      "mlruns/123456/meta.yaml",
      "artifact_location: mlflow-artifacts:/123456\nexperiment_id: '123456'\nlifecycle_stage: active\n"
      "name: it's mine\n");
  folder_.write("mlruns/7/meta.yaml", "experiment_id: '7'\nname: 'it''s: yours'\n");
  auto mine = options(), yours = options();
  mine.experiment = "it's mine";
  yours.experiment = "it's: yours";
  EXPECT_THAT(MlflowRun(mine).folder(), HasSubstr("mlruns/123456/"));
  EXPECT_THAT(MlflowRun(yours).folder(), HasSubstr("mlruns/7/"));
}

TEST_F(MlflowRunTest, LeavesADeletedExperimentAlone) {
  const std::string root = folder_.file("mlruns");
  MlflowRun first(options());
  const std::string id = std::filesystem::path(first.folder()).parent_path().filename();
  std::filesystem::create_directory(root + "/.trash");
  std::filesystem::rename(root + "/" + id, root + "/.trash/" + id);
  MlflowRun second(options());
  EXPECT_NE(std::filesystem::path(second.folder()).parent_path().filename(), id);
}

TEST_F(MlflowRunTest, RefusesWrongOptions) {
  EXPECT_THAT(message_of<InvalidArgument>([] { MlflowRun run({}); }), HasSubstr("a folder"));
  EXPECT_THAT(message_of<InvalidArgument>([&] { MlflowRun run(options("../x")); }), HasSubstr("'../x'"));
  auto nameless = options();
  nameless.experiment = "";
  EXPECT_THAT(message_of<InvalidArgument>([&] { MlflowRun run(nameless); }), HasSubstr("an experiment"));
}

TEST_F(MlflowRunTest, NamesAFolderThatCannotBeWritten) {
  folder_.write("file", "");
  EXPECT_THAT(message_of<std::system_error>([&] { MlflowRun run({.folder = folder_.file("file/mlruns")}); }),
              HasSubstr(folder_.file("file/mlruns")));
}

}  // namespace
}  // namespace lockstep
