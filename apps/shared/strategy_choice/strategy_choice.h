#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::apps {

/// The requested strategy and its devices.
struct StrategyChoice {
  std::string strategy = "auto";
  std::vector<std::string> devices;  ///< empty: chosen by the strategy
  int replicas = 0;                  ///< 0: replicas_per_device on each device
  int replicas_per_device = 1;
  std::string mesh;  ///< such as data=2,shard=2; empty: one axis over all replicas
  int sharding = 0;  ///< stage
  bool host_optimizer_state = false;
  std::string replica_weights;  ///< numbers joined by commas, or measured; empty: equal pieces
  std::string cross_device_ops = "auto";
  int64_t communication_timeout_seconds = 1800;  ///< limit of every wait for other replicas
  std::vector<std::string> worker_hosts;         ///< host:port of every worker; empty: from the environment
  std::string communication = "auto";            ///< between workers
  std::string exchange_algorithm = "auto";       ///< of sums by exchanges between workers
  std::string encrypt = "on";                    ///< exchanges between machines
  std::string gradient_compression = "none";     ///< between workers and over NCCL
  int task_index = -1;                           ///< index of this process in worker_hosts; -1: not given
  int threads = 0;  ///< threads of each replica's operators; 0: cores divided by replicas

  bool operator==(const StrategyChoice&) const = default;
};

}  // namespace lockstep::apps
