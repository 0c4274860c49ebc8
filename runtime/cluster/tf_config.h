#pragma once

#include <string>
#include <string_view>

#include "lockstep/runtime/cluster/cluster_spec.h"

namespace lockstep {

/// What the variable TF_CONFIG says: the tasks of the cluster, and which of them this process is.
struct TfConfig {
  ClusterSpec cluster;  ///< empty for a single process
  std::string task_type = "worker";
  int task_id = 0;
};

/// Reads the value of TF_CONFIG, such as
///   {"cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"]}, "task": {"type": "worker", "index": 1}}
/// A job is a list of host:port or, for tasks that are not contiguous, an object of host:port by index. The
/// index may be a string of digits. `{}` and an empty cluster are a single process, which needs no task. An
/// evaluator need not be in the cluster. Further keys, such as environment and rpc_layer, are ignored. Does
/// not block and resolves no name.
///
/// Throws InvalidArgument, starting with "[TF_CONFIG] " and naming the JSON path, what was expected and what
/// is there: for text above 1 MiB or nested deeper than 16, bad JSON, a key given twice, a missing task, job
/// names and types other than chief, worker, evaluator and ps, more than one chief, a cluster without any
/// chief or worker, a bad or a repeated address, and a task that the cluster does not have.
TfConfig parse_tf_config(std::string_view text);

}  // namespace lockstep
