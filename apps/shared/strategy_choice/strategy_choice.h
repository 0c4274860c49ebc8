#pragma once

#include <string>
#include <vector>

namespace lockstep::apps {

/// Which strategy a program is asked for, and on what.
struct StrategyChoice {
  std::string strategy = "auto";
  std::vector<std::string> devices;  ///< empty: the strategy's own choice
  int replicas = 0;                  ///< 0: replicas_per_device on each device
  int replicas_per_device = 1;
  std::string cross_device_ops = "auto";
  std::vector<std::string> worker_hosts;      ///< host:port of every worker; empty: the environment says
  std::string communication = "auto";         ///< between workers
  std::string gradient_compression = "none";  ///< between workers
  int task_index = -1;                        ///< which of the worker hosts this is; -1: not given
  int threads = 0;                            ///< of each replica's operators; 0: the cores over the replicas

  bool operator==(const StrategyChoice&) const = default;
};

}  // namespace lockstep::apps
