#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::benchmarks {

struct ExchangeOptions {
  int64_t num_tables = 26;
  int64_t num_rows = 100'000;  ///< of each table
  int64_t batch_rows = 4096;   ///< of each table in one exchange
  int64_t width = 64;          ///< floats in a row
  std::vector<int> servers{1, 2};
  int pairs = 21;
};

/// Reads the command line. Nothing where --help was asked for and has been printed. Throws what cxxopts does,
/// naming the flag; std::invalid_argument for numbers that cannot be.
std::optional<ExchangeOptions> parse_exchange(int argc, char** argv);

}  // namespace lockstep::benchmarks
