#include "lockstep/strategies/communication/internal/ring_all_reduce.h"

#include "lockstep/runtime/backends/internal/hierarchical_backend.h"
#include "lockstep/runtime/base/mutex.h"

namespace lockstep {
namespace {

/// Lets one thread at a time into a user's compression, since each optimizer's channel has a thread.
class OneAtATime : public GradientCompression {
 public:
  explicit OneAtATime(std::shared_ptr<GradientCompression> inner) : inner_(std::move(inner)) {}
  std::string name() const override { return inner_->name(); }
  at::Tensor compress(const at::Tensor& bucket) override {
    MutexLock lock(mutex_);
    return inner_->compress(bucket);
  }
  void decompress(const at::Tensor& sum, at::Tensor& bucket) override {
    MutexLock lock(mutex_);
    inner_->decompress(sum, bucket);
  }

 private:
  Mutex mutex_;
  const std::shared_ptr<GradientCompression> inner_;
};

}  // namespace

RingAllReduce::RingAllReduce(std::shared_ptr<WorkerGroup> workers,
                             const std::shared_ptr<GradientCompression>& compression)
    : CrossDeviceOps(PackingOptions().num_packs),
      workers_(std::move(workers)),
      compression_(compression ? std::make_shared<OneAtATime>(compression) : nullptr) {}

std::unique_ptr<CollectiveChannel> RingAllReduce::make_channel(const Devices&,
                                                               std::chrono::milliseconds timeout) const {
  return std::make_unique<HierarchicalChannel>(workers_->layout(), workers_->open_channel(name()), timeout);
}

std::unique_ptr<CollectiveChannel> RingAllReduce::make_gradient_channel(
    const Devices&, std::chrono::milliseconds timeout) const {
  return std::make_unique<HierarchicalChannel>(workers_->layout(), workers_->open_channel(name()), timeout,
                                               compression_);
}

}  // namespace lockstep
