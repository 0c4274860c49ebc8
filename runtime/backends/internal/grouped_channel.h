#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/runtime/collectives/collective_channel.h"

namespace lockstep {

/// A channel in which each group of replicas, such as those along an axis of a mesh, has a channel of its
/// own. A replica's backend has its place in the group as its rank.
///
/// Example:
///
///     std::vector<GroupedChannel::Group> groups;  // of 4 local replicas, two and two
///     for (const int first : {0, 2}) {
///       auto channel = std::make_unique<LocalChannel>(2, LocalAlgorithm::kSplitOverReplicas, timeout);
///       groups.push_back({std::move(channel), {first, first + 1}});
///     }
///     GroupedChannel channel(std::move(groups));
class GroupedChannel : public CollectiveChannel {
 public:
  /// A group with replicas in this process.
  struct Group {
    std::unique_ptr<CollectiveChannel> channel;
    std::vector<int> locals;  ///< The local number of each of the channel's replicas.
  };

  /// Each local replica must be in one group.
  explicit GroupedChannel(std::vector<Group> groups);

  ReplicaBackends backends(int replica) const override;
  void check_usable() const override;
  void enter() override;
  void leave(int replica) override;
  void check_complete() override;
  void release(const std::string& reason) override;
  void abort(const std::string& reason) override;
  void reset() override;
  bool occupies_devices() const override;
  void keep_together(int num_runs) override;
  bool is_capturable() const override;
  void record(int replica, const std::shared_ptr<GraphRecording>& recording) override;
  uint64_t num_joined(int replica) const override;
  /// Returns the least of the groups' numbers.
  uint64_t num_intact() const override;

 private:
  struct Member {
    CollectiveChannel* channel = nullptr;
    int index = 0;  // the replica's number in the channel
  };

  const Member& member(int replica) const { return members_[static_cast<size_t>(replica)]; }

  std::vector<Group> groups_;
  std::vector<Member> members_;  // by local replica
};

}  // namespace lockstep
