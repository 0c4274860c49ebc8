#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/runtime/collectives/internal/collective_order.h"
#include "lockstep/runtime/devices/device.h"

namespace lockstep {

/// Who a rank's backend is in messages, and where.
struct RankInfo {
  std::string op;  ///< of the cross-device op, such as NcclAllReduce
  int rank = 0;    ///< among all ranks, those of other processes included
  int size = 1;
  LogicalDevice device;
  std::chrono::milliseconds timeout{};
  /// What sums of float32 and float64 are rounded to for their way.
  std::optional<at::ScalarType> wire_dtype;
  /// Called for a collective that this process's ranks have all joined now, by the last of them; null:
  /// nothing.
  std::function<void(uint64_t sequence, const std::string& description)> on_joined;
  /// What other processes have to do with a collective's failure, null: nothing; may block for a second. Not
  /// set: there are none.
  std::function<std::exception_ptr()> find_cause;
};

/// One collective of a rank, and what its backend made of it: takes its place in the order of all ranks
/// before it is launched, and says what goes wrong in terms of replicas.
class CheckedWork : public c10d::Work {
 public:
  using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;
  struct Launch {
    c10d::OpType type;
    std::string description;
    std::function<Works(c10d::Backend&)> start;
    std::function<void()> finish;  ///< on the waiter's stream, once the works are done
  };

  CheckedWork(std::shared_ptr<const RankInfo> place, std::shared_ptr<CollectiveOrder> order, Launch launch)
      : Work(place->rank, launch.type),
        place_(std::move(place)),
        order_(std::move(order)),
        launch_(std::move(launch)) {}

  /// Throws as CollectiveOrder::join().
  void join();
  /// Launches it; throws as wait().
  void start(c10d::Backend& inner);
  /// In place of start(), for what somebody else has launched, or not (null).
  void follow(std::function<bool()> is_done);
  uint64_t sequence() const { return sequence_; }

  bool isCompleted() override;
  std::exception_ptr exception() const override;
  /// Throws BackendError, or what other processes have to do with it, CollectiveAborted where local ranks are
  /// missing, the order's error after its abort, and what the device itself reports as it is.
  bool wait(std::chrono::milliseconds timeout) override;
  /// Throws what has become of the collective where it failed without anybody waiting for it.
  void check();

 private:
  enum class State { kJoined, kStarted, kRefused };

  [[noreturn]] void explain(const std::exception_ptr& error) const;

  const std::shared_ptr<const RankInfo> place_;
  const std::shared_ptr<CollectiveOrder> order_;
  Launch launch_;
  uint64_t sequence_ = 0;
  std::chrono::steady_clock::time_point begin_;
  Works works_;  // written once, before state_ says so
  std::atomic<State> state_{State::kJoined};
};

}  // namespace lockstep
