#include "lockstep/apps/inspect_run/summary_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lockstep/tests/apps/inspect_run/recorded_run.h"
#include "lockstep/tests/support/test_files.h"

namespace lockstep::apps {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::record_language_run;
using testing::record_run;
using testing::TemporaryFolder;
using testing::three_epochs;

nlohmann::json json_of(const RunSummary& summary, const std::vector<MetricRow>& epochs = {}) {
  std::ostringstream out;
  write_summary_json(out, summary, [&](const auto& act) {
    for (const auto& row : epochs) act(row);
  });
  return nlohmann::json::parse(out.str());
}

TEST(SummaryTextTest, ListsWhatWasSetFirst) {
  const TemporaryFolder folder;
  record_run(folder.path(), three_epochs());
  EXPECT_THAT(summary_text(summarise_run(folder.path(), 5)),
              HasSubstr("\nConfiguration of train_images 0.1.0\n"
                        "  data     /data/mnist           environment LOCKSTEP_MNIST_DIR\n"
                        "  devices  cpu:0,cpu:1           flag\n"
                        "  seed     18446744073709551615  file earlier.json\n"
                        "  epochs   5                     default\n"
                        "  and 1 without a value\n"));
}

TEST(SummaryTextTest, ListsTheLastEpochsAndTheBest) {
  const TemporaryFolder folder;
  record_run(folder.path(), three_epochs());
  EXPECT_THAT(summary_text(summarise_run(folder.path(), 2)),
              HasSubstr("\nEpochs, the last 2 of 3\n"
                        "  epoch    loss  val. accuracy    time\n"
                        "      2     0.5        75.00 %  12.5 s\n"
                        "      3  0.3333        50.00 %  12.5 s\n"
                        "  best: epoch 2, validation accuracy 75.00 %\n"));
}

TEST(SummaryTextTest, TellsTotalsAndFiles) {
  const TemporaryFolder folder;
  record_run(folder.path() + "/a", three_epochs());
  const std::string text = summary_text(summarise_run(folder.path() + "/a", 5));
  EXPECT_THAT(text, HasSubstr("/a: completed\n  started 2024-02-29T12:34:56Z on node1,node2\n  3 epochs, 30 "
                              "steps, 1920 images, 37.5 s\n"));
  EXPECT_THAT(
      text,
      HasSubstr(
          "\nFiles\n  checkpoints  3.0 KiB  2 files\n    best.pt    2.0 KiB\n    last       1.0 KiB\n"));
  EXPECT_THAT(text, HasSubstr("1 event file\n"));
  EXPECT_THAT(text, Not(HasSubstr("Problems")));
}

TEST(SummaryTextTest, TellsStartUpAndEarlierStepsApart) {
  const TemporaryFolder folder;
  auto totals = three_epochs();
  totals.start_up_seconds = 2.5;
  totals.steps_before = 10;
  record_run(folder.path() + "/a", totals);
  EXPECT_THAT(summary_text(summarise_run(folder.path() + "/a", 5)),
              HasSubstr("  3 epochs, 30 steps, 10 of them before it resumed, 1920 images, 37.5 s, 2.50 s of "
                        "start-up\n"));
}

TEST(SummaryTextTest, SaysThatARunEndedEarly) {
  const TemporaryFolder folder;
  record_run(folder.path() + "/a", std::nullopt);
  EXPECT_THAT(summary_text(summarise_run(folder.path() + "/a", 5)),
              HasSubstr("/a: ended early: metrics.jsonl has no end, and no process uses the directory\n"
                        "  started 2024-02-29T12:34:56Z on node1,node2\n"
                        "  3 of 5 epochs recorded\n"));
}

TEST(SummaryTextTest, ListsRunsOfLanguageModelsByTheirOwnColumns) {
  const TemporaryFolder folder;
  record_language_run(folder.path() + "/a",
                      RunTotals{.epochs = 2, .steps = 200, .images = 819200, .seconds = 25});
  const std::string text = summary_text(summarise_run(folder.path() + "/a", 5));
  EXPECT_THAT(text, HasSubstr("/a: completed\n  2 epochs, 200 steps, 819200 tokens, 25.0 s\n"));
  EXPECT_THAT(text, HasSubstr("\nEpochs\n"
                              "  epoch  loss  perplexity  val. loss  val. perplexity  above entropy  "
                              "learning rate  tokens/s      MFU    time\n"
                              "      1     4          50        3.5               30              1          "
                              "0.003      4096  12.50 %  12.5 s\n"
                              "      2     3          25        2.5               15            0.5          "
                              "0.003      4096  12.50 %  12.5 s\n"
                              "  best: epoch 2, validation loss 2.5\n"));
}

TEST(SummaryTextTest, CountsTheTestsThatARunWithoutEpochsWillMake) {
  const TemporaryFolder folder;
  record_language_run(folder.path() + "/a", std::nullopt);
  const auto summary = summarise_run(folder.path() + "/a", 5);
  EXPECT_EQ(summary.planned_epochs, 3) << "after steps 100, 200 and 250";
  EXPECT_THAT(summary_text(summary), HasSubstr("  2 of 3 epochs recorded\n"));
}

TEST(SummaryTextTest, PrintsNoControlCharacters) {
  RunSummary summary{.folder = "a\x1b[31m\nb", .program = "p\x07"};
  summary.configuration = {{"na\rme", "va\xC2\x9Blue", "ori\tgin"}};
  summary.start = MetricRow{{"time", "no\x1bw"}, {"hosts", "he\nre"}};
  summary.end = MetricRow{{"status", "com\x1bpleted"}, {"reason", "because\n\x08"}};
  summary.checkpoints = {{"bad\x7fname\n", 5}};
  summary.damages = {"da\x1bmage"};
  const std::string text = summary_text(summary);
  EXPECT_THAT(text, HasSubstr("va\\u009blue"));
  for (const char c : text)
    EXPECT_TRUE(c == '\n' || (static_cast<uint8_t>(c) >= 0x20 && c != 0x7f)) << static_cast<int>(c);
  EXPECT_THAT(text, Not(HasSubstr("\xC2\x9B")));
}

TEST(SummaryJsonTest, HasEveryEpochAndWhatIsNotFiniteAsText) {
  RunSummary summary{.folder = "run"};
  std::vector<MetricRow> epochs;
  for (int64_t epoch = 1; epoch <= 20; ++epoch) epochs.push_back({{"epoch", epoch}, {"loss", "nan"}});
  for (const auto& row : epochs) summary.epochs.add(row);
  summary.checkpoints = {{"bad\xFFname", 5}};
  const auto json = json_of(summary, epochs);
  EXPECT_EQ(json["format_version"], 1);
  EXPECT_EQ(json["status"], "ended_early");
  EXPECT_EQ(json["epochs"].size(), 20U);
  EXPECT_EQ(json["epochs"][19], (nlohmann::json{{"epoch", 20}, {"loss", "nan"}}));
  EXPECT_TRUE(json["best_epoch"].is_null());
  EXPECT_TRUE(json["totals"].is_null());
  EXPECT_EQ(json["checkpoints"][0]["name"], "bad\xEF\xBF\xBDname");
}

TEST(SummaryJsonTest, CountsEpochsWhoseNumbersAreNone) {
  for (const double number : {1e300, -1e300, std::nan(""), HUGE_VAL}) {
    RunSummary summary{.folder = "run"};
    summary.epochs.add({{"epoch", int64_t{1}}, {"loss", 0.5}});
    summary.epochs.add({{"epoch", number}, {"loss", 0.25}});
    EXPECT_EQ(json_of(summary)["best_epoch"]["epoch"], 2) << number;
  }
}

TEST(SummaryJsonTest, CountsTokensOfRunsOfLanguageModels) {
  const TemporaryFolder folder;
  record_language_run(folder.path(), RunTotals{.epochs = 2, .steps = 200, .images = 819200, .seconds = 25});
  const auto summary = summarise_run(folder.path(), 0);
  std::ostringstream out;
  write_summary_json(out, summary, [&](const auto& act) { for_each_epoch(folder.path(), 2, act); });
  const auto json = nlohmann::json::parse(out.str());
  EXPECT_EQ(json["examples"], "tokens");
  EXPECT_EQ(json["totals"]["tokens"], 819200);
  EXPECT_FALSE(json["totals"].contains("images"));
  EXPECT_EQ(json["planned_epochs"], 3);
  EXPECT_EQ(json["epochs"][1], (nlohmann::json{{"epoch", 2},
                                               {"step", 200},
                                               {"loss", 3.0},
                                               {"validation_loss", 2.5},
                                               {"learning_rate", 0.003},
                                               {"tokens_per_second", 4096.0},
                                               {"seconds", 12.5},
                                               {"perplexity", 25.0},
                                               {"validation_perplexity", 15.0},
                                               {"above_entropy", 0.5},
                                               {"model_flop_utilization", 0.125}}));
  EXPECT_EQ(json["best_epoch"],
            (nlohmann::json{{"epoch", 2}, {"metric", "validation_loss"}, {"value", 2.5}}));
  record_run(folder.path() + "/images", three_epochs());
  EXPECT_EQ(json_of(summarise_run(folder.path() + "/images", 5))["examples"], "images");
}

TEST(SummaryJsonTest, IsAscii) {
  RunSummary summary{.folder = "a\x1b\x7f\u009b\u202e\u00fc"};
  std::ostringstream out;
  write_summary_json(out, summary, [](const auto&) {});
  for (const char c : out.str()) EXPECT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f)) << static_cast<int>(c);
  EXPECT_EQ(nlohmann::json::parse(out.str())["folder"], summary.folder);
}

TEST(SummaryJsonTest, HoldsWhatWasRecorded) {
  const TemporaryFolder folder;
  record_run(folder.path(),
             RunTotals{.status = RunStatus::kFailed, .reason = "NaN", .epochs = 3, .seconds = 0.1});
  const auto json = json_of(summarise_run(folder.path(), 5));
  EXPECT_EQ(json["status"], "failed");
  EXPECT_EQ(json["reason"], "NaN");
  EXPECT_EQ(json["totals"],
            (nlohmann::json{
                {"epochs", 3}, {"steps", 0}, {"images", 0}, {"seconds", 0.1}, {"start_up_seconds", 0.0}}));
  EXPECT_EQ(json["best_epoch"],
            (nlohmann::json{{"epoch", 2}, {"metric", "validation_accuracy"}, {"value", 0.75}}));
  EXPECT_EQ(json["configuration"][1],
            (nlohmann::json{{"name", "devices"}, {"value", "cpu:0,cpu:1"}, {"origin", "flag"}}));
  EXPECT_EQ(json["steps_logged"], 3);
  EXPECT_EQ(json["start"], (nlohmann::json{{"time", "2024-02-29T12:34:56Z"}, {"hosts", "node1,node2"}}));
}

TEST(SummaryTextTest, ListsMemoryByPart) {
  const TemporaryFolder folder;
  record_run(folder.path(), three_epochs());
  RunSummary summary = summarise_run(folder.path(), 5);
  EXPECT_THAT(summary_text(summary), Not(HasSubstr("\nMemory")));
  EXPECT_TRUE(json_of(summary)["memory"].is_null());
  std::ofstream(RunPaths{folder.path()}.metrics_jsonl(), std::ios::app)
      << R"({"kind": "memory", "parameters": 424, "optimizer_state": 2048, "odd": -1, "words": "x"})" << '\n';
  summary = summarise_run(folder.path(), 5);
  EXPECT_THAT(summary_text(summary), HasSubstr("\nMemory\n"
                                               "  parameters       424 B\n"
                                               "  optimizer state  2.0 KiB\n"
                                               "\nFiles\n"));
  EXPECT_EQ(json_of(summary)["memory"]["optimizer_state"], 2048);
}

TEST(SummaryTextTest, ListsMemoryPerRankBesideTheFormula) {
  const TemporaryFolder folder;
  record_run(folder.path(), three_epochs());
  EXPECT_THAT(summary_text(summarise_run(folder.path(), 5)), Not(HasSubstr("Memory per rank")));
  EXPECT_TRUE(json_of(summarise_run(folder.path(), 5))["memory_of_ranks"].is_null());
  std::ofstream(RunPaths{folder.path()}.metrics_jsonl(), std::ios::app)
      << R"({"kind": "memory_of_rank", "rank": 0, "parameters": 424, "optimizer_state": 2048, )"
      << R"("predicted_parameters": 424, "predicted_optimizer_state": 1024})" << '\n'
      << R"({"kind": "memory_of_rank", "rank": 1, "parameters": 424, "optimizer_state": 1024, )"
      << R"("predicted_parameters": 424, "predicted_optimizer_state": 1024, "gradients": -5, "buckets": "x"})"
      << '\n';
  const auto summary = summarise_run(folder.path(), 5);
  EXPECT_THAT(summary_text(summary), HasSubstr("\nMemory per rank\n"
                                               "  part             measured            predicted\n"
                                               "  parameters       424 B               424 B\n"
                                               "  optimizer state  1.0 KiB to 2.0 KiB  1.0 KiB\n"
                                               "  sum              1.4 KiB to 2.4 KiB  1.4 KiB\n"));
  EXPECT_EQ(json_of(summary)["memory_of_ranks"], nlohmann::json::parse(R"({"ranks": 2, "parts": {
    "parameters": {"least": 424, "most": 424, "predicted": 424},
    "optimizer_state": {"least": 1024, "most": 2048, "predicted": 1024},
    "sum": {"least": 1448, "most": 2472, "predicted": 1448}}})"));
}

TEST(SummaryTextTest, TellsAPipelinesBubbles) {
  const TemporaryFolder folder;
  record_run(folder.path(), three_epochs());
  EXPECT_THAT(summary_text(summarise_run(folder.path(), 5)), Not(HasSubstr("Pipeline")));
  EXPECT_TRUE(json_of(summarise_run(folder.path(), 5))["pipeline"].is_null());
  const auto append = [&](const std::string& line) {
    std::ofstream(RunPaths{folder.path()}.metrics_jsonl(), std::ios::app) << line << '\n';
    return summarise_run(folder.path(), 5);
  };
  append(
      R"({"kind": "pipeline", "step": 3, "schedule": "1f1b", "ranks": 4, "stages": 4, "micro_batches": 8, )"
      R"("actions": 2, "planned_seconds": 0.11, "seconds": 0.125, "planned_bubble": 0.2727, "bubble": 0.3})");
  const std::string action =
      R"({"kind": "pipeline_action", "rank": 0, "op": "forward", "stage": 0, "micro_batch": 0, )"
      R"("planned_begin": 0.0, "planned_end": 0.01, "begin": 0.0, "end": 0.02})";
  EXPECT_THAT(summary_text(append(action)), HasSubstr("  actions        1 of 2 can be read\n"));
  append(R"({"kind": "pipeline_action", "rank": "all"})");  // counts as nothing
  const auto summary = append(action);
  EXPECT_THAT(summary_text(summary), HasSubstr("\nPipeline in step 3\n"
                                               "  schedule       1f1b\n"
                                               "  ranks          4\n"
                                               "  stages         4\n"
                                               "  micro-batches  8\n"
                                               "  bubble         planned 0.273, measured 0.300\n"
                                               "  time           planned 0.11 s, measured 0.125 s\n"
                                               "\nFiles\n"));
  EXPECT_EQ(json_of(summary)["pipeline"]["planned_bubble"], 0.2727);
  EXPECT_THAT(
      summary_text(append(R"({"kind": "pipeline", "schedule": "\u001b[31m", "ranks": -1, "bubble": "x"})")),
      AllOf(HasSubstr("  ranks          0\n"), Not(HasSubstr("\x1b"))));
}

}  // namespace
}  // namespace lockstep::apps
