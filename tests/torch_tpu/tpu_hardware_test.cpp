#include "lockstep/torch_tpu/tpu_hardware.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/environment_of.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/temporary_folder.h"

namespace lockstep::torch_tpu {
namespace {

namespace fs = std::filesystem;
using lockstep::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

void add_pci_device(const fs::path& folder, const std::string& vendor, const std::string& device) {
  fs::create_directories(folder);
  std::ofstream(folder / "vendor") << vendor << '\n';
  std::ofstream(folder / "device") << device << '\n';
}

TEST(TpuHardware, CountsGooglesTpusOnly) {
  const TemporaryFolder folder;
  EXPECT_EQ(num_tpu_chips(folder.path()), 0);
  EXPECT_EQ(num_tpu_chips(folder.path() + "/nowhere"), 0);
  add_pci_device(fs::path(folder.path()) / "0000:00:04.0", "0x1ae0", "0x0063");
  add_pci_device(fs::path(folder.path()) / "0000:00:05.0", "0x1ae0", "0x006f");
  add_pci_device(fs::path(folder.path()) / "0000:00:06.0", "0x1ae0", "0x0042");  // Google's network card
  add_pci_device(fs::path(folder.path()) / "0000:00:07.0", "0x10de", "0x0063");
  EXPECT_EQ(num_tpu_chips(folder.path()), 2);
}

TEST(TpuHardware, GivesEachProcessItsDevices) {
  const auto devices = [](const Variables& variables) {
    return devices_of_process(environment_of(variables), 4);
  };
  EXPECT_THAT(devices({}), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(devices({{"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}}), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(devices({{"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "4"}}), ElementsAre(2));
  EXPECT_THAT(devices({{"TPU_VISIBLE_CHIPS", "2,3"}}), ElementsAre(2, 3));
}

TEST(TpuHardware, RefusesDevicesThatThereAreNot) {
  const auto refusal = [](const Variables& variables) {
    return message_of<InvalidArgument>([&] { devices_of_process(environment_of(variables), 4); });
  };
  EXPECT_EQ(refusal({{"TPU_VISIBLE_CHIPS", "4"}}),
            "[TPU] expected TPU_VISIBLE_CHIPS to be chips of this machine, 0 to 3, but got '4'");
  EXPECT_EQ(
      refusal({{"LOCAL_WORLD_SIZE", "5"}}),
      "[TPU] expected LOCAL_WORLD_SIZE to be at most 4, the number of TPU devices of this machine, or two "
      "processes would use one, but got '5'");
  EXPECT_EQ(refusal({{"LOCAL_WORLD_SIZE", "4"}}),
            "[TPU] expected LOCAL_RANK to be a whole number, but it is not set");
}

TEST(TpuLocks, GiveADeviceToOneProcess) {
  const TemporaryFolder folder;
  const std::string locks = folder.path() + "/locks";
  {
    const TpuLocks first({0, 1}, locks);
    const TpuLocks other({2}, locks);
    const auto message = message_of<InvalidArgument>([&] { TpuLocks second({1}, locks); });
    EXPECT_THAT(message, HasSubstr("expected TPU device 1 to be free"));
    EXPECT_THAT(message, HasSubstr(FolderOwner::here().describe()));
  }
  const TpuLocks again({1}, locks);
}

}  // namespace
}  // namespace lockstep::torch_tpu
