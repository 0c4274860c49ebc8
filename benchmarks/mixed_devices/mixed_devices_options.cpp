#include "lockstep/benchmarks/mixed_devices/mixed_devices_options.h"

#include <cxxopts.hpp>
#include <iostream>
#include <stdexcept>

#include "lockstep/benchmarks/flag_values.h"

namespace lockstep::benchmarks {

std::optional<MixedDevicesOptions> parse_mixed_devices_options(int argc, char** argv) {
  constexpr int64_t kFewestPairs = 6;  // fewer have no interval
  cxxopts::Options flags("mixed_devices_benchmark",
                         "Compares the speed of one strategy over devices of different types with the sum of "
                         "what each of them reaches alone.");
  // clang-format off
  flags.add_options()
    ("devices", "the devices, such as cpu:0,gpu:0", cxxopts::value<std::vector<std::string>>())
    ("weights", "one for each device (default: the strategy measures them)", cxxopts::value<std::vector<double>>())
    ("batch", "global batch size, which a device alone gets whole", cxxopts::value<int64_t>()->default_value("512"))
    ("steps", "of a measurement", cxxopts::value<int64_t>()->default_value("20"))
    ("pairs", "of measurements", cxxopts::value<int64_t>()->default_value("11"))
    ("help", "print this");
  // clang-format on
  const auto given = flags.parse(argc, argv);
  if (given.count("help") > 0) {
    std::cout << flags.help();
    return std::nullopt;
  }
  MixedDevicesOptions options;
  if (given.count("devices") > 0) options.devices = given["devices"].as<std::vector<std::string>>();
  if (options.devices.size() < 2)
    throw std::invalid_argument("--devices: expected at least two, but got " +
                                std::to_string(options.devices.size()));
  if (given.count("weights") > 0) options.weights = given["weights"].as<std::vector<double>>();
  options.batch = at_least(given, "batch", static_cast<int64_t>(options.devices.size()));
  options.steps = static_cast<int>(at_least(given, "steps", 1));
  options.pairs = static_cast<int>(at_least(given, "pairs", kFewestPairs));
  return options;
}

}  // namespace lockstep::benchmarks
