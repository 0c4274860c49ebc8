#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/strategies/communication/cross_device_ops.h"

namespace lockstep {

/// Where FailingOps makes an all-reduce fail.
enum class FaultIn {
  kNothing,
  kJoining,  ///< the replica cannot join: the others wait for it
  kWaiting,  ///< all have joined, and the others get their sums
};

/// The replica whose all-reduces fail, with std::domain_error("planted").
inline constexpr int kFailingReplica = 1;

class FailingWork : public c10d::Work {
 public:
  explicit FailingWork(c10::intrusive_ptr<c10d::Work> inner) : inner_(std::move(inner)) {}
  bool isCompleted() override { return inner_->isCompleted(); }
  bool wait(std::chrono::milliseconds timeout) override {
    inner_->wait(timeout);
    throw std::domain_error("planted");
  }

 private:
  c10::intrusive_ptr<c10d::Work> inner_;
};

/// One replica's backend, with the fault in its all-reduces.
class FailingBackend : public c10d::Backend {
 public:
  FailingBackend(c10::intrusive_ptr<c10d::Backend> inner, const std::atomic<FaultIn>& fault)
      : Backend(inner->getRank(), inner->getSize()), inner_(std::move(inner)), fault_(fault) {}

  const std::string getBackendName() const override { return "failing"; }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options = {}) override {
    if (fault_ == FaultIn::kJoining) throw std::domain_error("planted");
    auto work = inner_->allreduce(tensors, options);
    if (fault_ == FaultIn::kWaiting) return c10::make_intrusive<FailingWork>(std::move(work));
    return work;
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options = {}) override {
    return inner_->broadcast(tensors, options);
  }
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options = {}) override {
    return inner_->allgather(outputs, inputs, options);
  }
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& options = {}) override {
    return inner_->_allgather_base(output, input, options);
  }

 private:
  c10::intrusive_ptr<c10d::Backend> inner_;
  const std::atomic<FaultIn>& fault_;
};

class FailingChannel : public CollectiveChannel {
 public:
  FailingChannel(std::unique_ptr<CollectiveChannel> inner, int size, const std::atomic<FaultIn>& fault,
                 const std::function<void()>& before_abort)
      : inner_(std::move(inner)), before_abort_(before_abort) {
    for (int replica = 0; replica < size; ++replica) {
      backends_.push_back(inner_->backend(replica));
      if (replica == kFailingReplica)
        backends_.back() = c10::make_intrusive<FailingBackend>(inner_->backend(replica), fault);
    }
  }
  void enter() override { inner_->enter(); }
  void leave(int replica) override { inner_->leave(replica); }
  void check_complete() override { inner_->check_complete(); }
  void release(const std::string& reason) override { inner_->release(reason); }
  void abort(const std::string& reason) override {
    if (before_abort_) before_abort_();
    inner_->abort(reason);
  }
  void reset() override { inner_->reset(); }
  bool is_capturable() const override { return inner_->is_capturable(); }
  void record(int replica, const std::shared_ptr<GraphRecording>& recording) override {
    inner_->record(replica, recording);
  }
  uint64_t num_joined(int replica) const override { return inner_->num_joined(replica); }
  uint64_t num_intact() const override { return inner_->num_intact(); }

 private:
  std::unique_ptr<CollectiveChannel> inner_;
  const std::function<void()>& before_abort_;
};

/// An op whose all-reduces fail in runs on one replica, as `fault` says. Otherwise it does the same as the op
/// of that name.
class FailingOps : public CrossDeviceOps {
 public:
  explicit FailingOps(const std::string& name) : CrossDeviceOps(0), inner_(make_cross_device_ops(name)) {}
  std::string name() const override { return "Failing" + inner_->name(); }
  void check_devices(const Devices& devices) const override { inner_->check_devices(devices); }
  std::unique_ptr<CollectiveChannel> make_channel(const Devices& devices,
                                                  std::chrono::milliseconds timeout) const override {
    return std::make_unique<FailingChannel>(inner_->make_channel(devices, timeout),
                                            static_cast<int>(devices.size()), fault, before_abort);
  }

  std::atomic<FaultIn> fault{FaultIn::kNothing};
  std::function<void()> before_abort;  ///< called by each channel's abort()

 private:
  std::shared_ptr<CrossDeviceOps> inner_;
};

}  // namespace lockstep
