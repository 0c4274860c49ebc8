#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "lockstep/runtime/base/mutex.h"
#include "lockstep/runtime/collectives/rank_names.h"
#include "lockstep/runtime/devices/stream_fence.h"

namespace lockstep {

/// Messages between the replicas of one process. Those from one replica to another are received in the order
/// in which they were sent, and in the same run.
///
/// Example:
///
///     ReplicaMailbox mailbox(std::chrono::seconds(30));
///     const ReplicaMailbox::Route route{.from = 0, .to = 1};
///     mailbox.put(route, {.description = "Float[3]", .value = torch::ones({3})});  // in replica 0's thread
///     const torch::Tensor value = mailbox.take(route, "Float[3]").value;           // in replica 1's thread
///
/// Thread-safe.
class ReplicaMailbox {
 public:
  struct Route {
    int from = 0;  ///< number of a rank
    int to = 0;
    int64_t tag = 0;  ///< tells several routes between two replicas apart
    auto operator<=>(const Route&) const = default;
  };
  struct Message {
    std::string description;  ///< dtype and shape
    at::Tensor value;         ///< which the sender does not change any more
    /// Marks when the device has made the value. Null: it is on the CPU.
    std::shared_ptr<StreamFence> ready = nullptr;
  };

  explicit ReplicaMailbox(std::chrono::milliseconds timeout) : timeout_(timeout) {}

  /// Sets the names of the ranks in errors. Call it while no replica is inside.
  void name_ranks(const RankNames& names) { names_ = names; }

  /// Adds a message to those that are on their way. Does not block. Throws CollectiveAborted after abort().
  void put(const Route& route, Message message);
  /// Blocks until there is a message, and takes it. Throws CollectiveMismatch if its description is another
  /// one or if `from` has left, and CollectiveAborted after abort() or the timeout (`timeout` overrides the
  /// mailbox's own).
  Message take(const Route& route, const std::string& description,
               std::optional<std::chrono::milliseconds> timeout = std::nullopt);
  /// Whether take() would not block.
  bool has(const Route& route);

  /// Marks that a rank sends nothing more until enter().
  void leave(int rank);
  /// Undoes leave() for all replicas. Call it while no replica is inside.
  void enter();
  /// Throws CollectiveMismatch if a message was not received. Call it while no replica is inside.
  void check_complete();
  /// Throws CollectiveAborted(`reason`) in all calls that wait, and in those before reset().
  void abort(const std::string& reason);
  /// Restores the state after construction. Call it while no replica is inside.
  void reset();

 private:
  const std::chrono::milliseconds timeout_;
  RankNames names_;
  Mutex mutex_;
  ConditionVariable changed_;
  std::map<Route, std::deque<Message>> messages_ LOCKSTEP_GUARDED_BY(mutex_);
  std::set<int> left_ LOCKSTEP_GUARDED_BY(mutex_);
  std::optional<std::string> abort_reason_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
