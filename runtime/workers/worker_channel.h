#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/runtime/base/mutex.h"
#include "lockstep/runtime/workers/comparing_backend.h"
#include "lockstep/runtime/workers/stall_detector.h"
#include "lockstep/runtime/workers/straggler_detector.h"

namespace lockstep {

/// Runs a process's collectives with the other worker processes, one after another, in its own thread. Each
/// worker has one channel of each name, and all submit the same collectives in the same order. The workers
/// compare their calls: before each one, or within it if the backend is a ComparingBackend. A channel that
/// has failed stays failed. Thread-safe.
class WorkerChannel {
 public:
  using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;
  struct Exchange {
    std::string description;  ///< the same on all workers
    /// Launches the collective on the backend, whose ranks are the workers. Called in the channel's thread.
    /// If null, the workers only wait for each other.
    std::function<Works(c10d::Backend&)> start;
    /// Called in the channel's thread once the works are done. May be null.
    std::function<void()> complete = nullptr;
    /// Called once, in the channel's thread or by fail() or submit(), with the error, or null on success.
    std::function<void(std::exception_ptr)> finish = nullptr;
  };
  struct Options {
    std::string op;  ///< prefix of its errors
    int number = 0;  ///< the same on all workers; used by StallDetector
    /// Set to the number of completed collectives. May be null.
    std::shared_ptr<std::atomic<uint64_t>> completed = nullptr;
    /// Its owner must keep it alive beyond the channel's end: other workers may still receive from it.
    c10::intrusive_ptr<c10d::Backend> backend;
    /// Returns the name of a rank's worker for errors.
    std::function<std::string(int rank)> name_of;
    /// Translates an error of the backend into one about workers. May block, see CauseSearch.
    std::function<std::exception_ptr(std::exception_ptr)> explain;
    /// Tells the other workers why this one stops. Must not block for long, or throw.
    std::function<void(const std::exception_ptr&)> report;
    /// Called once, in rank 0's process, if a rank's worker keeps all others waiting. `times` is its time
    /// between collectives, relative to the others'. Null: nobody looks for one.
    std::function<void(int rank, double times)> on_straggler;
    /// The only worker that this one exchanges with; none: `members`.
    std::optional<int> peer = std::nullopt;
    /// The workers that take part, of which the backend's ranks are the places in this list; empty: all.
    std::vector<int> members = {};
    /// Opens a channel between this worker and another rank's alone, with the same number on both. Null: that
    /// is not possible.
    std::function<std::shared_ptr<WorkerChannel>(int peer, int number)> open_pair = nullptr;
  };

  explicit WorkerChannel(Options options);
  /// Ends unfinished collectives with CollectiveAborted.
  ~WorkerChannel();
  WorkerChannel(const WorkerChannel&) = delete;
  WorkerChannel& operator=(const WorkerChannel&) = delete;

  /// Opens a channel with one other rank's worker, which opens it too when it needs it. Does not block.
  /// `number` tells the pair's channels apart, and is below kMostPairChannels. Throws InvalidArgument if the
  /// transport has none.
  std::shared_ptr<WorkerChannel> open_pair(int peer, int number) const;
  static constexpr int kMostPairChannels = 1 << 17;

  /// Marks the collective at position `sequence` as the first of a run, which it must be on all workers.
  /// Throws the channel's error if it has failed.
  void begin_run(uint64_t sequence);
  /// Runs the collective at position `sequence`, after those before it. Does not block. If the channel has
  /// failed, calls `exchange.finish` with its error at once.
  void submit(uint64_t sequence, Exchange exchange);
  /// Runs a collective at the next position and blocks until it is done. Throws the channel's error. Do not
  /// mix it with submit().
  void exchange(const std::string& description, std::function<Works(c10d::Backend&)> start);
  /// Like exchange(), at position `sequence`, for use together with submit(). Without `start` the workers
  /// only wait for each other.
  void exchange_at(uint64_t sequence, const std::string& description,
                   std::function<Works(c10d::Backend&)> start = nullptr);
  /// Blocks until all submitted collectives are done. Throws the channel's error.
  void drain();
  /// Ends all submitted and all future collectives with `error`, tells the other workers why, and then cuts
  /// the connections to them. If called several times, the first error stays.
  void fail(std::exception_ptr error);
  /// Returns the first error, or null.
  std::exception_ptr error() const;
  /// Throws the first error, if there is one.
  void check_usable() const;
  /// Returns the channel's current position. Does not block.
  CollectivePosition position() const;
  /// Calls `on_failure` once, from any thread, when the channel fails or if it already has; it must not
  /// block. Pass null to remove it; it is not called after that returns.
  void watch(std::function<void()> on_failure);

 private:
  using Clock = std::chrono::steady_clock;

  void carry_on();
  std::exception_ptr carry(uint64_t sequence, const Exchange& exchange, std::chrono::microseconds busy);
  void check_same(uint64_t sequence, const std::string& description, std::chrono::microseconds busy);
  void compare_times(std::chrono::microseconds busy);
  void cut_off(std::exception_ptr error, bool is_reported);
  void tell_watcher();

  const Options options_;
  ComparingBackend* const comparing_;  // options_.backend, or null
  mutable Mutex mutex_;
  ConditionVariable changed_;
  struct Submitted {
    Exchange exchange;
    Clock::time_point at;
  };

  std::map<uint64_t, Submitted> submitted_ LOCKSTEP_GUARDED_BY(mutex_);
  uint64_t next_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  uint64_t num_exchanges_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::set<uint64_t> firsts_ LOCKSTEP_GUARDED_BY(mutex_);  // positions where runs begin
  bool is_carrying_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::string carried_ LOCKSTEP_GUARDED_BY(mutex_);  // description of the running collective
  // Since when a collective is running, or none is.
  Clock::time_point since_ LOCKSTEP_GUARDED_BY(mutex_) = Clock::now();
  bool is_ending_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::exception_ptr error_ LOCKSTEP_GUARDED_BY(mutex_);
  Mutex watch_mutex_;
  std::function<void()> on_failure_ LOCKSTEP_GUARDED_BY(watch_mutex_);
  // Used only by the thread.
  StragglerDetector stragglers_;
  std::chrono::microseconds busy_{};  // since the last comparison of times
  int num_busy_ = 0;                  // number of collectives since then
  std::thread thread_;                // last, since it uses all other members
};

/// Gathers every rank's tensor, all of one size, into the rows of one tensor. Blocks until all ranks have
/// called it.
at::Tensor gather_rows_of_ranks(c10d::Backend& backend, const at::Tensor& own);

}  // namespace lockstep
