#include "lockstep/benchmarks/emulation/emulated_channel.h"

#include <numeric>
#include <utility>
#include <vector>

#include "lockstep/benchmarks/emulation/emulated_backend.h"
#include "lockstep/runtime/backends/internal/grouped_channel.h"
#include "lockstep/runtime/backends/local_backend.h"

namespace lockstep::benchmarks {
namespace {

/// A channel among threads whose collectives are delayed.
class EmulatedChannel : public CollectiveChannel {
 public:
  EmulatedChannel(const std::shared_ptr<EmulatedMachines>& machines, const std::vector<int>& ranks,
                  std::chrono::milliseconds timeout)
      : inner_(static_cast<int>(ranks.size()), LocalAlgorithm::kSplitOverReplicas, timeout),
        group_(std::make_shared<EmulatedGroup>(machines, ranks)) {
    for (int member = 0; member < static_cast<int>(ranks.size()); ++member)
      backends_.push_back(c10::make_intrusive<EmulatedBackend>(inner_.backend(member), group_, member));
  }

  void name_ranks(const RankNames& names) override { inner_.name_ranks(names); }
  void check_usable() const override { inner_.check_usable(); }
  void enter() override { inner_.enter(); }
  void leave(int replica) override { inner_.leave(replica); }
  void check_complete() override { inner_.check_complete(); }
  void release(const std::string& reason) override { inner_.release(reason); }
  void abort(const std::string& reason) override { inner_.abort(reason); }
  void reset() override {
    inner_.reset();
    group_->restart();
  }
  bool is_capturable() const override { return false; }
  void record(int replica, const std::shared_ptr<GraphRecording>& recording) override {
    inner_.record(replica, recording);
  }
  uint64_t num_joined(int replica) const override { return inner_.num_joined(replica); }
  uint64_t num_intact() const override { return inner_.num_intact(); }

 private:
  LocalChannel inner_;
  const std::shared_ptr<EmulatedGroup> group_;
};

}  // namespace

std::unique_ptr<CollectiveChannel> EmulatedCommunication::make_channel(
    const Devices& devices, std::chrono::milliseconds timeout) const {
  std::vector<int> ranks(devices.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return std::make_unique<EmulatedChannel>(machines_, ranks, timeout);
}

std::unique_ptr<CollectiveChannel> EmulatedCommunication::make_grouped_channel(
    const Devices&, const ReplicaGroups& groups, std::chrono::milliseconds timeout) const {
  std::vector<GroupedChannel::Group> channels;
  for (const auto& ranks : groups.groups) {
    auto channel = std::make_unique<EmulatedChannel>(machines_, ranks, timeout);
    channel->name_ranks({ranks, groups.where});
    channels.push_back({std::move(channel), ranks});
  }
  return std::make_unique<GroupedChannel>(std::move(channels));
}

}  // namespace lockstep::benchmarks
