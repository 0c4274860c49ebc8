#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::benchmarks {

struct MixedDevicesOptions {
  std::vector<std::string> devices;  ///< at least two
  std::vector<double> weights;       ///< one for each device; empty: measured by the strategy
  int64_t batch = 512;               ///< the global batch, which a device alone gets whole
  int steps = 20;                    ///< of a measurement
  int pairs = 11;
};

/// Reads the command line. Nothing if --help was asked for and has been printed. Throws std::invalid_argument
/// naming the flag.
std::optional<MixedDevicesOptions> parse_mixed_devices_options(int argc, char** argv);

}  // namespace lockstep::benchmarks
