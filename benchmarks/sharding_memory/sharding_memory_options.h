#pragma once

#include <cstdint>

namespace lockstep::benchmarks {

/// One job of sharding_memory_benchmark.py.
struct ShardingMemoryOptions {
  int stage = 0;         ///< 0 to 3; in stage 3, each layer is a unit
  int replicas = 1;      ///< threads of this process; a worker of a cluster has 1
  int64_t layers = 24;   ///< of the MLP, with biases
  int64_t width = 2048;  ///< inputs and outputs of each layer
  int64_t steps = 3;     ///< the last one's peak is measured
};

/// Throws std::invalid_argument naming the flag.
ShardingMemoryOptions parse_sharding_memory_job(int argc, char** argv);

}  // namespace lockstep::benchmarks
