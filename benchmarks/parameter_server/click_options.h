#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::benchmarks {

struct ClickOptions {
  int64_t tables = 26;           ///< one for each column of categories, or 1 for all
  int64_t table_rows = 100'000;  ///< of each table
  int64_t embedding_dim = 64;
  std::vector<int64_t> units{64};  ///< of the hidden layers
  int64_t batch_size = 1024;       ///< rows of a worker's step
  int64_t steps = 300;
  int64_t warmup_steps = 40;
};

/// Reads the command line. Nothing where --help was asked for and has been printed. Throws what cxxopts does,
/// naming the flag; std::invalid_argument for numbers that cannot be.
std::optional<ClickOptions> parse_clicks(int argc, char** argv);

}  // namespace lockstep::benchmarks
