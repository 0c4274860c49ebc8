#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/runtime/base/files/folder_lock.h"
#include "lockstep/runtime/cluster/environment.h"

namespace lockstep::torch_tpu {

/// Returns the number of Google's TPU chips among the PCI devices that the folder describes. It opens none of
/// them, so it is safe while another process uses them. torch_tpu 0.2.0 looks for its devices there, too.
int num_tpu_chips(const std::string& pci_devices = "/sys/bus/pci/devices");

/// Returns the numbers of the devices that this process uses, of `num_devices` on this machine: those of
/// TPU_VISIBLE_CHIPS, or else the one of LOCAL_RANK if a launcher started several processes here, or else
/// all. Throws InvalidArgument for a malformed variable, and for a number that no device has.
std::vector<int> devices_of_process(const Environment& environment, int num_devices);

/// Holds TPU devices of this machine for this process, among the processes that use Lockstep. Libtpu gives a
/// chip to one process only, and a second one waits.
///
/// Example:
///
///     const TpuLocks locks({0, 1}, "/tmp/lockstep-tpu");
class TpuLocks {
 public:
  /// Throws InvalidArgument that names the device and the process that has it. Makes `folder` if it does not
  /// exist.
  TpuLocks(const std::vector<int>& devices, const std::string& folder);

 private:
  std::vector<std::unique_ptr<FolderLock>> locks_;
};

}  // namespace lockstep::torch_tpu
