#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::benchmarks {

struct TransportOptions {
  std::vector<int> processes{2, 4, 8};
  std::vector<int64_t> kibibytes{4, 256, 8192, 32768};
  int pairs = 21;
};

/// Reads the command line. Returns nothing if --help was asked for and has been printed. Throws what cxxopts
/// throws, naming the flag, and std::invalid_argument for numbers that cannot be.
std::optional<TransportOptions> parse_transport_options(int argc, char** argv);

}  // namespace lockstep::benchmarks
