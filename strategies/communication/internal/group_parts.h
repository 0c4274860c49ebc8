#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "lockstep/runtime/collectives/collective_channel.h"
#include "lockstep/runtime/workers/worker_layout.h"
#include "lockstep/strategies/communication/cross_device_ops.h"

namespace lockstep {

/// One group of replicas, which may be spread over worker processes.
struct GroupPart {
  std::vector<int> workers;  ///< Workers with replicas of the group.
  std::vector<int> locals;   ///< The local numbers of this worker's replicas of the group.
  /// The group's replicas, by their place in it, on its workers. Null if this worker has none of them.
  std::shared_ptr<const WorkerLayout> layout;
};

/// Calls `open` for each group, in order, on every worker, with groups on one worker only on that
/// one; it returns null if the worker has no replicas of the group. Returns a channel over the groups that
/// this worker takes part in.
std::unique_ptr<CollectiveChannel> open_groups(
    const WorkerLayout& layout, const ReplicaGroups& groups,
    const std::function<std::unique_ptr<CollectiveChannel>(const GroupPart& part)>& open);

}  // namespace lockstep
