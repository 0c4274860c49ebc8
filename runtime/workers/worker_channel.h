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
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/runtime/base/mutex.h"
#include "lockstep/runtime/workers/stall_detector.h"
#include "lockstep/runtime/workers/straggler_detector.h"

namespace lockstep {

/// What carries a process's collectives to the other worker processes, one after another, in a thread of its
/// own. Each worker has one of each name, and all bring the same collectives in the same order; before each
/// one they compare what they call. After a failure it stays failed. Thread-safe.
class WorkerChannel {
 public:
  using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;
  struct Exchange {
    std::string description;  ///< the same on all workers
    /// Launches it on the backend, whose ranks are the workers; called in the channel's thread. Null: the
    /// workers only meet.
    std::function<Works(c10d::Backend&)> start;
    /// Called in the channel's thread once the works are done; null: nothing.
    std::function<void()> complete = nullptr;
    /// Called once, in the channel's thread or by fail(): null where all went well.
    std::function<void(std::exception_ptr)> finish = nullptr;
  };
  struct Options {
    std::string op;  ///< begins its errors
    int number = 0;  ///< the same on all workers, for StallDetector
    /// Gets how many collectives are through; outlives the channel. Null: nobody asks.
    std::shared_ptr<std::atomic<uint64_t>> completed = nullptr;
    /// To be kept beyond the channel's end: the other workers may still receive from it then.
    c10::intrusive_ptr<c10d::Backend> backend;
    /// A worker's name for errors.
    std::function<std::string(int worker)> name_of;
    /// Says an error of the backend in terms of workers. May block for a second.
    std::function<std::exception_ptr(std::exception_ptr)> explain;
    /// Tells the other workers why they hear no more of this one. Does not block for long, or throw.
    std::function<void(const std::exception_ptr&)> report;
    /// Told once, in worker 0's process, of a worker that keeps all others waiting; `times` says how many
    /// times as long as they it takes between collectives.
    std::function<void(int worker, double times)> on_straggler;
  };

  explicit WorkerChannel(Options options);
  /// Ends what is under way with CollectiveAborted.
  ~WorkerChannel();
  WorkerChannel(const WorkerChannel&) = delete;
  WorkerChannel& operator=(const WorkerChannel&) = delete;

  /// The collective at place `sequence` is the first of a run, and so it must be on all workers. Throws the
  /// error of a channel that has failed.
  void begin_run(uint64_t sequence);
  /// Carries the collective at place `sequence`, once those before it are through. Does not block. After a
  /// failure, finish gets its error at once.
  void submit(uint64_t sequence, Exchange exchange);
  /// Carries a collective at the next place and blocks until it is through; throws the channel's error. Not
  /// to be mixed with submit().
  void exchange(const std::string& description, std::function<Works(c10d::Backend&)> start);
  /// The same at place `sequence`, beside submit(). Without `start` the workers only meet.
  void exchange_at(uint64_t sequence, const std::string& description,
                   std::function<Works(c10d::Backend&)> start = nullptr);
  /// Blocks until all that was submitted is through; throws the channel's error.
  void drain();
  /// Ends all that was submitted, and whatever will be, with `error`, and cuts the connections to the other
  /// workers, after they have been told why. The first error stays.
  void fail(std::exception_ptr error);
  /// The first error; null before.
  std::exception_ptr error() const;
  /// Throws it, where there is one.
  void check_usable() const;
  /// What it is at. Does not block.
  CollectivePosition place() const;
  /// `on_failure` is called once, by any thread, when the channel fails or has failed; it must not block.
  /// Null: no more, as soon as this returns.
  void watch(std::function<void()> on_failure);

 private:
  using Clock = std::chrono::steady_clock;

  void carry_on();
  std::exception_ptr carry(uint64_t sequence, const Exchange& exchange, std::chrono::microseconds busy);
  void check_same(uint64_t sequence, const std::string& description, std::chrono::microseconds busy);
  void cut_off(std::exception_ptr error, bool is_reported);
  void tell_watcher();

  const Options options_;
  mutable Mutex mutex_;
  ConditionVariable changed_;
  struct Submitted {
    Exchange exchange;
    Clock::time_point at;
  };

  std::map<uint64_t, Submitted> submitted_ LOCKSTEP_GUARDED_BY(mutex_);
  uint64_t next_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  uint64_t num_exchanges_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::set<uint64_t> firsts_ LOCKSTEP_GUARDED_BY(mutex_);  // places where runs begin
  bool is_carrying_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::string carried_ LOCKSTEP_GUARDED_BY(mutex_);                     // its description
  Clock::time_point since_ LOCKSTEP_GUARDED_BY(mutex_) = Clock::now();  // it is carried, or none is
  bool is_ending_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::exception_ptr error_ LOCKSTEP_GUARDED_BY(mutex_);
  Mutex watch_mutex_;
  std::function<void()> on_failure_ LOCKSTEP_GUARDED_BY(watch_mutex_);
  StragglerDetector stragglers_;  // of the thread
  std::thread thread_;            // last, as it uses all the others
};

/// Every rank's tensor of one size, in a row each. Blocks until all have called it.
at::Tensor gather_rows_of_ranks(c10d::Backend& backend, const at::Tensor& own);

}  // namespace lockstep
