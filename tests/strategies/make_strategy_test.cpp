#include "lockstep/strategies/make_strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

TEST(MakeStrategy, MakesEachByName) {
  EXPECT_EQ(make_strategy("default").strategy->name(), "DefaultStrategy");
  const auto one = make_strategy("one_device", {.devices = {"cpu:2"}});
  EXPECT_EQ(one.strategy->name(), "OneDeviceStrategy");
  EXPECT_EQ(one.strategy->devices()[0].str(), "cpu:2");
  EXPECT_EQ(one.reason, "one_device: asked for by name");
  const auto mirrored = make_strategy("mirrored", {.devices = cpu_devices(3)});
  EXPECT_EQ(mirrored.strategy->name(), "MirroredStrategy");
  EXPECT_EQ(mirrored.strategy->num_replicas_in_sync(), 3);
}

TEST(MakeStrategy, HandsOnTheOptions) {
  const auto made = make_strategy(
      "mirrored",
      {.devices = cpu_devices(2), .options = {.cross_device_ops = std::make_shared<ReductionToOneDevice>()}});
  EXPECT_EQ(made.strategy->cross_device_ops().name(), "ReductionToOneDevice");
}

TEST(MakeStrategy, AutoPicksByTheDevicesAndSaysWhy) {
  EXPECT_EQ(make_strategy("auto", {.devices = cpu_devices(2)}).reason,
            "mirrored: several devices were asked for");
  const auto one = make_strategy("auto", {.devices = {"cpu:1"}});
  EXPECT_EQ(one.strategy->name(), "OneDeviceStrategy");
  EXPECT_EQ(one.reason, "one_device: one device was asked for");
  const auto none = make_strategy("auto");
  if (num_gpus() == 0) {
    EXPECT_EQ(none.strategy->name(), "DefaultStrategy");
    EXPECT_EQ(none.reason, "default: there is no GPU");
  } else {
    EXPECT_EQ(none.strategy->name(), "MirroredStrategy");
    EXPECT_EQ(none.reason, "mirrored: there are " + std::to_string(num_gpus()) + " GPUs");
  }
}

TEST(MakeStrategy, AutoPicksByTheClusterAndSaysWhy) {
  const auto in_cluster = [](const ClusterSpec::Jobs& jobs, const std::string& task) {
    return StrategyRequest{.cluster_resolver =
                               std::make_shared<SimpleClusterResolver>(ClusterSpec(jobs), task, 0)};
  };
  // A server's own process has no strategy, and the error of the picked one says so.
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                make_strategy("auto", in_cluster({{"chief", {{0, {"127.0.0.1", 1}}}},
                                                  {"worker", {{0, {"127.0.0.1", 2}}}},
                                                  {"ps", {{0, {"127.0.0.1", 3}}}}},
                                                 "ps"));
              }),
              testing::HasSubstr("expected a chief or a worker, but got ps 0"));
  EXPECT_THAT(
      message_of<InvalidArgument>([&] { make_strategy("parameter_server", in_cluster({}, "worker")); }),
      testing::HasSubstr("expected a cluster with tasks ps, worker and chief, but got no ps in"));
  EXPECT_THAT(make_strategy("auto", in_cluster({}, "worker")).reason,
              testing::HasSubstr("multi_worker: a cluster is given by"));
}

TEST(MakeStrategy, AnUnknownNameIsAnsweredWithTheKnownOnes) {
  const auto message = message_of<InvalidArgument>([] { make_strategy("mirored"); });
  EXPECT_THAT(message, testing::HasSubstr("'mirored'"));
  EXPECT_THAT(message, testing::HasSubstr("auto or one of"));
  for (const auto& name : strategy_names()) EXPECT_THAT(message, testing::HasSubstr(name));
  EXPECT_THAT(strategy_names(), testing::IsSupersetOf({"default", "mirrored", "one_device"}));
}

TEST(MakeStrategy, RefusesDevicesThatAStrategyCannotTake) {
  EXPECT_THROW(make_strategy("default", {.devices = {"cpu:0"}}), InvalidArgument);
  EXPECT_THROW(make_strategy("one_device"), InvalidArgument);
  EXPECT_THROW(make_strategy("one_device", {.devices = cpu_devices(2)}), InvalidArgument);
  const auto message = message_of<InvalidArgument>([] {
    make_strategy("mirrored", {.devices = {"cpu:0", "gpu:x"}});
  });
  EXPECT_THAT(message, testing::HasSubstr("'gpu:x'"));
}

TEST(RegisterStrategy, MakesANameKnown) {
  EXPECT_TRUE(register_strategy("pair_of_cpus", [](const StrategyRequest& request) {
    return std::make_unique<MirroredStrategy>(cpu_devices(2), request.options);
  }));
  EXPECT_THAT(strategy_names(), testing::Contains("pair_of_cpus"));
  const auto made = make_strategy("pair_of_cpus");
  EXPECT_EQ(made.strategy->num_replicas_in_sync(), 2);
  EXPECT_EQ(made.reason, "pair_of_cpus: asked for by name");
}

TEST(RegisterStrategy, RefusesTakenAndEmptyNamesAndMissingFactories) {
  const auto make = [](const StrategyRequest&) { return get_strategy(); };
  for (const std::string name : {"mirrored", "auto", ""}) {
    const auto message = message_of<InvalidArgument>([&] { register_strategy(name, make); });
    EXPECT_THAT(message, testing::HasSubstr("'" + name + "'"));
  }
  EXPECT_THAT(message_of<InvalidArgument>([] { register_strategy("without_factory", nullptr); }),
              testing::HasSubstr("expected a factory for 'without_factory'"));
  EXPECT_THAT(strategy_names(), testing::Not(testing::Contains("without_factory")));
}

TEST(RegisterStrategy, AFactoryThatReturnsNothingIsAnError) {
  register_strategy("gives_nothing", [](const StrategyRequest&) { return std::unique_ptr<Strategy>(); });
  EXPECT_THAT(message_of<InvalidArgument>([] { make_strategy("gives_nothing"); }),
              testing::HasSubstr("'gives_nothing' returned no strategy"));
}

}  // namespace
}  // namespace lockstep
