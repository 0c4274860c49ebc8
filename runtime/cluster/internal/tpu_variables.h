#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/runtime/cluster/environment.h"
#include "lockstep/runtime/cluster/host_port.h"

namespace lockstep {

inline constexpr char kTpuWorkerHostnames[] = "TPU_WORKER_HOSTNAMES";
inline constexpr char kTpuProcessAddresses[] = "TPU_PROCESS_ADDRESSES";
inline constexpr char kTpuSliceBuilderAddresses[] = "TORCH_TPU_SLICEBUILDER_ADDRESSES";

/// Reads the values that are particular to TPUs. Everything is none if its variable is not set, and errors
/// are those of LauncherVariables.
class TpuVariables {
 public:
  /// Takes empty values for unset ones.
  explicit TpuVariables(const Environment& environment);

  const LauncherVariables& launcher() const { return launcher_; }

  /// Returns the hosts of TPU_WORKER_HOSTNAMES. Refuses a host that is listed twice.
  std::optional<std::vector<std::string>> hosts() const;

  /// Returns the addresses that `name` lists. Refuses one that is listed twice.
  std::optional<std::vector<HostPort>> addresses(const std::string& name) const;

  /// Returns the chips of TPU_VISIBLE_CHIPS, or of its older name TPU_VISIBLE_DEVICES.
  std::optional<std::vector<int>> visible_chips() const;
  /// Returns the variable that visible_chips() reads.
  std::string visible_chips_name() const;

  /// Returns the product of the sizes in `name`, such as 4 for "2,2,1".
  std::optional<int> product(const std::string& name) const;

  /// Returns whichever of two names of the same value is set, preferring the first.
  std::string either_of(const std::string& name, const std::string& older) const;

  /// Returns the devices of a chip: 2 for TPU_ACCELERATOR_TYPE tpu7x, whose cores are devices of their own,
  /// else 1.
  int devices_per_chip() const;

 private:
  LauncherVariables launcher_;
};

}  // namespace lockstep
