#include "lockstep/apps/plan/training_command.h"
#include "lockstep/apps/shared/planning/layout_flags.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/apps/plan/plan_report.h"
#include "lockstep/apps/train_gpt/options/gpt_command_line.h"

namespace lockstep::apps {
namespace {

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    if (end > begin) words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

// train_gpt's own command line reads the flags.
TEST(TrainingCommand, IsOneOfTrainGpt) {
  const auto options =
      parse_plan_command_line({"--layers", "6", "--global-batch-size", "64", "--devices", "16", "--memory",
                               "8GiB", "--flops", "1T", "--precision", "bfloat16"})
          .options;
  const PlannedLayout layout{.shard = 2,
                             .pipeline = 4,
                             .tensor = 2,
                             .stage = 2,
                             .micro_batches = 8,
                             .recomputes = true,
                             .has_sequence_shards = true,
                             .schedule = "interleaved",
                             .stages_per_rank = 2};
  const auto read = parse_gpt_command_line(words_of(training_flags(options, layout)), {"mirrored"}).options;
  EXPECT_EQ(read.layers, 6);
  EXPECT_EQ(read.global_batch_size, 64);
  EXPECT_EQ(read.precision, PrecisionKind::kBFloat16);
  EXPECT_EQ(read.replicas, 8);  // of one of the two machines
  EXPECT_EQ(read.mesh, "shard=2,pipeline=4,tensor=2");
  EXPECT_EQ(read.sharding, 2);
  EXPECT_EQ(read.micro_batch_size, 4);
  EXPECT_EQ(read.recompute, GptRecompute::kEveryBlock);
  EXPECT_TRUE(read.sequence_parallel);
  EXPECT_EQ(read.pipeline_schedule, "interleaved");
  EXPECT_EQ(read.stages_per_rank, 2);
}

TEST(TrainingCommand, LeavesDefaultsOut) {
  const auto options = parse_plan_command_line({"--devices", "1"}).options;
  EXPECT_EQ(training_flags(options, {.micro_batches = 2}),
            "--global-batch-size 32 --replicas 1 --micro-batch-size 16");
}

TEST(TrainingCommand, NamesTheFlagsThatChange) {
  const auto options = parse_plan_command_line({"--devices", "4"}).options;
  const PlannedLayout from{.data = 4};
  constexpr auto kGpt = PlannedProgram::kTrainGpt;
  EXPECT_EQ(
      changed_flags(kGpt, options.training.global_batch, from, {.shard = 4, .stage = 2, .recomputes = true}),
      "--mesh shard=4, --sharding 2, --recompute every_block");
  EXPECT_EQ(changed_flags(kGpt, options.training.global_batch, from, {.data = 4, .micro_batches = 4}),
            "--micro-batch-size 2");
  EXPECT_EQ(changed_flags(kGpt, options.training.global_batch, from, from), "");
}

TEST(PlanReport, HasRowsThatAddUp) {
  const LayoutMemory memory{.parameters = 1,
                            .gradients = 2,
                            .optimizer_state = 3,
                            .activations = 4,
                            .buckets = 5,
                            .gathered_units = 6,
                            .communication = 7,
                            .inputs = 8,
                            .tables = 9,
                            .table_state = 10,
                            .rows = 11};
  double sum = 0;
  for (const auto& [name, bytes] : memory_parts(memory)) sum += bytes;
  EXPECT_EQ(sum, memory.peak());
  const LayoutTime time{.operators = 1,
                        .recomputation = 2,
                        .cut_layers = 3,
                        .sequences = 4,
                        .experts = 5,
                        .units = 6,
                        .sums = 7,
                        .optimizer = 8,
                        .gathers = 9,
                        .bubble = 10,
                        .input = 11,
                        .rows = 12};
  sum = 0;
  for (const auto& [name, seconds] : time_parts(time)) sum += seconds;
  EXPECT_EQ(sum, time.seconds());
}

}  // namespace
}  // namespace lockstep::apps
