#include "lockstep/apps/train_images/training/decided_values.h"

#include <gtest/gtest.h>

#include <memory>

#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/mirrored/multi_worker_mirrored_strategy.h"

namespace lockstep::apps {
namespace {

TEST(DecidedValues, NameTheDataThatWasFound) {
  const DefaultStrategy strategy;
  CommandLine line;
  decide_values(line, {.kind = DataKind::kMnistFiles, .path = "/data", .variable = "LOCKSTEP_MNIST_DIR"},
                strategy);
  EXPECT_EQ(line.options.data, "/data");
  EXPECT_EQ(line.origins.at("data"), (Origin{OriginKind::kEnvironment, "LOCKSTEP_MNIST_DIR"}));

  CommandLine found;
  decide_values(found, {.kind = DataKind::kClassFolders, .path = "mnist.zip"}, strategy);
  EXPECT_EQ(found.options.data, "mnist.zip");
  EXPECT_FALSE(found.origins.contains("data"));

  CommandLine drawn;
  decide_values(drawn, {.kind = DataKind::kGenerated}, strategy);
  EXPECT_EQ(drawn.options.data, "generated");
}

TEST(DecidedValues, LeaveWhatWasAskedFor) {
  const DefaultStrategy strategy;
  CommandLine line;
  line.options.strategy = "default";
  line.options.data = "some/where";
  line.origins["data"] = {OriginKind::kFlag, ""};
  decide_values(line, {.kind = DataKind::kMnistFiles, .path = "some/where"}, strategy);
  EXPECT_EQ(line.options.data, "some/where");
  EXPECT_EQ(line.origins.at("data").kind, OriginKind::kFlag);
  EXPECT_EQ(line.options.strategy, "default");
  CommandLine automatic;
  decide_values(automatic, {.kind = DataKind::kGenerated}, strategy);
  EXPECT_EQ(automatic.options.strategy, "auto");
  EXPECT_FALSE(automatic.origins.contains("strategy"));
}

TEST(DecidedValues, NameTheLauncherThatGaveACluster) {
  const auto cluster = std::make_shared<FixedClusterResolver>(ClusterMembership{.source = "TF_CONFIG"});
  const MultiWorkerMirroredStrategy strategy(cluster);
  CommandLine line;
  decide_values(line, {.kind = DataKind::kGenerated}, strategy);
  EXPECT_EQ(line.options.strategy, "multi_worker");
  EXPECT_EQ(line.origins.at("strategy"), (Origin{OriginKind::kEnvironment, "TF_CONFIG"}));
}

}  // namespace
}  // namespace lockstep::apps
