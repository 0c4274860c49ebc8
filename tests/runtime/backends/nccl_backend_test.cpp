// Tests of NCCL that need no two GPUs; backend_all_reduce_test.cpp tests the rest over a fake.
#include "lockstep/runtime/backends/internal/nccl_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <map>
#include <string>

#include "lockstep/runtime/backends/internal/nccl_settings.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/communication/cross_device_ops.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

const Devices kTwoGpus{{c10::DeviceType::CUDA, 0}, {c10::DeviceType::CUDA, 1}};

#ifdef LOCKSTEP_WITH_CUDA

/// The environment in which the tests were started.
const std::map<std::string, std::string> kGivenEnvironment = [] {
  std::map<std::string, std::string> given;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    given.emplace(text.substr(0, text.find('=')), text.substr(text.find('=') + 1));
  }
  return given;
}();

TEST(NcclBackend, WithoutAGpuItFailsToConnectWithAnErrorThatNamesOpAndDevices) {
  if (num_gpus() > 0) GTEST_SKIP() << "there is a GPU";
  const auto message =
      message_of<BackendError>([] { NcclAllReduce().make_channel(kTwoGpus, std::chrono::seconds(10)); });
  EXPECT_THAT(message, testing::HasSubstr("[NcclAllReduce] could not connect gpu:0 gpu:1: replica "));
  EXPECT_THAT(message, testing::HasSubstr("no GPUs found"));
}

TEST(NcclBackend, SetsItsEnvironmentVariablesUnlessTheUserHasSetThem) {
  prepare_nccl();
  for (const auto& [name, value] : nccl_settings(/*has_expandable_segments=*/false)) {
    const auto given = kGivenEnvironment.find(name);
    EXPECT_STREQ(std::getenv(name.c_str()),
                 (given == kGivenEnvironment.end() ? value : given->second).c_str())
        << name;
  }
}

#else

TEST(NcclBackend, IsRefusedInABuildWithoutCuda) {
  EXPECT_THROW(make_nccl_backend({.size = 2, .device = kTwoGpus[0]}), InvalidArgument);
  const auto message =
      message_of<InvalidArgument>([] { NcclAllReduce().make_channel(kTwoGpus, std::chrono::seconds(10)); });
  EXPECT_THAT(message, testing::HasSubstr("no NCCL (LOCKSTEP_CUDA=OFF)"));
}

#endif

}  // namespace
}  // namespace lockstep
