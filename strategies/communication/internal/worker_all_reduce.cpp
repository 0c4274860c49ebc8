#include "lockstep/strategies/communication/internal/worker_all_reduce.h"

#include "lockstep/runtime/backends/internal/hierarchical_backend.h"
#include "lockstep/runtime/backends/local_backend.h"
#include "lockstep/runtime/base/mutex.h"
#include "lockstep/strategies/communication/internal/group_parts.h"

namespace lockstep {
namespace {

/// Lets one thread at a time into a user's compression, since each optimizer's channel has a thread.
class OneAtATime : public GradientCompression {
 public:
  OneAtATime(std::shared_ptr<GradientCompression> inner, std::shared_ptr<Mutex> mutex)
      : inner_(std::move(inner)), mutex_(std::move(mutex)) {}
  std::string name() const override { return inner_->name(); }
  at::Tensor compress(const at::Tensor& bucket) override {
    MutexLock lock(*mutex_);
    return inner_->compress(bucket);
  }
  void decompress(const at::Tensor& sum, at::Tensor& bucket) override {
    MutexLock lock(*mutex_);
    inner_->decompress(sum, bucket);
  }

 private:
  const std::shared_ptr<GradientCompression> inner_;
  const std::shared_ptr<Mutex> mutex_;
};

}  // namespace

WorkerAllReduce::WorkerAllReduce(std::shared_ptr<WorkerGroup> workers)
    : CrossDeviceOps(PackingOptions().num_packs),
      workers_(std::move(workers)),
      compressing_(std::make_shared<Mutex>()) {}

std::string WorkerAllReduce::name() const {
  return workers_->transport() == WorkerTransport::kGloo ? "RingAllReduce" : "ExchangeAllReduce";
}

std::unique_ptr<CollectiveChannel> WorkerAllReduce::make_channel(const Devices& devices,
                                                                 std::chrono::milliseconds timeout) const {
  return make_gradient_channel(devices, timeout, nullptr);
}

std::unique_ptr<CollectiveChannel> WorkerAllReduce::make_grouped_channel(
    const Devices&, const ReplicaGroups& groups, std::chrono::milliseconds timeout) const {
  return open_groups(*workers_->layout(), groups,
                     [&](const GroupPart& part) -> std::unique_ptr<CollectiveChannel> {
                       if (part.workers.size() == 1) {
                         return std::make_unique<LocalChannel>(static_cast<int>(part.locals.size()),
                                                               LocalAlgorithm::kSplitOverReplicas, timeout);
                       }
                       const auto channel = workers_->open_channel(name() + groups.where, part.workers);
                       if (part.layout == nullptr) return nullptr;
                       return std::make_unique<HierarchicalChannel>(part.layout, channel, timeout);
                     });
}

std::unique_ptr<CollectiveChannel> WorkerAllReduce::make_gradient_channel(
    const Devices&, std::chrono::milliseconds timeout,
    const std::shared_ptr<GradientCompression>& compression) const {
  return std::make_unique<HierarchicalChannel>(
      workers_->layout(), workers_->open_channel(name()), timeout,
      compression ? std::make_shared<OneAtATime>(compression, compressing_) : nullptr);
}

}  // namespace lockstep
