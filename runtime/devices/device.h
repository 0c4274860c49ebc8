#pragma once

#include <torch/types.h>

#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Device of a replica, identified by LibTorch's type of device and an index.
///
/// CPU devices are logical: `cpu:0`, `cpu:1` and so on always exist and share LibTorch's one CPU, so you can
/// try several replicas on any machine.
///
/// Every other type is an accelerator: CUDA's GPUs, and whatever else LibTorch has a backend for in this
/// process, such as Intel's GPUs (`xpu`), Apple's (`mps`), and a plugin's devices (LibTorch's PrivateUse1),
/// which go by the name that the plugin has registered.
struct LogicalDevice {
  c10::DeviceType type = c10::DeviceType::CPU;
  int index = 0;

  bool is_cpu() const { return type == c10::DeviceType::CPU; }
  bool is_accelerator() const { return !is_cpu(); }
  /// True for GPUs of CUDA, for which NCCL, CUDA graphs and cuDNN exist.
  bool is_cuda() const { return type == c10::DeviceType::CUDA; }
  /// Returns the device of tensors: torch::kCPU without an index, since LibTorch has only one CPU, or
  /// torch::Device(type, index).
  torch::Device torch_device() const;
  /// Returns the canonical spelling, such as `gpu:0` for CUDA's first GPU or `xpu:0` for Intel's.
  std::string str() const;

  friend bool operator==(const LogicalDevice&, const LogicalDevice&) = default;
};

std::ostream& operator<<(std::ostream& stream, const LogicalDevice& device);

/// Parses a device: `gpu:0`, `GPU:0`, `/gpu:0`, `/device:gpu:0`, `cuda:0`, and the same for `cpu`, for
/// LibTorch's names of other types, such as `xpu`, and for the name of a registered plugin. `accelerator`
/// stands for the type that accelerator() returns. A missing index means 0. Throws InvalidArgument, naming
/// the token and the available devices, for anything else, for a device that does not exist, and for a type
/// whose backend is not in this process. Asks only for the number of devices, and uses none.
LogicalDevice parse_device(std::string_view token);

/// Parses each token. Throws InvalidArgument as parse_device() does, and if two tokens name the same device.
std::vector<LogicalDevice> parse_devices(const std::vector<std::string>& tokens);

/// Returns all usable devices: cpu:0, and those of each accelerator that LibTorch has a backend for in this
/// process, beginning with accelerator(). Of GPUs, returns those that CUDA_VISIBLE_DEVICES leaves visible.
std::vector<LogicalDevice> list_devices();

/// Returns the number of usable devices of a type. 0 without a driver, without hardware, or without a backend
/// in this process. `type` must not be CPU, of which there is any number.
int num_devices(c10::DeviceType type);

/// Returns all usable devices of a type; of CPU, cpu:0.
std::vector<LogicalDevice> devices_of(c10::DeviceType type);

/// Returns the number of CUDA's usable GPUs, num_devices(CUDA).
int num_gpus();

/// Returns the type of accelerator that strategies take if you name no devices: CUDA if it has a device, else
/// the first other type that has one. None if there are only CPUs.
std::optional<c10::DeviceType> accelerator();

/// Returns all usable devices of accelerator(), or none if there are only CPUs.
std::vector<LogicalDevice> accelerators();

/// Returns a type's name as LogicalDevice::str() writes it, such as `cpu`, `gpu` or `xpu`.
std::string device_type_name(c10::DeviceType type);

/// Returns a type's name for sentences: "CPU", "GPU" for CUDA, else "xpu device" and the like.
std::string device_type_noun(c10::DeviceType type);

/// Describes list_devices() for messages, such as `cpu:N (any N), gpu:0, gpu:1`.
std::string available_devices();

/// Returns `count` logical CPUs, cpu:0 to cpu:count-1.
std::vector<LogicalDevice> logical_cpus(int count);

}  // namespace lockstep
