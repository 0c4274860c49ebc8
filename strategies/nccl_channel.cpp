// NcclAllReduce's channel in builds with CUDA; nccl_channel_absent.cpp stands in elsewhere.
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <atomic>
#include <thread>

#include "lockstep/strategies/cross_device_ops.h"

namespace lockstep {
namespace {

class NcclGroup : public CollectiveGroup {
 public:
  NcclGroup(Devices devices, std::chrono::milliseconds timeout)
      : devices_(std::move(devices)), timeout_(timeout), store_(c10::make_intrusive<c10d::HashStore>()) {
    connect();
  }

  void enter() override {}
  // NCCL cannot tell who is missing: a replica that returns early ends the others' waits by the timeout.
  void leave(int) override {}
  void check_complete() override {}

  void abort(const std::string&) override {
    if (aborted_.exchange(true)) return;
    for (auto& backend : backends_) backend->abort();
  }

  void reset() override {
    if (!aborted_.exchange(false)) return;
    backends_.clear();
    connect();
  }

 private:
  // Ranks connect to each other while they are made, so each needs a thread, and a store client of its own.
  void connect() {
    const auto prefix = std::to_string(generation_++);
    backends_.resize(devices_.size());
    std::vector<std::exception_ptr> errors(devices_.size());
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < devices_.size(); ++rank) {
      threads.emplace_back([&, rank] {
        try {
          auto options = c10d::ProcessGroupNCCL::Options::create();
          options->timeout = timeout_;
          auto store = c10::make_intrusive<c10d::PrefixStore>(prefix, store_->clone());
          auto group = c10::make_intrusive<c10d::ProcessGroupNCCL>(
              store, static_cast<int>(rank), static_cast<int>(devices_.size()), options);
          group->eagerConnectSingleDevice(devices_[rank].torch_device());
          backends_[rank] = group;
        } catch (...) {
          errors[rank] = std::current_exception();
        }
      });
    }
    for (auto& thread : threads) thread.join();
    for (const auto& error : errors) {
      if (error) std::rethrow_exception(error);
    }
  }

  Devices devices_;
  std::chrono::milliseconds timeout_;
  c10::intrusive_ptr<c10d::Store> store_;
  int generation_ = 0;
  std::atomic<bool> aborted_{false};
};

}  // namespace

std::unique_ptr<CollectiveGroup> NcclAllReduce::make_channel(const Devices& devices,
                                                             std::chrono::milliseconds timeout) const {
  check_devices(devices);
  return std::make_unique<NcclGroup>(devices, timeout);
}

}  // namespace lockstep
