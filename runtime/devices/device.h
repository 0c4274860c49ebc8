#pragma once

#include <torch/types.h>

#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

enum class DeviceKind { kCpu, kGpu };

/// Device of a replica, identified by kind and index.
///
/// CPU devices are logical: `cpu:0`, `cpu:1` and so on always exist and share LibTorch's one CPU, so you can
/// try several replicas on any machine.
struct LogicalDevice {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;

  /// Returns the device of tensors: torch::kCPU without an index, since LibTorch has only one CPU, or
  /// torch::Device(kCUDA, index).
  torch::Device torch_device() const;
  /// Returns the canonical spelling, such as `gpu:0`.
  std::string str() const;

  friend bool operator==(const LogicalDevice&, const LogicalDevice&) = default;
};

std::ostream& operator<<(std::ostream& stream, const LogicalDevice& device);

/// Parses a device: `gpu:0`, `GPU:0`, `/gpu:0`, `/device:gpu:0`, `cuda:0`, and the same for `cpu`. A missing
/// index means 0. Throws InvalidArgument, naming the token and the available devices, for anything else and
/// for a GPU that does not exist.
LogicalDevice parse_device(std::string_view token);

/// Parses each token. Throws InvalidArgument as parse_device() does, and if two tokens name the same device.
std::vector<LogicalDevice> parse_devices(const std::vector<std::string>& tokens);

/// Returns all usable devices: cpu:0, and each GPU that CUDA_VISIBLE_DEVICES leaves visible.
std::vector<LogicalDevice> list_devices();

/// Returns the number of usable GPUs. 0 without a driver, or in a build without CUDA.
int num_gpus();

/// Describes list_devices() for messages, such as `cpu:N (any N), gpu:0, gpu:1`.
std::string available_devices();

/// Returns `count` logical CPUs, cpu:0 to cpu:count-1.
std::vector<LogicalDevice> logical_cpus(int count);

}  // namespace lockstep
