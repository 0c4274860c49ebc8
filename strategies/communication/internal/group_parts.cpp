#include "lockstep/strategies/communication/internal/group_parts.h"

#include <utility>

#include "lockstep/runtime/backends/internal/grouped_channel.h"

namespace lockstep {
namespace {

/// `replicas` are in ascending order, so that those of one worker follow each other.
GroupPart part_of(const WorkerLayout& layout, const std::vector<int>& replicas) {
  GroupPart part;
  std::vector<int> counts;
  for (const int replica : replicas) {
    const int worker = layout.worker_of(replica);
    if (part.workers.empty() || part.workers.back() != worker) {
      part.workers.push_back(worker);
      counts.push_back(0);
    }
    ++counts.back();
    if (worker == layout.worker()) part.locals.push_back(replica - layout.first_local());
  }
  for (size_t i = 0; i < part.workers.size(); ++i) {
    if (part.workers[i] == layout.worker())
      part.layout = std::make_shared<WorkerLayout>(static_cast<int>(i), counts);
  }
  return part;
}

}  // namespace

std::unique_ptr<CollectiveChannel> open_groups(
    const WorkerLayout& layout, const ReplicaGroups& groups,
    const std::function<std::unique_ptr<CollectiveChannel>(const GroupPart& part)>& open) {
  std::vector<GroupedChannel::Group> channels;
  for (const auto& replicas : groups.groups) {
    auto part = part_of(layout, replicas);
    const bool is_elsewhere = part.workers.size() == 1 && part.layout == nullptr;
    if (is_elsewhere) continue;
    auto channel = open(part);
    if (!channel) continue;
    channel->name_ranks({replicas, groups.where});
    channels.push_back({std::move(channel), std::move(part.locals)});
  }
  return std::make_unique<GroupedChannel>(std::move(channels));
}

}  // namespace lockstep
