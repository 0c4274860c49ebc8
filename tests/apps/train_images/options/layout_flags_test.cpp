#include "lockstep/apps/train_images/options/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "lockstep/tests/apps/train_images/options/parsed_arguments.h"

namespace lockstep::apps {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(LayoutFlags, ReadsEveryStrategyFlag) {
  const auto options = options_of({"--strategy", "mirrored", "--devices", "gpu:0,cpu:1", "--cross-device-ops",
                                   "hierarchical_copy", "--communication-timeout", "60", "--threads", "3"});
  EXPECT_EQ(options.strategy, "mirrored");
  EXPECT_THAT(options.devices, ElementsAre("gpu:0", "cpu:1"));
  EXPECT_EQ(options.cross_device_ops, "hierarchical_copy");
  EXPECT_EQ(options.communication_timeout_seconds, 60);
  EXPECT_EQ(options.threads, 3);
  EXPECT_EQ(options_of({"--replicas", "4"}).replicas, 4);
  EXPECT_EQ(options_of({"--replicas-per-device", "4"}).replicas_per_device, 4);
}

TEST(LayoutFlags, ReadsEveryFlagOfWorkers) {
  const auto options =
      options_of({"--worker-hosts", "a:1,b:2", "--task-index", "1", "--communication", "exchange",
                  "--exchange-algorithm", "halving", "--gradient-compression", "bfloat16"});
  EXPECT_THAT(options.worker_hosts, ElementsAre("a:1", "b:2"));
  EXPECT_EQ(options.task_index, 1);
  EXPECT_EQ(options.communication, "exchange");
  EXPECT_EQ(options.exchange_algorithm, "halving");
  EXPECT_EQ(options.gradient_compression, "bfloat16");
  EXPECT_TRUE(options_of({}).worker_hosts.empty());
  EXPECT_EQ(options_of({}).communication, "auto");
  EXPECT_EQ(options_of({}).exchange_algorithm, "auto");
  EXPECT_EQ(options_of({}).encrypt, "on");
  EXPECT_EQ(options_of({"--encrypt", "off"}).encrypt, "off");
  EXPECT_EQ(options_of({}).gradient_compression, "none");
}

TEST(LayoutFlags, RefusesOnlyOneOfTheFlagsThatNameAWorker) {
  EXPECT_EQ(refusal({"--worker-hosts", "a:1"}),
            "--worker-hosts a:1: expected --worker-hosts and --task-index together");
  EXPECT_EQ(refusal({"--task-index", "0"}),
            "--task-index 0: expected --worker-hosts and --task-index together");
  EXPECT_THAT(refusal({"--worker-hosts", "a:1", "--task-index", "-1"}), HasSubstr("--task-index"));
}

TEST(LayoutFlags, RefusesAnExchangeAlgorithmForOtherCommunication) {
  EXPECT_EQ(refusal({"--exchange-algorithm", "halving", "--communication", "ring"}),
            "--exchange-algorithm halving: expected it with --communication auto or exchange only");
  EXPECT_THAT(refusal({"--exchange-algorithm", "tree"}),
              AllOf(HasSubstr("--exchange-algorithm"), HasSubstr("recursive_doubling"), HasSubstr("tree")));
}

TEST(LayoutFlags, ReadsTheSchedulesOfPipelines) {
  EXPECT_EQ(options_of({}).pipeline_schedule, "1f1b");
  for (const std::string name : {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"})
    EXPECT_EQ(options_of({"--pipeline-schedule", name}).pipeline_schedule, name);
  const auto options = options_of({"--pipeline-schedule", "interleaved", "--stages-per-rank", "3"});
  EXPECT_EQ(options.stages_per_rank, 3);
  EXPECT_THAT(refusal({"--stages-per-rank", "3"}),
              HasSubstr("--stages-per-rank 3: expected it with --pipeline-schedule interleaved only"));
  EXPECT_THAT(refusal({"--pipeline-schedule", "2f2b"}), HasSubstr("but got '2f2b'"));
  EXPECT_EQ(options_of({}).pipeline_cut, "operations");
  EXPECT_EQ(options_of({"--pipeline-cut", "time"}).pipeline_cut, "time");
  EXPECT_THAT(refusal({"--pipeline-cut", "hand"}), HasSubstr("but got 'hand'"));
}

TEST(LayoutFlags, TakesRegisteredStrategiesByName) {
  EXPECT_EQ(parse_command_line({"--strategy", "mine"}, {"default", "mine"}).options.strategy, "mine");
}

TEST(LayoutFlags, KeepsEmptyDevicesForTheirReaderToRefuse) {
  EXPECT_THAT(options_of({"--devices", ""}).devices, ElementsAre(""));
  EXPECT_THAT(options_of({"--devices", "cpu:0,"}).devices, ElementsAre("cpu:0", ""));
}

TEST(LayoutFlags, RefusesDevicesBesideReplicas) {
  EXPECT_THAT(refusal({"--devices", "cpu:0", "--replicas", "2"}),
              HasSubstr("expected one of --devices and --replicas, but got both"));
  EXPECT_THAT(refusal({"--replica-weights", ""}),
              HasSubstr("--replica-weights: expected measured, or positive numbers joined by commas"));
  EXPECT_THAT(refusal({"--replicas-per-device", "2", "--replicas", "2"}),
              HasSubstr("expected one of --replicas-per-device and --replicas, but got both"));
}

}  // namespace
}  // namespace lockstep::apps
