#pragma once

#include <cstdint>
#include <string>

namespace lockstep::apps {

/// The measurements that a program is asked for: metrics for Prometheus and MLflow, and the profile of its
/// input.
struct MetricsChoice {
  int64_t metrics_port = -1;  ///< -1: none; 0: the system chooses
  std::string metrics_address = "127.0.0.1";
  std::string mlflow_dir;  ///< folder of an MLflow file store for the run; empty: none

  bool profile_input = false;  ///< says at the end how fast the stages of the input are

  bool operator==(const MetricsChoice&) const = default;
};

}  // namespace lockstep::apps
