#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/runtime/collectives/internal/collective_order.h"
#include "lockstep/runtime/devices/device.h"

namespace lockstep {

/// Identifies a rank's backend in error messages.
struct RankInfo {
  std::string op;  ///< name of the cross-device op, such as NcclAllReduce
  int rank = 0;    ///< rank among all processes' ranks
  int size = 1;
  LogicalDevice device;
  std::chrono::milliseconds timeout{};
  /// Called by the last of this process's ranks to join a collective. May be null.
  std::function<void(uint64_t sequence, const std::string& description)> on_joined;
  /// Returns the error of another process that caused a collective's failure, or null if there is none. May
  /// block for a second. Not set if there are no other processes.
  std::function<std::exception_ptr()> find_cause;
};

/// One collective of a rank, with the backend's works for it. Takes its position in the order of all ranks
/// before it is launched, and reports errors in terms of replicas.
class CheckedWork : public c10d::Work {
 public:
  using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;
  struct Launch {
    c10d::OpType type;
    std::string description;
    std::function<Works(c10d::Backend&)> start;
    std::function<void()> finish;  ///< runs on the waiter's stream, once the works are done
  };

  CheckedWork(std::shared_ptr<const RankInfo> info, std::shared_ptr<CollectiveOrder> order, Launch launch)
      : Work(info->rank, launch.type),
        info_(std::move(info)),
        order_(std::move(order)),
        launch_(std::move(launch)) {}

  /// Throws like CollectiveOrder::join().
  void join();
  /// Launches the collective. Throws like wait().
  void start(c10d::Backend& inner);
  /// Replaces start() if someone else launched the collective. Pass null if it was not launched.
  void follow(std::function<bool()> is_done);
  uint64_t sequence() const { return sequence_; }

  bool isCompleted() override;
  std::exception_ptr exception() const override;
  /// Throws BackendError, or the error of another process that caused the failure; CollectiveAborted if local
  /// ranks are missing; the order's error after its abort; and errors of the device itself unchanged.
  bool wait(std::chrono::milliseconds timeout) override;
  /// Throws the collective's error if it has failed. Does not wait.
  void check();

 private:
  enum class State { kJoined, kStarted, kRefused };

  [[noreturn]] void explain(const std::exception_ptr& error) const;

  const std::shared_ptr<const RankInfo> info_;
  const std::shared_ptr<CollectiveOrder> order_;
  Launch launch_;
  uint64_t sequence_ = 0;
  std::chrono::steady_clock::time_point begin_;
  Works works_;  // written once, before `state_` changes
  std::atomic<State> state_{State::kJoined};
};

}  // namespace lockstep
