#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace lockstep {

/// The distribution of a job's replicas over its worker processes. Replicas are numbered worker by worker.
class WorkerLayout {
 public:
  /// `num_replicas[w]` is the number of replicas on worker w, at least one; `worker` is this process.
  WorkerLayout(int worker, std::vector<int> num_replicas)
      : worker_(worker), num_replicas_(std::move(num_replicas)) {
    for (const int count : num_replicas_) {
      first_replicas_.push_back(total_);
      total_ += count;
    }
  }

  int worker() const { return worker_; }
  int num_workers() const { return static_cast<int>(num_replicas_.size()); }
  /// Returns the number of replicas on all workers.
  int num_replicas() const { return total_; }
  int num_replicas_of(int worker) const { return num_replicas_[static_cast<size_t>(worker)]; }
  int first_replica_of(int worker) const { return first_replicas_[static_cast<size_t>(worker)]; }
  int num_local() const { return num_replicas_of(worker_); }
  int first_local() const { return first_replica_of(worker_); }
  int worker_of(int replica) const {
    int worker = 0;
    while (worker + 1 < num_workers() && first_replica_of(worker + 1) <= replica) ++worker;
    return worker;
  }

 private:
  int worker_;
  std::vector<int> num_replicas_;
  std::vector<int> first_replicas_;
  int total_ = 0;
};

}  // namespace lockstep
