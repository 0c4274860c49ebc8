#include "lockstep/runtime/devices/device.h"

#include <torch/cuda.h>

#include <algorithm>
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

[[noreturn]] void refuse(std::string_view token, const std::string& why) {
  throw InvalidArgument("[device] '" + std::string(token) + "': " + why +
                        "; available: " + available_devices());
}

}  // namespace

torch::Device LogicalDevice::torch_device() const {
  if (kind == DeviceKind::kCpu) return torch::Device(torch::kCPU);
  return torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(index));
}

std::string LogicalDevice::str() const {
  return (kind == DeviceKind::kCpu ? "cpu:" : "gpu:") + std::to_string(index);
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
  const std::string_view kind = rest.substr(0, colon);

  LogicalDevice device;
  if (kind == "cpu") {
    device.kind = DeviceKind::kCpu;
  } else if (kind == "gpu" || kind == "cuda") {
    device.kind = DeviceKind::kGpu;
  } else {
    refuse(token, token.empty() ? "expected a device such as gpu:0, but got an empty name"
                                : "expected cpu or gpu, but got '" + std::string(kind) + "'");
  }
  if (colon != std::string_view::npos) {
    const std::string_view digits = rest.substr(colon + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), device.index);
    if (error != std::errc() || end != digits.data() + digits.size() || device.index < 0) {
      refuse(token, "expected an index of 0 or more after the colon, but got '" + std::string(digits) + "'");
    }
  }
  if (device.kind == DeviceKind::kGpu && device.index >= num_gpus()) {
    refuse(token, num_gpus() == 0 ? "there is no GPU: " + why_no_gpu()
                                  : "there is no such GPU, " + std::to_string(num_gpus()) + " can be used");
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

int num_gpus() {
  return static_cast<int>(torch::cuda::device_count());
}

std::vector<LogicalDevice> list_devices() {
  std::vector<LogicalDevice> devices{{DeviceKind::kCpu, 0}};
  for (int index = 0; index < num_gpus(); ++index) devices.push_back({DeviceKind::kGpu, index});
  return devices;
}

std::string available_devices() {
  std::string text = "cpu:N (any N)";
  for (const auto& device : list_devices()) {
    if (device.kind == DeviceKind::kGpu) text += ", " + device.str();
  }
  return text;
}

std::vector<LogicalDevice> logical_cpus(int count) {
  std::vector<LogicalDevice> devices;
  for (int index = 0; index < count; ++index) devices.push_back({DeviceKind::kCpu, index});
  return devices;
}

}  // namespace lockstep
