// What of NCCL can be tested without two GPUs; the rest is backend_all_reduce_test.cpp's, over a fake.
#include "lockstep/strategies/nccl_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "lockstep/runtime/errors.h"
#include "lockstep/strategies/cross_device_ops.h"
#include "lockstep/tests/strategies/message_of.h"

namespace lockstep {
namespace {

const Devices kTwoGpus{{DeviceKind::kGpu, 0}, {DeviceKind::kGpu, 1}};

#ifdef LOCKSTEP_WITH_CUDA

TEST(NcclBackend, WithoutAGpuItFailsToConnectWithAnErrorThatNamesOpAndDevices) {
  if (num_gpus() > 0) GTEST_SKIP() << "there is a GPU";
  const auto message =
      message_of<BackendError>([] { NcclAllReduce().make_channel(kTwoGpus, std::chrono::seconds(10)); });
  EXPECT_THAT(message, testing::HasSubstr("[NcclAllReduce] could not connect gpu:0 gpu:1: replica "));
  EXPECT_THAT(message, testing::HasSubstr("no GPUs found"));
}

TEST(NcclBackend, TakesTheErrorHandlingThatEndsNoProcessUnlessTheUserHasChosen) {
  prepare_nccl();
  // Whoever runs the tests may have set them; without that they are ours.
  EXPECT_NE(std::getenv("TORCH_NCCL_ASYNC_ERROR_HANDLING"), nullptr);
  EXPECT_NE(std::getenv("TORCH_NCCL_ENABLE_MONITORING"), nullptr);
}

#else

TEST(NcclBackend, IsRefusedInABuildWithoutCuda) {
  EXPECT_THROW(make_nccl_backend({.rank = 0, .devices = kTwoGpus}), InvalidArgument);
  const auto message =
      message_of<InvalidArgument>([] { NcclAllReduce().make_channel(kTwoGpus, std::chrono::seconds(10)); });
  EXPECT_THAT(message, testing::HasSubstr("no NCCL (LOCKSTEP_CUDA=OFF)"));
}

#endif

}  // namespace
}  // namespace lockstep
