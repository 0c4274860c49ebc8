#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/runtime/base/mutex.h"
#include "lockstep/runtime/devices/internal/cpu_affinity.h"
#include "lockstep/runtime/replicas/internal/replica_stream.h"

namespace lockstep {

/// One persistent thread per replica. The threads run in parallel, each with its own number of intra-op
/// threads.
///
/// Thread-safe: concurrent calls of run() take turns.
class ReplicaThreads {
 public:
  /// Starts `count` threads, in each of which ATen operators use `intra_op_threads` threads; other threads of
  /// the process keep their setting. `streams` has one entry per replica, or is empty if all are on CPUs.
  /// `cpus` has the CPUs that each replica's thread keeps to, see restrict_this_thread(), or is empty.
  ReplicaThreads(int count, int intra_op_threads, std::vector<ReplicaStream> streams = {},
                 std::vector<Cpus> cpus = {});
  /// Joins the threads.
  ~ReplicaThreads();
  ReplicaThreads(const ReplicaThreads&) = delete;
  ReplicaThreads& operator=(const ReplicaThreads&) = delete;

  int count() const { return static_cast<int>(threads_.size()); }
  /// Returns true if the caller is one of these threads.
  bool contains_current_thread() const;

  /// Calls `function(replica)` once on every thread and blocks until all have returned. Inside, the caller's
  /// LibTorch thread state (grad mode, autocast, profiler) applies, and backward runs in the replica's own
  /// thread, so that replicas on one device cannot block each other in a shared engine thread. On GPUs, the
  /// work runs on the replicas' streams, after the work already on the caller's current streams, which in
  /// turn wait for it; the host does not wait.
  ///
  /// Returns one entry per replica: its exception, or null. `on_failure(replica, error)` is called
  /// immediately in the failing thread, to release replicas that wait for it; it must not throw. Do not call
  /// run() from one of these threads.
  std::vector<std::exception_ptr> run(const std::function<void(int)>& function,
                                      const std::function<void(int, std::exception_ptr)>& on_failure);
  /// Likewise, for a function that gives devices no work, which costs less.
  std::vector<std::exception_ptr> run_on_host(const std::function<void(int)>& function);

 private:
  struct Job;
  void do_on_all(Job& job);
  void do_job(Job& job, int replica) const;
  void work(int replica);
  void stop();

  Mutex run_mutex_;  // one run at a time
  Mutex mutex_;
  ConditionVariable wake_;
  ConditionVariable done_;
  Job* job_ LOCKSTEP_GUARDED_BY(mutex_) = nullptr;
  uint64_t generation_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  int running_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  bool stopping_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  const std::vector<ReplicaStream> streams_;
  const std::vector<Cpus> cpus_;
  std::vector<std::thread> threads_;
};

}  // namespace lockstep
