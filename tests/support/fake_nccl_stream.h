#pragma once

// Internals of the fake NCCL; only its own sources include them.

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/mutex.h"
#include "lockstep/tests/support/fake_nccl.h"

namespace lockstep {

/// One rank's part in a collective.
struct FakeNccl::Call {
  c10d::OpType type;
  std::string text;
  at::Tensor input;
  at::Tensor output;
  c10d::ReduceOp::RedOpType reduction = c10d::ReduceOp::SUM;
  int source = 0;
  c10::intrusive_ptr<Work> work;
  // Of an all-to-all, whose `input` is empty.
  std::vector<at::Tensor> inputs = {};
  std::vector<at::Tensor> outputs = {};
  size_t rank = 0;                            // of an all-to-all and a reduce-scatter
  std::shared_ptr<c10::Event> launched = {};  // the device's work before the launch; null for a CPU
};

class FakeNccl::Work : public c10d::Work {
 public:
  Work(int rank, c10d::OpType type) : c10d::Work(rank, type) {}

  bool isCompleted() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return completed_;
  }
  std::exception_ptr exception() const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return exception_;
  }
  bool wait(std::chrono::milliseconds) override {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!completed_ && !leaves_host_free_) cv_.wait_for(lock, std::chrono::milliseconds(20));
    if (late_) {
      exception_ = std::exchange(late_, nullptr);
      return true;
    }
    if (exception_) std::rethrow_exception(exception_);
    return true;
  }

  /// Makes wait() return at once, as on a GPU, where streams wait instead of the host.
  void leave_host_free() { leaves_host_free_ = true; }

  void end(const std::string& error = "", bool late = false) {
    const std::lock_guard<std::mutex> lock(mutex_);
    completed_ = true;
    if (!error.empty()) (late ? late_ : exception_) = std::make_exception_ptr(std::runtime_error(error));
    cv_.notify_all();
  }

 private:
  std::exception_ptr late_;
  bool leaves_host_free_ = false;  // set before the launch
};

/// Matches the ranks' calls: call number n of each.
class FakeCommunicator {
 public:
  explicit FakeCommunicator(int size)
      : size_(size), next_(static_cast<size_t>(size), 0), aborted_(static_cast<size_t>(size), 0) {}

  /// Blocks until all ranks are here; returns whether they are.
  bool connect(int rank, const std::string& device, std::chrono::steady_clock::time_point deadline) {
    MutexLock lock(mutex_);
    if (!devices_.insert(device).second) throw std::runtime_error("Duplicate GPU detected: " + device);
    changed_.notify_all();
    const auto self = static_cast<size_t>(rank);
    while (static_cast<int>(devices_.size()) < size_ && !aborted_[self]) {
      if (!changed_.wait_until(mutex_, deadline)) return false;
    }
    return !aborted_[self];
  }

  /// Blocks until all ranks have brought their call of this number; returns nothing if that cannot happen.
  std::vector<FakeNccl::Call> exchange(int rank, const FakeNccl::Call& call,
                                       std::chrono::steady_clock::time_point deadline) {
    FakeNccl::Call brought = call;
    if (call.launched) call.launched->synchronize();
    const auto copied = [](const at::Tensor& tensor) {
      return tensor.to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
    };
    brought.input = copied(call.input);
    for (auto& input : brought.inputs) input = copied(input);
    MutexLock lock(mutex_);
    const auto self = static_cast<size_t>(rank);
    const size_t number = next_[self]++;
    auto& calls = calls_[number];
    calls.emplace(rank, std::move(brought));
    changed_.notify_all();
    while (static_cast<int>(calls.size()) < size_ && !aborted_[self]) {
      if (!changed_.wait_until(mutex_, deadline)) return {};
    }
    if (aborted_[self]) return {};
    std::vector<FakeNccl::Call> all;
    for (const auto& [other, theirs] : calls) all.push_back(theirs);
    return all;
  }

  /// Ends this rank's waits; the others keep waiting.
  void abort(int rank) {
    MutexLock lock(mutex_);
    aborted_[static_cast<size_t>(rank)] = 1;
    changed_.notify_all();
  }

 private:
  const int size_;
  Mutex mutex_;
  ConditionVariable changed_;
  std::set<std::string> devices_ LOCKSTEP_GUARDED_BY(mutex_);
  std::map<size_t, std::map<int, FakeNccl::Call>> calls_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<size_t> next_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<char> aborted_ LOCKSTEP_GUARDED_BY(mutex_);
};

/// Executes one rank's part once all ranks have come.
void execute(const FakeNccl::Call& own, const std::vector<FakeNccl::Call>& all);

/// Executes one rank's calls in order.
class FakeNccl::Stream {
 public:
  Stream(int rank, std::shared_ptr<FakeCommunicator> communicator, std::chrono::milliseconds timeout)
      : rank_(rank), communicator_(std::move(communicator)), timeout_(timeout), thread_([this] { run(); }) {}
  ~Stream() {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }

  /// `fault` says how the call fails, at `when`; if empty, it succeeds.
  void push(Call call, std::string fault, FakeNcclWorld::Fault when) {
    MutexLock lock(mutex_);
    queue_.push_back({std::move(call), std::move(fault), when, std::chrono::steady_clock::now() + timeout_});
    changed_.notify_all();
  }
  /// Blocks until nothing is left to do.
  void finish() {
    MutexLock lock(mutex_);
    while (!queue_.empty()) changed_.wait(mutex_);
  }

 private:
  struct Entry {
    Call call;
    std::string fault;
    FakeNcclWorld::Fault when;
    std::chrono::steady_clock::time_point deadline;
  };

  void run() {
    while (true) {
      Entry entry;
      {
        MutexLock lock(mutex_);
        while (queue_.empty() && !stopping_) changed_.wait(mutex_);
        if (queue_.empty()) return;
        entry = queue_.front();
      }
      if (entry.when == FakeNcclWorld::Fault::kCall) {
        entry.call.work->end(entry.fault);
      } else {
        if (entry.when == FakeNcclWorld::Fault::kSlow)
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
        const auto all = communicator_->exchange(rank_, entry.call, entry.deadline);
        if (!all.empty()) execute(entry.call, all);
        if (entry.when == FakeNcclWorld::Fault::kLater)
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
        const bool late = std::chrono::steady_clock::now() >= entry.deadline;
        entry.call.work->end(!all.empty() ? entry.fault
                             : late       ? "Watchdog caught collective operation timeout"
                                          : "NCCL communicator was aborted",
                             entry.when == FakeNcclWorld::Fault::kLate);
      }
      entry = {};
      MutexLock lock(mutex_);
      queue_.pop_front();
      changed_.notify_all();
    }
  }

  const int rank_;
  const std::shared_ptr<FakeCommunicator> communicator_;
  const std::chrono::milliseconds timeout_;
  Mutex mutex_;
  ConditionVariable changed_;
  std::deque<Entry> queue_ LOCKSTEP_GUARDED_BY(mutex_);
  bool stopping_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace lockstep
