#include "lockstep/strategies/communication/internal/cross_device_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/fake_nccl.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const LogicalDevice kFirstGpu{c10::DeviceType::CUDA, 0};
const LogicalDevice kSecondGpu{c10::DeviceType::CUDA, 1};
const LogicalDevice kFirstCpu{c10::DeviceType::CPU, 0};
constexpr std::chrono::seconds kTimeout{10};

/// Keeps LibTorch's warnings during its lifetime.
class KeptWarnings : public c10::WarningHandler {
 public:
  KeptWarnings() : guard_(this) {}
  void process(const c10::Warning& warning) override { messages.push_back(warning.msg()); }
  std::vector<std::string> messages;

 private:
  c10::WarningUtils::WarningHandlerGuard guard_;
};

std::vector<std::string> names_for(const Devices& devices) {
  std::vector<std::string> names;
  for (const auto& candidate : candidates_for(devices)) names.push_back(candidate.ops->name());
  return names;
}

TEST(CandidatesFor, NamesWhatServesTheDevicesBestFirst) {
  EXPECT_THAT(names_for(logical_cpus(1)), ElementsAre("HierarchicalCopyAllReduce"));
  EXPECT_THAT(names_for(logical_cpus(4)), ElementsAre("HierarchicalCopyAllReduce"));
  EXPECT_THAT(names_for({kFirstGpu}), ElementsAre("HierarchicalCopyAllReduce"));
  EXPECT_THAT(names_for({kFirstGpu, kFirstCpu}), ElementsAre("ReductionToOneDevice"));
  EXPECT_THAT(names_for({kFirstGpu, kSecondGpu}), ElementsAre("NcclAllReduce", "HierarchicalCopyAllReduce"));
}

TEST(OpenFirst, SaysNothingWhereTheFirstConnects) {
  KeptWarnings warnings;
  const auto opened = open_first(candidates_for(logical_cpus(2)), logical_cpus(2), kTimeout);
  EXPECT_EQ(opened.ops->name(), "HierarchicalCopyAllReduce");
  EXPECT_EQ(opened.reason, "replicas share this process's memory");
  EXPECT_EQ(opened.channel->backend(1)->getRank(), 1);
  EXPECT_TRUE(warnings.messages.empty());
}

TEST(OpenFirst, FallsBackFromAnOpThatRefusesTheDevicesWithOneLineThatSaysWhy) {
  KeptWarnings warnings;
  const Devices devices{kFirstGpu, kFirstGpu};
  const auto opened = open_first(candidates_for(devices), devices, kTimeout);
  EXPECT_EQ(opened.ops->name(), "HierarchicalCopyAllReduce");
  EXPECT_THAT(opened.reason,
              HasSubstr("; not NcclAllReduce: [NcclAllReduce] expected each replica on a GPU"));
  ASSERT_EQ(warnings.messages.size(), 1U);
  EXPECT_THAT(warnings.messages[0],
              HasSubstr("taking HierarchicalCopyAllReduce, because [NcclAllReduce] expected"));
  EXPECT_EQ(warnings.messages[0].find('\n'), std::string::npos);
}

TEST(OpenFirst, FallsBackFromAnOpThatCannotConnect) {
  const auto world = std::make_shared<FakeNcclWorld>();
  world->set_fault(1, FakeNcclWorld::Fault::kConnecting);
  const auto fake = std::make_shared<BackendAllReduce>("FakeNccl", world->factory());
  const std::vector<CrossDeviceCandidate> candidates{{fake, "best"},
                                                     {std::make_shared<HierarchicalCopyAllReduce>(), "next"}};
  KeptWarnings warnings;
  const auto opened = open_first(candidates, logical_cpus(2), kTimeout);
  EXPECT_EQ(opened.ops->name(), "HierarchicalCopyAllReduce");
  EXPECT_THAT(opened.reason,
              HasSubstr("next; not FakeNccl: [FakeNccl] could not connect cpu:0 cpu:1: replica 1 "
                        "(cpu:1): fake NCCL: unhandled system error"));
  ASSERT_EQ(warnings.messages.size(), 1U);
  EXPECT_THAT(warnings.messages[0], HasSubstr("taking HierarchicalCopyAllReduce, because [FakeNccl]"));
  EXPECT_EQ(warnings.messages[0].find('\n'), std::string::npos);

  // The same world works again after heal().
  world->heal();
  EXPECT_EQ(open_first(candidates, logical_cpus(2), kTimeout).ops->name(), "FakeNccl");
  EXPECT_EQ(warnings.messages.size(), 1U);
}

TEST(OpenFirst, ThrowsTheLastOnesError) {
  const auto world = std::make_shared<FakeNcclWorld>();
  world->set_fault(0, FakeNcclWorld::Fault::kMaking);
  const auto fake = std::make_shared<BackendAllReduce>("FakeNccl", world->factory());
  EXPECT_THROW(open_first({{fake, ""}, {fake, ""}}, logical_cpus(2), kTimeout), BackendError);
}

TEST(ChosenByName, AnOpThatCannotConnectFailsTheStrategysConstructorNamingOpAndDevices) {
  const auto world = std::make_shared<FakeNcclWorld>();
  world->set_fault(1, FakeNcclWorld::Fault::kMaking);
  const auto fake = std::make_shared<BackendAllReduce>("FakeNccl", world->factory());
  KeptWarnings warnings;
  const auto message = message_of<BackendError>([&] {
    MirroredStrategy({"cpu:0", "cpu:1"}, {.cross_device_ops = fake, .timeout = kTimeout});
  });
  EXPECT_THAT(message, HasSubstr("[FakeNccl] could not connect cpu:0 cpu:1: replica 1 (cpu:1)"));
  EXPECT_TRUE(warnings.messages.empty());
}

}  // namespace
}  // namespace lockstep
