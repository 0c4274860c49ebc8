#include "lockstep/torch_tpu/tpu_hardware.h"

#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/cluster/internal/tpu_variables.h"

namespace lockstep::torch_tpu {
namespace {

namespace fs = std::filesystem;

/// As in torch_tpu 0.2.0, utils/hardware.py: TPU v4, v5p, v5e, v6e and 7x.
const std::set<std::string> kTpuDeviceIds = {"0x005e", "0x0062", "0x0063", "0x006f", "0x0076"};
constexpr char kGoogle[] = "0x1ae0";

std::string word_of(const fs::path& file) {
  std::string word;
  std::ifstream(file) >> word;
  return word;
}

}  // namespace

int num_tpu_chips(const std::string& pci_devices) {
  int count = 0;
  std::error_code error;
  for (fs::directory_iterator device(pci_devices, error), end; !error && device != end;
       device.increment(error)) {
    if (word_of(device->path() / "vendor") != kGoogle) continue;
    if (kTpuDeviceIds.contains(word_of(device->path() / "device"))) ++count;
  }
  return count;
}

std::vector<int> devices_of_process(const Environment& environment, int num_devices) {
  const TpuVariables variables(environment);
  if (const auto chips = variables.visible_chips()) {
    for (const int chip : *chips) {
      if (chip < num_devices) continue;
      variables.launcher().refuse(variables.visible_chips_name(),
                                  "chips of this machine, 0 to " + std::to_string(num_devices - 1));
    }
    return *chips;
  }
  const int processes = variables.launcher().find_integer("LOCAL_WORLD_SIZE", {.least = 1}).value_or(1);
  if (processes > num_devices) {
    variables.launcher().refuse("LOCAL_WORLD_SIZE", "at most " + std::to_string(num_devices) +
                                                        ", the number of TPU devices of this machine, or two "
                                                        "processes would use one");
  }
  if (processes > 1) return {variables.launcher().integer("LOCAL_RANK", {.most = processes - 1})};
  std::vector<int> all(num_devices);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

TpuLocks::TpuLocks(const std::vector<int>& devices, const std::string& folder) {
  fs::create_directories(folder);
  for (const int device : devices) {
    const std::string path = folder + "/device-" + std::to_string(device);
    try {
      locks_.push_back(std::make_unique<FolderLock>(path, FolderOwner::here()));
    } catch (const FolderInUse& error) {
      throw InvalidArgument("[torch_tpu] expected TPU device " + std::to_string(device) +
                            " to be free, but it is in use (" + error.what() +
                            "): start one process for each device, with TPU_VISIBLE_CHIPS or LOCAL_RANK and "
                            "LOCAL_WORLD_SIZE");
    }
  }
}

}  // namespace lockstep::torch_tpu
