#include "lockstep/benchmarks/chrome_trace.h"

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace lockstep::benchmarks {
namespace {

void add_event(const nlohmann::json& event, int device, DeviceActivity& activity) {
  const std::string category = event.value("cat", "");
  const bool is_copy = category == "gpu_memcpy";
  if (!is_copy && category != "kernel" && category != "gpu_memset") return;
  if (event.at("args").at("device").get<int>() != device) return;
  const double begin = event.at("ts").get<double>();
  const TimeInterval interval{begin, begin + event.at("dur").get<double>()};
  const std::string name = event.at("name").get<std::string>();
  if (!is_copy || name.find("DtoD") != std::string::npos) {
    activity.kernels.push_back(interval);
  } else if (name.find("HtoD") != std::string::npos) {
    activity.copies_from_host.push_back(interval);
  }
}

}  // namespace

DeviceActivity read_chrome_trace(std::istream& trace, int device) {
  try {
    DeviceActivity activity;
    const auto json = nlohmann::json::parse(trace);
    for (const auto& event : json.at("traceEvents")) add_event(event, device, activity);
    return activity;
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error(std::string("[chrome_trace] expected a trace of LibTorch's profiler, but ") +
                             error.what());
  }
}

}  // namespace lockstep::benchmarks
