#include "lockstep/apps/train_ctr/ctr_command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/apps/train_ctr/ctr_table_memory.h"

namespace lockstep::apps {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<std::string> kStrategies{"default", "mirrored", "parameter_server"};

CtrCommandLine line_of(const std::vector<std::string>& arguments) {
  return parse_ctr_command_line(arguments, kStrategies);
}

std::string refusal(const std::vector<std::string>& arguments) {
  try {
    line_of(arguments);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "not refused";
}

TEST(CtrCommandLineTest, WithoutFlagsAllIsDefault) {
  const auto line = line_of({});
  EXPECT_EQ(line.action, Action::kTrain);
  CtrOptions expected;
  expected.learning_rate = default_learning_rate(CtrOptimizerKind::kAdagrad);
  EXPECT_EQ(line.options, expected);
}

TEST(CtrCommandLineTest, EachFlagSetsItsOption) {
  const auto& options = line_of({"--data",
                                 "a.txt,day_*",
                                 "--test-data",
                                 "b.txt",
                                 "--index-dir",
                                 "i",
                                 "--parquet-memory",
                                 "2GiB",
                                 "--train-rows",
                                 "10",
                                 "--test-rows",
                                 "20",
                                 "--skip-bad",
                                 "--model",
                                 "dlrm",
                                 "--table-rows",
                                 "1099511627776",
                                 "--embedding-dim",
                                 "64",
                                 "--min-frequency",
                                 "3",
                                 "--steps-to-live",
                                 "4",
                                 "--global-batch-size",
                                 "32",
                                 "--optimizer",
                                 "sgd",
                                 "--learning-rate",
                                 "0.25",
                                 "--precision",
                                 "float64",
                                 "--seed",
                                 "7",
                                 "--steps",
                                 "9",
                                 "--test-every",
                                 "3",
                                 "--log-every",
                                 "2",
                                 "--run-dir",
                                 "r",
                                 "--backup-dir",
                                 "b",
                                 "--save-every",
                                 "5 steps",
                                 "--resume",
                                 "auto",
                                 "--metrics-port",
                                 "9400",
                                 "--metrics-address",
                                 "::1",
                                 "--profile-input",
                                 "--quiet",
                                 "--strategy",
                                 "parameter_server",
                                 "--max-staleness",
                                 "0",
                                 "--slots-per-step",
                                 "4",
                                 "--no-look-ahead",
                                 "--threads",
                                 "2"})
                            .options;
  CtrOptions expected;
  expected.data = {"a.txt", "day_*"};
  expected.test_data = {"b.txt"};
  expected.index_dir = "i";
  expected.parquet_memory = "2GiB";
  expected.train_rows = 10;
  expected.test_rows = 20;
  expected.skip_bad = true;
  expected.model = CtrModelKind::kDlrm;
  expected.table_rows = int64_t{1} << 40;
  expected.embedding_dim = 64;
  expected.min_frequency = 3;
  expected.steps_to_live = 4;
  expected.global_batch_size = 32;
  expected.optimizer = CtrOptimizerKind::kSgd;
  expected.learning_rate = 0.25;
  expected.precision = CtrPrecision::kFloat64;
  expected.seed = 7;
  expected.steps = 9;
  expected.test_every = 3;
  expected.log_every = 2;
  expected.run_dir = "r";
  expected.backup_dir = "b";
  expected.save_every = "5 steps";
  expected.metrics_port = 9400;
  expected.metrics_address = "::1";
  expected.profile_input = true;
  expected.quiet = true;
  expected.strategy = "parameter_server";
  expected.max_staleness = 0;
  expected.slots_per_step = 4;
  expected.looks_ahead = false;
  expected.threads = 2;
  EXPECT_EQ(options, expected);
  EXPECT_EQ(line_of({"--data", "a.txt", "--test-share", "0.25"}).options.test_share, 0.25);
  const auto growing = line_of({"--strategy", "parameter_server", "--table-memory", "64MiB"}).options;
  EXPECT_EQ(growing.table_memory, "64MiB");
  EXPECT_EQ(growing.table_disk, "");
  EXPECT_EQ(line_of({"--strategy", "parameter_server", "--table-memory", "64MiB", "--table-disk", "rows"})
                .options.table_disk,
            "rows");
}

TEST(CtrCommandLineTest, TheMemoryOfTablesIsSplitByTheBytesOfTheirRows) {
  CtrWork work;
  EXPECT_EQ(ctr_table_memory(work).embeddings, 0);
  work.table_memory = "unlimited";
  EXPECT_EQ(ctr_table_memory(work).embeddings, 0);
  work.table_memory = "64MiB";
  const auto both = ctr_table_memory(work);
  EXPECT_EQ(both.embeddings + both.weights, 64 << 20);
  // Adagrad in float32: 16 columns take 2 * 64 bytes and 36 more, a weight 2 * 4 and 36 more.
  EXPECT_NEAR(static_cast<double>(both.embeddings) / static_cast<double>(both.weights), 164. / 44, 1e-4);
  work.model = CtrModelKind::kDlrm;
  EXPECT_EQ(ctr_table_memory(work).embeddings, 64 << 20);
}

TEST(CtrCommandLineTest, TheLearningRateDependsOnTheOptimizer) {
  for (const auto& [name, kind] :
       {std::pair("sgd", CtrOptimizerKind::kSgd), std::pair("adagrad", CtrOptimizerKind::kAdagrad),
        std::pair("adam", CtrOptimizerKind::kAdam)}) {
    const auto options = line_of({"--optimizer", name}).options;
    EXPECT_EQ(ctr_optimizer_name(options.optimizer), name);
    EXPECT_EQ(options.learning_rate, default_learning_rate(kind));
  }
}

TEST(CtrCommandLineTest, WhatDoesNotGoTogetherIsRefused) {
  EXPECT_THAT(
      refusal({"--strategy", "mirrored", "--max-staleness", "3"}),
      HasSubstr("--max-staleness 3: expected it with --strategy parameter_server only, but got --strategy "
                "mirrored"));
  EXPECT_THAT(refusal({"--slots-per-step", "3"}), HasSubstr("expected --max-staleness 0 with it"));
  EXPECT_THAT(refusal({"--table-memory", "64MiB"}),
              HasSubstr("--table-memory 64MiB: expected it with --strategy parameter_server only, but got"));
  EXPECT_THAT(refusal({"--strategy", "parameter_server", "--table-memory", "64MiB", "--table-rows", "9"}),
              AllOf(HasSubstr("--table-memory"), HasSubstr("--table-rows")));
  EXPECT_THAT(refusal({"--strategy", "parameter_server", "--table-disk", "rows"}),
              AllOf(HasSubstr("--table-disk"), HasSubstr("--table-memory")));
  EXPECT_THAT(
      refusal({"--strategy", "parameter_server", "--table-memory", "unlimited", "--table-disk", "rows"}),
      HasSubstr("--table-disk rows: expected a size as --table-memory, but got unlimited"));
  EXPECT_THAT(refusal({"--test-data", "a"}), HasSubstr("--test-data a: expected it with a file as --data"));
  EXPECT_THAT(refusal({"--skip-bad"}), HasSubstr("expected it with a file as --data, but got generated"));
  EXPECT_THAT(refusal({"--data", "a", "--test-data", "b", "--test-share", "0.5"}), HasSubstr("--test-share"));
  EXPECT_THAT(refusal({"--save-every", "5 steps"}), HasSubstr("--backup-dir"));
  EXPECT_THAT(refusal({"--resume", "never"}), HasSubstr("--backup-dir"));
  EXPECT_THAT(refusal({"--strategy", "parameter_server", "--backup-dir", "b", "--resume", "never"}),
              HasSubstr("--resume never: expected auto with --strategy parameter_server"));
  EXPECT_THAT(refusal({"--index-dir", "i"}), HasSubstr("expected it with a file as --data"));
  const std::string secret = refusal({"--data", "s3://me:secret@bucket/clicks"});
  EXPECT_THAT(secret, HasSubstr("--data: expected URIs without credentials"));
  EXPECT_THAT(secret, testing::Not(HasSubstr("secret@")));
  EXPECT_EQ(refusal({"--data", "s3://bucket/a@b"}), "not refused");
  EXPECT_THAT(refusal({"--parquet-memory", "1GiB"}), HasSubstr("expected it with a file as --data"));
  EXPECT_THAT(refusal({"--data", "a", "--parquet-memory", "much"}), HasSubstr("--parquet-memory"));
}

TEST(CtrCommandLineTest, ValuesOutOfRangeAreRefusedByName) {
  EXPECT_THAT(refusal({"--model", "dlm"}), AllOf(HasSubstr("--model"), HasSubstr("did you mean dlrm?")));
  EXPECT_THAT(refusal({"--table-rows", "0"}), HasSubstr("--table-rows: expected"));
  for (const std::string wrong : {"many", "1000", "-1MiB", "2000000TiB", ""})
    EXPECT_THAT(refusal({"--strategy", "parameter_server", "--table-memory", wrong}),
                HasSubstr("--table-memory: expected"));
  EXPECT_THAT(refusal({"--learning-rate", "-1"}), HasSubstr("--learning-rate"));
  EXPECT_THAT(refusal({"--data", "a", "--test-share", "1"}), HasSubstr("--test-share"));
  EXPECT_THAT(refusal({"--backup-dir", "b", "--save-every", "2 epochs"}),
              HasSubstr("--save-every: expected N steps or N minutes"));
  EXPECT_THAT(refusal({"--max-staleness", "-1"}), HasSubstr("--max-staleness"));
  EXPECT_THAT(refusal({"--data", ""}), HasSubstr("--data: expected generated, or paths"));
  EXPECT_THAT(refusal({"--data", "a,,b"}), HasSubstr("--data: expected generated, or paths"));
  EXPECT_THAT(refusal({"--data", "a,generated"}), HasSubstr("--data: expected generated alone"));
  EXPECT_THAT(refusal({"--data", "a", "--test-data", "b,"}), HasSubstr("--test-data: expected paths"));
  EXPECT_THAT(refusal({"--run-dir", ""}), HasSubstr("--run-dir: expected a folder"));
}

TEST(CtrCommandLineTest, OtherActionsNeedNoMore) {
  EXPECT_EQ(line_of({"--help"}).action, Action::kHelp);
  EXPECT_EQ(line_of({"--version"}).action, Action::kVersion);
  EXPECT_EQ(line_of({"--list-devices"}).action, Action::kListDevices);
  EXPECT_THAT(ctr_help_text(kStrategies), AllOf(HasSubstr("--max-staleness N"), HasSubstr("Examples:"),
                                                HasSubstr("Exit codes:"), HasSubstr("ps tasks")));
}

}  // namespace
}  // namespace lockstep::apps
