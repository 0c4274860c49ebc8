#include "lockstep/apps/compare_strategies/report/comparison_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <variant>

#include "lockstep/apps/compare_strategies/compare.h"

namespace lockstep::apps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ComparisonReport report_of_two(bool has_failure = false) {
  const std::vector<ComparedStrategy> strategies{{"default", 0, "default"}, {"mirrored", 2, "mirrored:2"}};
  Comparison comparison(strategies);
  for (int round = 0; round < 6; ++round) {
    MeasuredRun run{.replicas = 1,
                    .description = "one replica",
                    .data = "digits",
                    .parameters = 3,
                    .examples = 100,
                    .seconds = 1,
                    .data_wait_seconds = 0.125,
                    .communication_seconds = 0,
                    .peak_memory_bytes = int64_t{100} << 20,
                    .losses = {2, 1.5}};
    run.ranks = {{.rank = 0,
                  .measured = {.parameters = 1024, .buckets = 512},
                  .predicted = MemoryParts{.parameters = 1024}}};
    comparison.add(0, {.run = run, .parameters = {1, 2, 3}});
    run.replicas = 2;
    run.seconds = 0.5;
    run.communication_seconds = 0.05;
    run.ranks.push_back({.rank = 1, .measured = {.parameters = 2048}, .predicted = std::nullopt});
    comparison.add(1, {.run = run, .parameters = {1, 2, 3 + 0x1p-40}});
  }
  if (has_failure) comparison.add_failure(1, {7, "out of memory"});
  ComparisonReport report{.rows = comparison.rows(),
                          .reference = comparison.reference(),
                          .data = "digits",
                          .parameters = 3,
                          .machine = "a machine",
                          .date = "2026-01-31",
                          .version = "1.2.3"};
  report.options.strategies = strategies;
  report.options.steps = 2;
  report.options.warmup_steps = 1;
  std::get<TrainOptions>(report.options.work).optimizer = OptimizerKind::kSgd;
  return report;
}

TEST(ComparisonReport, HasARowAStrategyWithEveryFigure) {
  const auto table = comparison_table(report_of_two());
  EXPECT_THAT(table.header, ElementsAre("strategy", "replicas", "images/s", "ratio to default",
                                        "loss after 2 steps", "parameter difference", "peak memory",
                                        "memory per rank / formula", "data wait", "communication"));
  ASSERT_EQ(table.rows.size(), 2U);
  EXPECT_THAT(table.rows[0], ElementsAre("default", "1", "100 (100 to 100)", "1.00 (1.00 to 1.00)", "1.5000",
                                         "0", "100 MiB", "1.5 KiB / 1.0 KiB", "12.5 %", "0.0 %"));
  EXPECT_THAT(table.rows[1],
              ElementsAre("mirrored:2", "2", "200 (200 to 200)", "2.00 (2.00 to 2.00)", "1.5000", "9.1e-13",
                          "100 MiB", "1.5 KiB to 2.0 KiB", "25.0 %", "10.0 %"));
}

TEST(ComparisonReport, SaysInItsRowHowAStrategyFailed) {
  const auto table = comparison_table(report_of_two(true));
  EXPECT_EQ(table.header.back(), "error");
  EXPECT_EQ(table.rows[0].back(), "");
  EXPECT_THAT(table.rows[1],
              ElementsAre("mirrored:2", "", "", "", "", "", "", "", "", "", "exit code 7: out of memory"));
  EXPECT_EQ(exit_code_of(report_of_two(true)), 7);
  EXPECT_EQ(exit_code_of(report_of_two()), 0);
}

TEST(ComparisonReport, EndsWithTheAdvice) {
  EXPECT_THAT(comparison_text(report_of_two()),
              ::testing::EndsWith(
                  "\n\nUse mirrored:2 here: it trained 2.00 times as many images a second as default (95 "
                  "% interval 2.00 to 2.00), the simplest, and none was faster in most rounds.\n"));
}

TEST(ComparisonReport, NamesTheWork) {
  EXPECT_EQ(work_text(report_of_two()),
            "digits; simple_cnn, 28x28, batches of 64, float32, sgd at a learning rate of 0.001; 6 rounds of "
            "2 steps, "
            "1 to warm up");
}

TEST(ComparisonReport, HasAllOfItAsJson) {
  const auto json = nlohmann::json::parse(comparison_json(report_of_two()));
  EXPECT_EQ(json["format_version"], 2);
  EXPECT_EQ(json["program"], "compare_strategies");
  EXPECT_EQ(json["version"], "1.2.3");
  EXPECT_EQ(json["date"], "2026-01-31");
  EXPECT_EQ(json["machine"], "a machine");
  EXPECT_EQ(json["reference"], "default");
  EXPECT_EQ(json["advised"], "mirrored:2");
  EXPECT_THAT(json["advice"].get<std::string>(), HasSubstr("Use mirrored:2 here"));
  EXPECT_EQ(json["work"], nlohmann::json::parse(R"({"model": "simple_cnn", "parameters": 3, "image_size": 28,
    "examples": "images", "data": "digits", "global_batch_size": 64, "precision": "float32", "optimizer": "sgd", "learning_rate": 0.001,
    "momentum": 0.9, "seed": 1, "steps": 2, "warmup_steps": 1, "rounds": 6})"));
  EXPECT_EQ(json["strategies"][1], nlohmann::json::parse(R"({"label": "mirrored:2", "name": "mirrored",
    "replicas_asked_for": 2, "processes": 1, "exit_code": 0, "error": null, "replicas": 2,
    "description": "one replica",
    "examples_per_second": {"median": 200.0, "interval_95": [200.0, 200.0], "rounds": [200.0, 200.0, 200.0, 200.0, 200.0, 200.0]},
    "ratio": {"median": 2.0, "interval_95": [2.0, 2.0], "rounds": [2.0, 2.0, 2.0, 2.0, 2.0, 2.0]},
    "loss": 1.5, "losses": [2.0, 1.5], "parameter_difference": 9.094947017729282e-13,
    "peak_memory_bytes": 104857600,
    "memory_of_ranks": {"parameters": {"least": 1024, "most": 2048, "predicted": null},
                        "buckets": {"least": 0, "most": 512, "predicted": null},
                        "sum": {"least": 1536, "most": 2048, "predicted": null}}, "data_wait_share": 0.25, "communication_share": 0.1})"));
}

TEST(ComparisonReport, ShowsMemoryOfRanksBesideItsFormulaIfItWasMeasured) {
  auto report = report_of_two();
  auto json = nlohmann::json::parse(comparison_json(report));
  EXPECT_EQ(json["strategies"][0]["memory_of_ranks"]["parameters"],
            nlohmann::json::parse(R"({"least": 1024, "most": 1024, "predicted": 1024})"));
  EXPECT_EQ(json["strategies"][0]["memory_of_ranks"]["buckets"]["predicted"], 0);
  report.rows[0].ranks.clear();
  json = nlohmann::json::parse(comparison_json(report));
  EXPECT_TRUE(json["strategies"][0]["memory_of_ranks"].is_null());
  EXPECT_EQ(comparison_table(report).rows[0][7], "");
}

TEST(ComparisonReport, TellsOfClicksInRowsAndOfServersTheirStaleness) {
  auto report = report_of_two();
  CtrOptions work;
  work.model = CtrModelKind::kDlrm;
  work.learning_rate = 0.05;
  report.options.work = work;
  report.rows[1].strategy = {.name = "parameter_server",
                             .replicas = 2,
                             .label = "parameter_server:2:1",
                             .max_staleness = 1,
                             .servers = 3};
  EXPECT_EQ(comparison_table(report).header[2], "rows/s");
  EXPECT_EQ(
      work_text(report),
      "digits; dlrm, 262144 by 16 embeddings, batches of 1024, float32, adagrad at a learning rate of 0.05; "
      "6 rounds of 2 steps, 1 to warm up");
  EXPECT_THAT(comparison_text(report), HasSubstr("times as many rows a second as default"));
  const auto json = nlohmann::json::parse(comparison_json(report));
  EXPECT_EQ(json["work"]["model"], "dlrm");
  EXPECT_EQ(json["work"]["examples"], "rows");
  EXPECT_EQ(json["work"]["table_rows"], 262144);
  EXPECT_EQ(json["work"]["embedding_dim"], 16);
  EXPECT_FALSE(json["work"].contains("image_size"));
  EXPECT_EQ(json["strategies"][1]["processes"], 6);
  EXPECT_EQ(json["strategies"][1]["max_staleness"], 1);
  EXPECT_FALSE(json["strategies"][0].contains("max_staleness"));
}

TEST(ComparisonReport, TellsOfLanguageModelsInTokens) {
  auto report = report_of_two();
  GptTrainOptions work;
  work.family = GptFamily::kGpt2;
  work.layers = 2;
  work.hidden = 64;
  work.sequence_length = 48;
  work.weight_decay = 0;
  report.options.work = work;
  EXPECT_EQ(comparison_table(report).header[2], "tokens/s");
  EXPECT_EQ(work_text(report),
            "digits; small, gpt2, 2 layers, 64 hidden, batches of 32 sequences of 48, float32, AdamW at a "
            "learning rate of 0.003; 6 rounds of 2 steps, 1 to warm up");
  EXPECT_THAT(comparison_text(report), HasSubstr("times as many tokens a second as default"));
  EXPECT_EQ(nlohmann::json::parse(comparison_json(report))["work"], nlohmann::json::parse(R"({
    "model": "small", "family": "gpt2", "layers": 2, "hidden": 64, "heads": null, "kv_heads": null,
    "mlp_hidden": null, "sequence_length": 48, "micro_batch_size": null, "recompute": "nothing",
    "precision": "float32", "optimizer": "adamw", "weight_decay": 0.0, "beta2": 0.95, "clip_norm": 1.0,
    "global_batch_size": 32, "learning_rate": 0.003, "seed": 1, "parameters": 3, "examples": "tokens",
    "data": "digits", "steps": 2, "warmup_steps": 1, "rounds": 6})"));
}

TEST(ComparisonReport, HasAFailureAsJson) {
  const auto json = nlohmann::json::parse(comparison_json(report_of_two(true)));
  EXPECT_EQ(json["strategies"][1], nlohmann::json::parse(R"({"label": "mirrored:2", "name": "mirrored",
    "replicas_asked_for": 2, "processes": 1, "exit_code": 7, "error": "out of memory"})"));
  EXPECT_EQ(json["advised"], "default");
}

TEST(ComparisonReport, WritesLossesThatAreNoNumbersAsNull) {
  auto report = report_of_two();
  report.rows[0].loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(nlohmann::json::parse(comparison_json(report))["strategies"][0]["loss"], nullptr);
}

}  // namespace
}  // namespace lockstep::apps
