#include "lockstep/runtime/backends/internal/grouped_channel.h"

#include <algorithm>
#include <utility>

#include "lockstep/runtime/base/internal/call_at_once.h"

namespace lockstep {

GroupedChannel::GroupedChannel(std::vector<Group> groups) : groups_(std::move(groups)) {
  size_t num_members = 0;
  for (const auto& group : groups_) num_members += group.locals.size();
  members_.resize(num_members);
  backends_.resize(num_members);
  for (const auto& group : groups_) {
    for (size_t i = 0; i < group.locals.size(); ++i) {
      const int index = static_cast<int>(i);
      const auto local = static_cast<size_t>(group.locals[i]);
      members_[local] = {group.channel.get(), index};
      backends_[local] = group.channel->backend(index);
    }
  }
}

ReplicaBackends GroupedChannel::backends(int replica) const {
  return member(replica).channel->backends(member(replica).index);
}

void GroupedChannel::check_usable() const {
  for (const auto& group : groups_) group.channel->check_usable();
}

void GroupedChannel::enter() {
  for (const auto& group : groups_) group.channel->enter();
}

void GroupedChannel::leave(int replica) {
  member(replica).channel->leave(member(replica).index);
}

void GroupedChannel::check_complete() {
  for (const auto& group : groups_) group.channel->check_complete();
}

void GroupedChannel::release(const std::string& reason) {
  for (const auto& group : groups_) group.channel->release(reason);
}

/// Aborts the groups at the same time, since one may wait for a replica that another releases.
void GroupedChannel::abort(const std::string& reason) {
  std::vector<std::function<void()>> calls;
  calls.reserve(groups_.size());
  for (const auto& group : groups_)
    calls.emplace_back([channel = group.channel.get(), &reason] { channel->abort(reason); });
  call_at_once(calls);
}

void GroupedChannel::reset() {
  for (const auto& group : groups_) group.channel->reset();
}

bool GroupedChannel::occupies_devices() const {
  return std::any_of(groups_.begin(), groups_.end(),
                     [](const auto& group) { return group.channel->occupies_devices(); });
}

void GroupedChannel::keep_together(int num_runs) {
  for (const auto& group : groups_) group.channel->keep_together(num_runs);
}

bool GroupedChannel::is_capturable() const {
  return std::all_of(groups_.begin(), groups_.end(),
                     [](const auto& group) { return group.channel->is_capturable(); });
}

void GroupedChannel::record(int replica, const std::shared_ptr<GraphRecording>& recording) {
  member(replica).channel->record(member(replica).index, recording);
}

uint64_t GroupedChannel::num_joined(int replica) const {
  return member(replica).channel->num_joined(member(replica).index);
}

uint64_t GroupedChannel::num_intact() const {
  const auto fewest = std::min_element(groups_.begin(), groups_.end(), [](const auto& a, const auto& b) {
    return a.channel->num_intact() < b.channel->num_intact();
  });
  return fewest->channel->num_intact();
}

}  // namespace lockstep
