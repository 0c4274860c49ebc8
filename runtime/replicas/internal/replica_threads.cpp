#include "lockstep/runtime/replicas/internal/replica_threads.h"

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>
#include <c10/core/AutogradState.h>
#include <c10/util/thread_name.h>

#include <algorithm>

#include "lockstep/runtime/devices/intra_op_threads.h"

namespace lockstep {

struct ReplicaThreads::Job {
  const std::function<void(int)>& function;
  const std::function<void(int, std::exception_ptr)>& on_failure;
  at::ThreadLocalState caller_state;
  std::vector<std::exception_ptr> errors;  // each entry is written only by its own thread
  bool is_on_host = false;                 // it uses no stream
  StreamFence before{};                    // earlier work on the caller's streams
  StreamFence after{};                     // work on the replicas' streams
};

ReplicaThreads::ReplicaThreads(int count, int intra_op_threads, std::vector<ReplicaStream> streams,
                               std::vector<Cpus> cpus)
    : streams_(std::move(streams)), cpus_(std::move(cpus)) {
  threads_.reserve(static_cast<size_t>(count));
  try {
    for (int replica = 0; replica < count; ++replica) {
      threads_.push_back(start_thread(intra_op_threads, [this, replica] {
        c10::setThreadName("replica " + std::to_string(replica));
        // The caller's autocast applies here but never ends here, and LibTorch empties this cache only when
        // it ends: the next step would compute with this step's weights.
        at::autocast::set_autocast_cache_enabled(false);
        work(replica);
      }));
    }
  } catch (...) {
    stop();  // the system has no thread left: running threads must not outlive this object
    throw;
  }
}

ReplicaThreads::~ReplicaThreads() {
  stop();
}

void ReplicaThreads::stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  for (auto& thread : threads_) thread.join();
}

bool ReplicaThreads::contains_current_thread() const {
  for (const auto& thread : threads_) {
    if (thread.get_id() == std::this_thread::get_id()) return true;
  }
  return false;
}

std::vector<std::exception_ptr> ReplicaThreads::run(
    const std::function<void(int)>& function,
    const std::function<void(int, std::exception_ptr)>& on_failure) {
  MutexLock one_run(run_mutex_);
  Job job{function, on_failure, at::ThreadLocalState(), std::vector<std::exception_ptr>(threads_.size())};
  record_current_streams(job.before, streams_);
  do_on_all(job);
  try {
    block_current_streams(job.after, streams_);
  } catch (const c10::Error&) {
    // A device that has failed for good fails here too. A replica's own error says more.
    if (std::all_of(job.errors.begin(), job.errors.end(), [](const auto& error) { return !error; })) throw;
  }
  return std::move(job.errors);
}

std::vector<std::exception_ptr> ReplicaThreads::run_on_host(const std::function<void(int)>& function) {
  MutexLock one_run(run_mutex_);
  const std::function<void(int, std::exception_ptr)> ignore = [](int, const std::exception_ptr&) {};
  Job job{function, ignore, at::ThreadLocalState(), std::vector<std::exception_ptr>(threads_.size()),
          /*is_on_host=*/true};
  do_on_all(job);
  return std::move(job.errors);
}

void ReplicaThreads::do_on_all(Job& job) {
  MutexLock lock(mutex_);
  job_ = &job;
  running_ = count();
  ++generation_;
  wake_.notify_all();
  while (running_ > 0) done_.wait(mutex_);
  job_ = nullptr;
}

void ReplicaThreads::do_job(Job& job, int replica) const {
  const ReplicaStream stream =
      streams_.empty() || job.is_on_host ? std::nullopt : streams_[static_cast<size_t>(replica)];
  const c10::OptionalStreamGuard on_stream(stream);
  if (stream) job.before.block(*stream);
  // Also if the function throws: work that it already put on the stream continues.
  const auto record_end = [&] {
    if (stream) job.after.record(*stream);
  };
  try {
    at::ThreadLocalStateGuard state(job.caller_state);
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
    job.function(replica);
  } catch (...) {
    try {
      record_end();
    } catch (const c10::Error&) {
      // The device has failed; the first error says so.
    }
    throw;
  }
  record_end();
}

void ReplicaThreads::work(int replica) {
  if (!cpus_.empty()) restrict_this_thread(cpus_[static_cast<size_t>(replica)]);
  uint64_t seen = 0;
  while (true) {
    Job* job = nullptr;
    {
      MutexLock lock(mutex_);
      while (!stopping_ && generation_ == seen) wake_.wait(mutex_);
      if (stopping_) return;
      seen = generation_;
      job = job_;
    }
    try {
      do_job(*job, replica);
    } catch (...) {
      job->errors[static_cast<size_t>(replica)] = std::current_exception();
      job->on_failure(replica, std::current_exception());
    }
    MutexLock lock(mutex_);
    if (--running_ == 0) done_.notify_all();
  }
}

}  // namespace lockstep
