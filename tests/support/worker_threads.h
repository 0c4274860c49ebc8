#pragma once

#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/runtime/backends/internal/hierarchical_backend.h"
#include "lockstep/runtime/base/net/tcp_listener.h"
#include "lockstep/runtime/cluster/cluster_options.h"
#include "lockstep/runtime/replicas/internal/replica_threads.h"
#include "lockstep/runtime/workers/worker_group.h"

namespace lockstep {

/// Returns the transport that tests of workers use: kGloo if LOCKSTEP_TEST_TRANSPORT is "gloo".
inline WorkerTransport tested_transport() {
  const char* name = std::getenv("LOCKSTEP_TEST_TRANSPORT");
  return name != nullptr && std::string(name) == "gloo" ? WorkerTransport::kGloo : WorkerTransport::kExchange;
}

/// Runs the workers of one job, each in a thread of this process with its own connections, on loopback.
/// Returns what each threw, null if it finished. `change` may alter how a worker joins.
inline std::vector<std::exception_ptr> run_workers(
    const std::vector<int>& num_replicas, const std::function<void(WorkerGroup&)>& work,
    const std::function<void(JoinOptions&)>& change = [](JoinOptions&) {}) {
  TcpListener listener("127.0.0.1", 0);
  const int port = listener.port();
  const int descriptor = listener.release();
  std::vector<std::exception_ptr> errors(num_replicas.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < num_replicas.size(); ++rank) {
    threads.emplace_back([&, rank] {
      JoinOptions options{.rank = static_cast<int>(rank),
                          .size = static_cast<int>(num_replicas.size()),
                          .master_host = "127.0.0.1",
                          .master_port = port,
                          .token = "a token",
                          .num_replicas = num_replicas[rank],
                          .join_timeout = std::chrono::seconds(60),
                          .timeout = std::chrono::seconds(60),
                          .transport = tested_transport(),
                          .uses_shared_memory = cluster_options(process_environment()).uses_shared_memory};
      if (rank == 0) options.listening_socket = descriptor;
      change(options);
      try {
        const auto group = WorkerGroup::join(options);
        work(*group);
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return errors;
}

/// A worker's replicas, and one channel to those of all workers, run as a strategy runs them.
class WorkerReplicas {
 public:
  explicit WorkerReplicas(WorkerGroup& group)
      : layout_(group.layout()),
        threads_(layout_->num_local(), 1),
        channel_(layout_, group.open_channel("test"), std::chrono::seconds(60)) {}

  /// Runs `function(replica, backend)` on each replica, with its id among all, and throws the first error
  /// that is not a consequence of another one.
  void run(const std::function<void(int, c10d::Backend&)>& function) {
    channel_.enter();
    std::exception_ptr first;
    Mutex mutex;
    threads_.run(
        [&](int local) {
          function(layout_->first_local() + local, *channel_.backend(local));
          channel_.leave(local);
        },
        [&](int, const std::exception_ptr& error) {
          {
            MutexLock lock(mutex);
            if (!first) first = error;
          }
          channel_.release("a replica failed");
        });
    if (first) std::rethrow_exception(first);
    channel_.check_complete();
  }

  CollectiveChannel& channel() { return channel_; }

 private:
  std::shared_ptr<const WorkerLayout> layout_;
  ReplicaThreads threads_;
  HierarchicalChannel channel_;
};

}  // namespace lockstep
