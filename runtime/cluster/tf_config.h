#pragma once

#include <string>
#include <string_view>

#include "lockstep/runtime/cluster/cluster_spec.h"

namespace lockstep {

/// Content of the variable TF_CONFIG: the tasks of the cluster, and which of them this process is.
struct TfConfig {
  ClusterSpec cluster;  ///< Empty for a single process.
  std::string task_type = "worker";
  int task_id = 0;
};

/// Parses the value of TF_CONFIG, such as
///
///     {"cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"]}, "task": {"type": "worker", "index": 1}}
///
/// A job is a list of host:port or, if its indices are not contiguous, an object that maps indices to
/// host:port. The index of the task may be a string of digits. `{}` and an empty cluster mean a single
/// process, which needs no task. An evaluator need not be in the cluster. Other keys, such as environment and
/// rpc_layer, are ignored. Does not block and does not resolve names.
///
/// Throws InvalidArgument, which starts with "[TF_CONFIG] " and names the JSON path, what was expected and
/// what was found: for text above 1 MiB or nested deeper than 16, bad JSON, a repeated key, a missing task,
/// job names and types other than chief, worker, evaluator and ps, more than one chief, a cluster without
/// chief and workers, a bad or repeated address, and a task that the cluster does not have.
TfConfig parse_tf_config(std::string_view text);

}  // namespace lockstep
