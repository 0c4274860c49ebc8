#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/runtime/backends/local_backend.h"

namespace lockstep {

/// A channel within each of several groups of a process's replicas, such as those along one axis of a mesh.
class GroupedChannel : public CollectiveChannel {
 public:
  /// Each replica is in one group. Its rank in the group is its place there.
  explicit GroupedChannel(const std::vector<std::vector<int>>& groups) {
    for (const auto& members : groups) {
      const int size = static_cast<int>(members.size());
      channels_.push_back(
          std::make_unique<LocalChannel>(size, LocalAlgorithm::kSplitOverReplicas, std::chrono::minutes(5)));
      for (int place = 0; place < size; ++place) {
        const auto replica = static_cast<size_t>(members[static_cast<size_t>(place)]);
        if (places_.size() <= replica) {
          places_.resize(replica + 1);
          backends_.resize(replica + 1);
        }
        places_[replica] = {channels_.back().get(), place};
        backends_[replica] = channels_.back()->backend(place);
      }
    }
  }

  void enter() override {
    for (auto& channel : channels_) channel->enter();
  }
  void leave(int replica) override {
    const auto& [channel, place] = places_[static_cast<size_t>(replica)];
    channel->leave(place);
  }
  void check_complete() override {
    for (auto& channel : channels_) channel->check_complete();
  }
  void release(const std::string& reason) override {
    for (auto& channel : channels_) channel->release(reason);
  }
  void abort(const std::string& reason) override {
    for (auto& channel : channels_) channel->abort(reason);
  }
  void reset() override {
    for (auto& channel : channels_) channel->reset();
  }
  bool is_capturable() const override { return false; }
  void record(int, const std::shared_ptr<GraphRecording>&) override {}
  uint64_t num_joined(int) const override { return 0; }
  uint64_t num_intact() const override { return 0; }

 private:
  struct Place {
    CollectiveChannel* channel = nullptr;
    int rank = 0;
  };

  std::vector<std::unique_ptr<CollectiveChannel>> channels_;
  std::vector<Place> places_;
};

}  // namespace lockstep
