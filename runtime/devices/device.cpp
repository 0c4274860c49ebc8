#include "lockstep/runtime/devices/device.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/cuda.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <ostream>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

void drop_prefix(std::string_view& text, std::string_view prefix) {
  if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
}

/// In the order in which accelerator() tries them. A process seldom has two.
constexpr std::array kAcceleratorTypes{c10::DeviceType::CUDA, c10::DeviceType::PrivateUse1,
                                       c10::DeviceType::XPU,  c10::DeviceType::MPS,
                                       c10::DeviceType::MTIA, c10::DeviceType::HPU};

bool has_backend(c10::DeviceType type) {
  return c10::impl::hasDeviceGuardImpl(type);
}

/// Explains why no GPU can be used.
std::string why_no_gpu() {
#ifndef LOCKSTEP_WITH_CUDA
  return "this build of Lockstep cannot use any (LOCKSTEP_CUDA=OFF)";
#else
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible != nullptr) return "CUDA_VISIBLE_DEVICES='" + std::string(visible) + "' leaves none";
  if (!std::filesystem::exists("/proc/driver/nvidia")) return "NVIDIA's driver is not loaded";
  return "NVIDIA's driver shows none";
#endif
}

std::string why_no_device(c10::DeviceType type) {
  if (type == c10::DeviceType::CUDA) return why_no_gpu();
  if (!has_backend(type))
    return "LibTorch has no backend for it in this process; the program must load the plugin that brings "
           "one, as Lockstep's own programs do with the library in LOCKSTEP_DEVICE_PLUGIN";
  return "its backend is here, but finds no hardware";
}

[[noreturn]] void refuse(std::string_view token, const std::string& why) {
  throw InvalidArgument("[device] '" + std::string(token) + "': " + why +
                        "; available: " + available_devices());
}

c10::DeviceType parse_type(std::string_view token, std::string_view name) {
  if (name == "cpu") return c10::DeviceType::CPU;
  if (name == "gpu" || name == "cuda") return c10::DeviceType::CUDA;
  if (name == "accelerator") {
    if (const auto type = accelerator()) return *type;
    refuse(token, "there is no accelerator");
  }
  for (const auto type : kAcceleratorTypes) {
    if (name == device_type_name(type)) return type;
  }
  // LibTorch's own name of plugins' devices.
  if (name == "privateuseone") return c10::DeviceType::PrivateUse1;
  refuse(token, token.empty() ? "expected a device such as gpu:0, but got an empty name"
                              : "expected cpu, gpu, xpu, mps, or the name of a plugin's devices, but got '" +
                                    std::string(name) + "'");
}

}  // namespace

torch::Device LogicalDevice::torch_device() const {
  if (is_cpu()) return torch::Device(torch::kCPU);
  return torch::Device(type, static_cast<c10::DeviceIndex>(index));
}

std::string LogicalDevice::str() const {
  return device_type_name(type) + ":" + std::to_string(index);
}

std::ostream& operator<<(std::ostream& stream, const LogicalDevice& device) {
  return stream << device.str();
}

LogicalDevice parse_device(std::string_view token) {
  const std::string name = lower(token);
  std::string_view rest = name;
  drop_prefix(rest, "/");
  drop_prefix(rest, "device:");
  const auto colon = rest.find(':');
  LogicalDevice device;
  device.type = parse_type(token, rest.substr(0, colon));
  if (colon != std::string_view::npos) {
    const std::string_view digits = rest.substr(colon + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), device.index);
    if (error != std::errc() || end != digits.data() + digits.size() || device.index < 0) {
      refuse(token, "expected an index of 0 or more after the colon, but got '" + std::string(digits) + "'");
    }
  }
  if (device.is_cpu()) return device;
  const int count = num_devices(device.type);
  if (device.index >= count) {
    const std::string noun = device_type_noun(device.type);
    refuse(token, count == 0 ? "there is no " + noun + ": " + why_no_device(device.type)
                             : "there is no such " + noun + ", " + std::to_string(count) + " can be used");
  }
  return device;
}

std::vector<LogicalDevice> parse_devices(const std::vector<std::string>& tokens) {
  std::vector<LogicalDevice> devices;
  devices.reserve(tokens.size());
  for (const auto& token : tokens) {
    const LogicalDevice device = parse_device(token);
    if (std::find(devices.begin(), devices.end(), device) != devices.end()) {
      refuse(token, "expected different devices, but " + device.str() + " is named twice");
    }
    devices.push_back(device);
  }
  return devices;
}

int num_devices(c10::DeviceType type) {
  // LibTorch's own function tells a missing driver from an error of the driver.
  if (type == c10::DeviceType::CUDA) return static_cast<int>(torch::cuda::device_count());
  return has_backend(type) ? c10::impl::VirtualGuardImpl(type).deviceCount() : 0;
}

std::vector<LogicalDevice> devices_of(c10::DeviceType type) {
  if (type == c10::DeviceType::CPU) return logical_cpus(1);
  std::vector<LogicalDevice> devices;
  const int count = num_devices(type);
  for (int index = 0; index < count; ++index) devices.push_back({type, index});
  return devices;
}

int num_gpus() {
  return num_devices(c10::DeviceType::CUDA);
}

std::optional<c10::DeviceType> accelerator() {
  for (const auto type : kAcceleratorTypes) {
    if (num_devices(type) > 0) return type;
  }
  return std::nullopt;
}

std::vector<LogicalDevice> accelerators() {
  const auto type = accelerator();
  return type ? devices_of(*type) : std::vector<LogicalDevice>();
}

std::vector<LogicalDevice> list_devices() {
  std::vector<LogicalDevice> devices = logical_cpus(1);
  for (const auto type : kAcceleratorTypes) {
    for (const auto& device : devices_of(type)) devices.push_back(device);
  }
  return devices;
}

std::string available_devices() {
  std::string text = "cpu:N (any N)";
  for (const auto& device : list_devices()) {
    if (device.is_accelerator()) text += ", " + device.str();
  }
  return text;
}

std::string device_type_name(c10::DeviceType type) {
  return type == c10::DeviceType::CUDA ? "gpu" : lower(c10::DeviceTypeName(type, /*lower_case=*/true));
}

std::string device_type_noun(c10::DeviceType type) {
  if (type == c10::DeviceType::CPU) return "CPU";
  if (type == c10::DeviceType::CUDA) return "GPU";
  return device_type_name(type) + " device";
}

std::vector<LogicalDevice> logical_cpus(int count) {
  std::vector<LogicalDevice> devices;
  for (int index = 0; index < count; ++index) devices.push_back({c10::DeviceType::CPU, index});
  return devices;
}

}  // namespace lockstep
