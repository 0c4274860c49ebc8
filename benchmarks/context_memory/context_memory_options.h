#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::benchmarks {

struct ContextMemoryOptions {
  std::vector<int64_t> tokens{1024, 2048, 4096, 8192, 16384};  ///< of a sequence
  std::vector<int> ranks{1, 2, 4};
  int64_t heads = 4;
  int64_t head_width = 32;
  bool is_all_to_all = false;  ///< else a ring
};

/// Throws std::invalid_argument for a value out of range, and what cxxopts throws.
ContextMemoryOptions parse_context_memory(int argc, char** argv);

}  // namespace lockstep::benchmarks
