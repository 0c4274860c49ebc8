#include "lockstep/apps/train_ctr/ctr_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace lockstep::apps {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

CtrResult result_of(const CtrServing& serving) {
  CtrResult result;
  result.steps = 2000;
  result.rows = 2'048'000;
  result.seconds = 40;
  result.scores = {.auc = 0.81234, .log_loss = 0.4321};
  result.serving = serving;
  return result;
}

TEST(CtrReport, TellsScoresAndSpeed) {
  auto result = result_of({});
  result.serving.reset();
  EXPECT_EQ(ctr_result_text(result, {.num_test = 100'000}),
            "test             AUC 0.8123, log loss 0.4321 on 100,000 rows\n"
            "rows/s           51,200 (4424 million a day), 2,000 steps in 40.0 s\n");
  result.best = CtrScores{.auc = 0.9, .log_loss = 0.4};
  EXPECT_THAT(ctr_result_text(result, {.num_test = 1}),
              HasSubstr("on 1 rows; the best that there can be: AUC 0.9000, log loss 0.4000\n"));
}

TEST(CtrReport, TellsWhatBecameOfUpdatesAndWorkers) {
  const auto text = ctr_result_text(result_of({.staleness = {{0, 10}, {2, 30}},
                                               .num_repeated = 3,
                                               .num_outdated = 4,
                                               .computing = 6,
                                               .waiting = 3,
                                               .idle = 1,
                                               .num_lost_workers = 2}),
                                    {});
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("40 applied, 3 repeats ignored, 4 dropped as a server had lost their values\n"),
            HasSubstr("60 % of their time computing, 30 % waiting for batches and servers, 10 % without a "
                      "step; 2 lost\n"),
            HasSubstr("1.50 on average, 2 at most")));
}

TEST(CtrReport, DrawsAHistogramOfTheStaleness) {
  const auto text =
      ctr_result_text(result_of({.staleness = {{0, 1}, {7, 40}, {8, 10}, {15, 10}, {16, 4}, {100, 1}}}), {});
  EXPECT_THAT(text, HasSubstr("              0  #                                        1\n"
                              "              7  ######################################## 40\n"
                              "           8-15  ####################                     20\n"
                              "          16-31  ####                                     4\n"
                              "         64-127  #                                        1\n"));
  EXPECT_THAT(ctr_result_text(result_of({}), {}), Not(HasSubstr("staleness")));
}

TEST(CtrReport, TellsTheLossOnTheWay) {
  EXPECT_EQ(ctr_progress_text(100, 2000, 0.45678, 51'234.4), "step 100/2000  loss 0.4568  51,234 rows/s");
}

TEST(CtrReport, TellsEveryValueOfTheRun) {
  CtrOptions options;
  options.learning_rate = 0.05;
  const CtrFacts facts{.data = "a.txt, its last rows to test on",
                       .num_train = 9'000,
                       .num_test = 1'000,
                       .strategy = "mirrored: asked for",
                       .replicas = "two",
                       .first_step = 0};
  EXPECT_EQ(ctr_configuration_text(options, facts),
            "data             a.txt, its last rows to test on\n"
            "rows             9,000 to train on, 1,000 to test on\n"
            "model            wide_deep, 262,144 rows of 16 columns and as many weights, float32\n"
            "optimizer        adagrad, learning rate 0.05\n"
            "strategy         mirrored: asked for\n"
            "replicas         two\n"
            "steps            2,000 of 1,024 rows\n"
            "seed             1\n");
  auto growing = options;
  growing.table_memory = "64MiB";
  EXPECT_THAT(
      ctr_configuration_text(growing, facts),
      HasSubstr("model            wide_deep, growing rows of 16 columns and as many weights, float32\n"
                "table memory     64MiB, of all servers together\n"));
  options.run_dir = "runs/a";
  options.backup_dir = "b";
  EXPECT_THAT(ctr_configuration_text(options, facts), HasSubstr("seed             1\n"
                                                                "recorded in      runs/a\n"
                                                                "saved in         b, every 10 minutes\n"));
  options.model = CtrModelKind::kDlrm;
  options.min_frequency = 3;
  options.steps_to_live = 5'000;
  auto more = facts;
  more.num_malformed = 12;
  more.first_malformed = "a.txt: line 3: no";
  more.first_step = 500;
  EXPECT_THAT(ctr_configuration_text(options, more),
              AllOf(HasSubstr("malformed rows   12 skipped, the first in a.txt: line 3: no\n"),
                    HasSubstr("dlrm, 262,144 rows of 16 columns, float32\n"),
                    HasSubstr("row filter       from update 3 on, forgotten after 5,000 steps without\n"),
                    HasSubstr("2,000 of 1,024 rows, from step 500 on\n")));
}

}  // namespace
}  // namespace lockstep::apps
