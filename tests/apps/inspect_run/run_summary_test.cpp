#include "lockstep/apps/inspect_run/run_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/tests/apps/inspect_run/recorded_run.h"
#include "lockstep/tests/support/test_files.h"

namespace lockstep::apps {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::record_run;
using ::testing::SizeIs;
using ::testing::StartsWith;
using testing::TemporaryFolder;
using testing::three_epochs;
using ::testing::ThrowsMessage;
using testing::write_text;

/// With the rows of the last five epochs.
RunSummary summary_of(const std::string& folder) {
  return summarise_run(folder, 5);
}

std::optional<BestEpoch> best_of(const std::vector<EpochRecord>& records) {
  EpochSummary epochs;
  for (const auto& record : records) epochs.add(metric_row(record));
  return epochs.best();
}

TEST(RunSummaryTest, ReadsWhatWasRecorded) {
  const TemporaryFolder folder;
  record_run(folder.path(), three_epochs());
  const RunSummary summary = summary_of(folder.path());
  EXPECT_EQ(run_status(summary), "completed");
  EXPECT_EQ(summary.program, "train_images");
  EXPECT_EQ(summary.planned_epochs, 5);
  EXPECT_EQ(summary.num_steps_logged, 3);
  ASSERT_THAT(summary.epochs.last(), SizeIs(3));
  EXPECT_EQ(find_number(summary.epochs.last()[2], "loss"), 1.0 / 3);
  EXPECT_EQ(find_number(*summary.end, "images"), 1920);
  ASSERT_THAT(summary.checkpoints, SizeIs(2));
  EXPECT_EQ(summary.checkpoints[0].name, "best.pt");
  EXPECT_EQ(summary.checkpoints[0].bytes, 2048U);
  EXPECT_EQ(summary.checkpoints[1].bytes, 1024U);  // a folder: the size of its files
  ASSERT_THAT(summary.event_files, SizeIs(1));
  EXPECT_THAT(summary.event_files[0].name, StartsWith("train/events.out.tfevents."));
  EXPECT_TRUE(summary.report_bytes.has_value());
  EXPECT_THAT(summary.missing, IsEmpty());
  EXPECT_THAT(summary.damages, IsEmpty());
}

TEST(RunSummaryTest, ReadsTheConfigurationsValuesAsTheyWouldBeTyped) {
  const TemporaryFolder folder;
  record_run(folder.path(), three_epochs());
  std::vector<std::string> values;
  for (const auto& [name, value, origin] : summary_of(folder.path()).configuration) {
    values.push_back(name + " = " + value + " by " + origin);
  }
  EXPECT_THAT(values, ElementsAre("data = /data/mnist by environment LOCKSTEP_MNIST_DIR",
                                  "devices = cpu:0,cpu:1 by flag", "epochs = 5 by default",
                                  "init-weights = none by default",
                                  "seed = 18446744073709551615 by file earlier.json"));
}

TEST(RunSummaryTest, FindsTheBestEpochByTheFirstMetricThatHasANumber) {
  const double nan = std::nan("");
  const auto best = best_of({{.epoch = 1, .loss = 0.1, .validation_accuracy = nan},
                             {.epoch = 2, .loss = 0.3, .validation_accuracy = 0.5},
                             {.epoch = 3, .loss = 0.2, .validation_accuracy = 0.5}});
  ASSERT_TRUE(best.has_value());
  EXPECT_EQ(best->index, 1U);
  EXPECT_EQ(best->number, 2);
  EXPECT_EQ(best->metric, "validation_accuracy");
  const auto by_loss = best_of({{.loss = 0.3}, {.loss = 0.1}, {.loss = nan}});
  ASSERT_TRUE(by_loss.has_value());
  EXPECT_EQ(by_loss->index, 1U);
  EXPECT_FALSE(best_of({{.loss = nan}}).has_value());
  EXPECT_FALSE(best_of({}).has_value());
}

TEST(RunSummaryTest, KeepsTheRowsOfTheLastEpochsInOrder) {
  for (const size_t num_kept : {0, 1, 3, 10}) {
    EpochSummary epochs(num_kept);
    for (int64_t epoch = 1; epoch <= 7; ++epoch) epochs.add({{"epoch", epoch}});
    EXPECT_EQ(epochs.count(), 7U);
    std::vector<MetricRow> expected;
    const auto num_expected = static_cast<int64_t>(std::min<size_t>(num_kept, 7));
    for (int64_t epoch = 8 - num_expected; epoch <= 7; ++epoch) expected.push_back({{"epoch", epoch}});
    EXPECT_EQ(epochs.last(), expected) << num_kept;
  }
}

TEST(RunSummaryTest, TellsARunThatGoesOnFromOneThatWasKilled) {
  const TemporaryFolder folder;
  const std::string run = folder.path() + "/run";
  {
    const RunDirectory directory(run);
    write_text(run + "/metrics.jsonl", "{\"kind\": \"epoch\", \"epoch\": 1}\n");
    EXPECT_EQ(run_status(summary_of(run)), "running");
  }
  EXPECT_EQ(run_status(summary_of(run)), "ended_early");
}

TEST(RunSummaryTest, TakesARunsWordForHowItEnded) {
  const TemporaryFolder folder;
  record_run(folder.path() + "/a", RunTotals{.status = RunStatus::kInterrupted, .reason = "SIGTERM"});
  EXPECT_EQ(run_status(summary_of(folder.path() + "/a")), "interrupted");
}

TEST(RunSummaryTest, TakesALineThatWasCutOffForNoDamage) {
  const TemporaryFolder folder;
  write_text(folder.path() + "/metrics.jsonl", "{\"kind\": \"epoch\", \"epoch\": 1}\n{\"kind\": \"epo");
  const RunSummary summary = summary_of(folder.path());
  EXPECT_EQ(summary.epochs.count(), 1U);
  EXPECT_THAT(summary.damages, IsEmpty());
  EXPECT_THAT(summary.missing, ElementsAre("config.json"));
}

TEST(RunSummaryTest, NamesTheLinesThatAreDamagedAndReadsTheOthers) {
  const TemporaryFolder folder;
  write_text(folder.path() + "/metrics.jsonl",
             "{\"kind\": \"epoch\", \"epoch\": 1}\n"
             "{\"kind\": \"epoch\", \"ep\xFFoch\": 1\n"
             "[1, 2]\n"
             "{\"kind\": \"epoch\", \"loss\": {\"a\": 1}}\n"
             "\n"
             "{\"kind\": \"epoch\", \"loss\": NaN}\n"
             "{\"kind\": \"epoch\", \"epoch\": 2}\n");
  const RunSummary summary = summary_of(folder.path());
  EXPECT_EQ(summary.epochs.count(), 2U);
  EXPECT_THAT(summary.damages,
              ElementsAre(StartsWith("metrics.jsonl, line 2: parse error"),
                          "metrics.jsonl, line 3: expected an object, but got array",
                          "metrics.jsonl, line 4: loss: expected a number or a text, but got object",
                          "metrics.jsonl: 2 more such lines"));
}

TEST(RunSummaryTest, TakesANumberBeyondADoubleForDamage) {
  const TemporaryFolder folder;
  write_text(folder.path() + "/config.json", "{\"values\": {\"learning-rate\": 1e999}}");
  write_text(folder.path() + "/metrics.jsonl",
             "{\"kind\": \"epoch\", \"loss\": -1e999}\n{\"kind\": \"epoch\", \"epoch\": 1}\n");
  const RunSummary summary = summary_of(folder.path());
  EXPECT_EQ(summary.epochs.count(), 1U);
  EXPECT_THAT(summary.damages, ElementsAre("config.json: number overflow parsing '1e999'",
                                           "metrics.jsonl, line 1: number overflow parsing '-1e999'"));
}

TEST(RunSummaryTest, ReadsNoLineWithoutBounds) {
  const TemporaryFolder folder;
  write_text(folder.path() + "/metrics.jsonl", "{\"a\": \"" + std::string(3 << 20, 'x') +
                                                   "\"}\n{\"kind\": \"epoch\", \"epoch\": 1}\n" +
                                                   std::string(100000, '[') + "\n");
  const RunSummary summary = summary_of(folder.path());
  EXPECT_EQ(summary.epochs.count(), 1U);
  EXPECT_THAT(summary.damages, ElementsAre("metrics.jsonl, line 1: expected a line of at most 1 MiB",
                                           StartsWith("metrics.jsonl, line 3: parse error")));
}

TEST(RunSummaryTest, SaysWhatIsWrongWithAConfiguration) {
  const auto damage_of = [](const std::string& text) {
    const TemporaryFolder folder;
    write_text(folder.path() + "/config.json", text);
    const auto damages = summary_of(folder.path()).damages;
    return damages.empty() ? std::string() : damages[0];
  };
  EXPECT_THAT(damage_of("{\"values\": {\"epochs\": "), HasSubstr("config.json: parse error at line 1"));
  EXPECT_THAT(damage_of(""), HasSubstr("config.json: parse error"));
  EXPECT_THAT(damage_of("[]"), HasSubstr("expected an object with the object \"values\""));
  EXPECT_THAT(damage_of("{\"values\": 5}"), HasSubstr("expected an object with the object \"values\""));
  EXPECT_EQ(damage_of("{\"values\": {\"epochs\": 5, \"seed\": {\"origin\": 7}}}"), "");
  EXPECT_THAT(damage_of(std::string((1 << 20) + 1, ' ')),
              HasSubstr("config.json: expected at most 1048576 bytes"));
}

TEST(RunSummaryTest, RefusesWhatLiesTooDeep) {
  const auto damages_of = [](const std::string& name, const std::string& before, size_t depth) {
    const TemporaryFolder folder;
    write_text(folder.path() + "/" + name,
               before + std::string(depth, '[') + std::string(depth, ']') +
                   std::string(std::count(before.begin(), before.end(), '{'), '}') + "\n");
    return summary_of(folder.path()).damages;
  };
  const std::string too_deep = "expected at most 8 arrays and objects inside each other, but got more";
  const std::string values = "{\"values\": {\"a\": ";
  EXPECT_THAT(damages_of("config.json", values, 6), IsEmpty());
  for (const size_t depth : {7, 500'000})
    EXPECT_THAT(damages_of("config.json", values, depth), ElementsAre("config.json: " + too_deep)) << depth;
  for (const size_t depth : {8, 500'000}) {
    EXPECT_THAT(damages_of("metrics.jsonl", "{\"a\": ", depth),
                ElementsAre("metrics.jsonl, line 1: " + too_deep))
        << depth;
  }
}

TEST(RunSummaryTest, SaysThatAPartIsNoFile) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder.path() + "/config.json");
  ASSERT_EQ(mkfifo((folder.path() + "/metrics.jsonl").c_str(), 0600), 0);
  EXPECT_THAT(summary_of(folder.path()).damages,
              ElementsAre("config.json: expected a regular file, but it is a folder",
                          "metrics.jsonl: expected a regular file, but it is a named pipe"));
}

/// The links lead to files and folders that a summary would show or, with the pipe, wait for.
TEST(RunSummaryTest, FollowsNoLinks) {
  const TemporaryFolder elsewhere;
  elsewhere.write("run/config.json", R"({"values": {"epochs": 5}})");
  elsewhere.write("run/events.out.tfevents.1", "12345");
  elsewhere.write("run/deep/events.out.tfevents.2", "12345");
  ASSERT_EQ(mkfifo(elsewhere.file("pipe").c_str(), 0600), 0);
  const TemporaryFolder folder;
  const auto link = [&](const std::string& to, const std::string& name) {
    std::filesystem::create_symlink(elsewhere.file(to), folder.file(name));
  };
  link("run/config.json", "config.json");
  link("pipe", "metrics.jsonl");
  link("run/config.json", "report.html");
  link("run", "tb");
  std::filesystem::create_directory(folder.file("checkpoints"));
  link("run", "checkpoints/link");
  link("run/config.json", "checkpoints/best.pt");
  const RunSummary summary = summary_of(folder.path());
  EXPECT_THAT(summary.configuration, IsEmpty());
  EXPECT_THAT(summary.event_files, IsEmpty());
  EXPECT_EQ(summary.report_bytes, std::nullopt);
  ASSERT_THAT(summary.checkpoints, SizeIs(2));
  for (const auto& file : summary.checkpoints) EXPECT_EQ(file.bytes, 0U) << file.name;
  EXPECT_THAT(summary.damages,
              ElementsAre("config.json: expected a regular file, but it is a symbolic link",
                          "metrics.jsonl: expected a regular file, but it is a symbolic link",
                          "tb: expected a folder, but it is a symbolic link, which is not followed"));
}

TEST(RunSummaryTest, CountsALimitedNumberOfFiles) {
  const TemporaryFolder folder;
  folder.write("metrics.jsonl", "");
  const std::string parts = folder.file("checkpoints") + "/a";
  std::filesystem::create_directories(parts);
  write_text(parts + "/0", "x");
  // Links to one file, as they are made faster.
  for (int i = 1; i < 1'000; ++i)
    std::filesystem::create_hard_link(parts + "/0", parts + "/" + std::to_string(i));
  EXPECT_EQ(summarise_run(folder.path(), 5, {.most_entries = 1'001}).checkpoints[0].bytes, 1'000U);
  const RunSummary summary = summarise_run(folder.path(), 5, {.most_entries = 500});
  EXPECT_EQ(summary.checkpoints[0].bytes, 499U);  // the folder is an entry, too
  EXPECT_THAT(summary.damages, ElementsAre(HasSubstr("expected at most 500 files")));
}

TEST(RunSummaryTest, RefusesWhatIsNoRunDirectory) {
  const TemporaryFolder folder;
  EXPECT_THAT([&] { summary_of(folder.path()); },
              ThrowsMessage<RunDirectoryError>(
                  AllOf(HasSubstr("expected the directory of a run"), HasSubstr(folder.path()))));
  EXPECT_THAT([&] { summary_of(folder.path() + "/absent"); },
              ThrowsMessage<UsageError>(AllOf(HasSubstr("/absent"), HasSubstr("which is missing"))));
  write_text(folder.path() + "/file", "");
  EXPECT_THAT([&] { summary_of(folder.path() + "/file"); },
              ThrowsMessage<UsageError>(HasSubstr("not a folder")));
}

}  // namespace
}  // namespace lockstep::apps
