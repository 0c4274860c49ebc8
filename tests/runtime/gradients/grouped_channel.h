#pragma once

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/runtime/backends/internal/grouped_channel.h"
#include "lockstep/runtime/backends/local_backend.h"

namespace lockstep {

/// Returns a channel within each of several groups of a process's replicas, such as those along one axis of a
/// mesh. Each replica is in one group. Its rank in the group is its place there.
inline std::unique_ptr<CollectiveChannel> grouped_channel(const std::vector<std::vector<int>>& groups) {
  std::vector<GroupedChannel::Group> channels;
  for (const auto& members : groups) {
    channels.push_back(
        {std::make_unique<LocalChannel>(static_cast<int>(members.size()), LocalAlgorithm::kSplitOverReplicas,
                                        std::chrono::minutes(5)),
         members});
  }
  return std::make_unique<GroupedChannel>(std::move(channels));
}

}  // namespace lockstep
