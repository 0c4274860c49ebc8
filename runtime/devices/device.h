#pragma once

#include <torch/types.h>

#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

enum class DeviceKind { kCpu, kGpu };

/// A device as a strategy sees it: a replica's place, keyed by kind and index.
///
/// CPU devices are logical: `cpu:0`, `cpu:1`, ... always exist and share the one CPU that LibTorch knows, so
/// that several replicas can be tried on any machine.
struct LogicalDevice {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;

  /// Where tensors of this device live: torch::kCPU without an index (LibTorch knows one CPU only), or
  /// torch::Device(kCUDA, index).
  torch::Device torch_device() const;
  /// The canonical spelling, such as `gpu:0`.
  std::string str() const;

  friend bool operator==(const LogicalDevice&, const LogicalDevice&) = default;
};

std::ostream& operator<<(std::ostream& stream, const LogicalDevice& device);

/// Reads one device: `gpu:0`, `GPU:0`, `/gpu:0`, `/device:gpu:0`, `cuda:0` and the same for `cpu`; no index
/// means 0. Throws InvalidArgument naming the token, and what is available, for anything else and for a GPU
/// that is not there.
LogicalDevice parse_device(std::string_view token);

/// Reads each token. Throws InvalidArgument as parse_device, and where two tokens name the same device.
std::vector<LogicalDevice> parse_devices(const std::vector<std::string>& tokens);

/// Every device that can be used here: cpu:0 and one entry a GPU that CUDA_VISIBLE_DEVICES leaves visible.
std::vector<LogicalDevice> list_devices();

/// Number of usable GPUs; 0 without a driver or in a build without CUDA.
int num_gpus();

/// list_devices() in words for messages, such as `cpu:N (any N), gpu:0, gpu:1`.
std::string available_devices();

/// `count` logical CPUs, cpu:0 to cpu:count-1.
std::vector<LogicalDevice> logical_cpus(int count);

}  // namespace lockstep
