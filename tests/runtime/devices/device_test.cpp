#include "lockstep/runtime/devices/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string refusal_of(const std::string& token) {
  try {
    parse_device(token);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Device, ReadsEverySpellingOfOneDevice) {
  for (const char* token : {"cpu:3", "CPU:3", "Cpu:3", "/cpu:3", "/CPU:3", "/device:cpu:3", "/device:CPU:3",
                            "device:cpu:3", "/DEVICE:CPU:3"}) {
    EXPECT_EQ(parse_device(token), (LogicalDevice{c10::DeviceType::CPU, 3})) << token;
  }
  EXPECT_EQ(parse_device("cpu"), (LogicalDevice{c10::DeviceType::CPU, 0}));
  EXPECT_EQ(parse_device("cpu:1000000"), (LogicalDevice{c10::DeviceType::CPU, 1000000}));
}

TEST(Device, ReadsEverySpellingOfAGpu) {
  if (num_gpus() == 0) GTEST_SKIP() << "no GPU";
  for (const char* token :
       {"gpu:0", "GPU:0", "/gpu:0", "/GPU:0", "/device:gpu:0", "/device:GPU:0", "cuda:0", "cuda", "gpu"}) {
    EXPECT_EQ(parse_device(token), (LogicalDevice{c10::DeviceType::CUDA, 0})) << token;
  }
}

TEST(Device, RefusesEverythingElseNamingTheTokenAndWhatIsAvailable) {
  for (const char* token :
       {"", "gpu:x", "gpu:", "gpu:-1", "cpu:-1", "cpu:+1", "cpu:1.5", "cpu:1 ", " cpu:1", "cpu:99999999999",
        "tpu:0", "0", ":0", "/", "device:", "cpu:0:1", "gpu0", "cpu;0"}) {
    EXPECT_THAT(refusal_of(token),
                AllOf(HasSubstr("'" + std::string(token) + "'"), HasSubstr("available: cpu:N (any N)")));
  }
}

TEST(Device, NamesTheGpusThatThereAreForOneThatIsNot) {
  const int count = num_gpus();
  const std::string text = refusal_of("GPU:" + std::to_string(count));
  EXPECT_THAT(text, AllOf(HasSubstr("'GPU:" + std::to_string(count) + "'"),
                          HasSubstr(count == 0 ? "there is no GPU: "
                                               : "no such GPU, " + std::to_string(count) + " can be used")));
#ifndef LOCKSTEP_WITH_CUDA
  EXPECT_THAT(text, HasSubstr("this build of Lockstep cannot use any (LOCKSTEP_CUDA=OFF)"));
#endif
  for (int index = 0; index < count; ++index) EXPECT_THAT(text, HasSubstr("gpu:" + std::to_string(index)));
}

TEST(Device, RefusesTwoSpellingsOfOneDevice) {
  EXPECT_EQ(parse_devices({"cpu:0", "cpu:1"}), logical_cpus(2));
  EXPECT_TRUE(parse_devices({}).empty());
  try {
    parse_devices({"cpu:1", "cpu:0", "/device:CPU:1"});
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("'/device:CPU:1'"), HasSubstr("cpu:1 is named twice")));
  }
}

TEST(Device, PrintsItsCanonicalSpellingAndLivesOnTheOneCpu) {
  std::ostringstream text;
  text << LogicalDevice{c10::DeviceType::CPU, 2} << ' ' << LogicalDevice{c10::DeviceType::CUDA, 1};
  EXPECT_EQ(text.str(), "cpu:2 gpu:1");
  EXPECT_EQ((LogicalDevice{c10::DeviceType::CPU, 2}.torch_device()), torch::Device(torch::kCPU));
  EXPECT_EQ((LogicalDevice{c10::DeviceType::CUDA, 1}.torch_device()), torch::Device(torch::kCUDA, 1));
}

TEST(Device, ListsTheCpuAndEveryGpuInOrder) {
  const auto devices = list_devices();
  ASSERT_EQ(devices.size(), static_cast<size_t>(num_gpus()) + 1);
  EXPECT_EQ(devices[0].str(), "cpu:0");
  for (int index = 0; index < num_gpus(); ++index) {
    EXPECT_EQ(devices[static_cast<size_t>(index) + 1].str(), "gpu:" + std::to_string(index));
    EXPECT_EQ(parse_device(devices[static_cast<size_t>(index) + 1].str()),
              devices[static_cast<size_t>(index) + 1]);
  }
  EXPECT_EQ(num_gpus(), static_cast<int>(torch::cuda::device_count()));
}

/// Counts GPUs in the process that the next test starts.
TEST(Device, HasNoGpuWhereAllAreHidden) {
  if (std::getenv("LOCKSTEP_HIDDEN_GPUS") == nullptr) GTEST_SKIP() << "no GPUs were hidden from this process";
  EXPECT_EQ(num_gpus(), 0);
  EXPECT_EQ(available_devices(), "cpu:N (any N)");
}

TEST(DeviceDeathTest, SeesOnlyTheGpusThatCudaVisibleDevicesLeaves) {
  if (num_gpus() == 0) GTEST_SKIP() << "no GPU to hide";
  // In a new process, since the driver reads the variable once.
  EXPECT_EXIT(
      {
        setenv("LOCKSTEP_HIDDEN_GPUS", "1", 1);
        setenv("CUDA_VISIBLE_DEVICES", "", 1);
        execl("/proc/self/exe", "runtime_test", "--gtest_filter=Device.HasNoGpuWhereAllAreHidden", nullptr);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace lockstep
