#pragma once

#include <c10/util/StringUtil.h>
#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/runtime/base/net/tcp_listener.h"
#include "lockstep/runtime/cluster/cluster_options.h"
#include "lockstep/strategies/mirrored/multi_worker_mirrored_strategy.h"
#include "lockstep/tests/runtime/cluster/job_token.h"

namespace lockstep {

/// How a worker of run_strategies() makes its strategy.
struct WorkerSetUp {
  StrategyOptions options{.intra_op_threads = 1, .timeout = std::chrono::seconds(60)};
  ClusterOptions cluster{.token = kJobToken,
                         .join_timeout = std::chrono::seconds(60),
                         .uses_shared_memory = cluster_options(process_environment()).uses_shared_memory};
  std::vector<std::string> devices;  ///< empty: as many logical CPUs as replicas
};

/// Runs the workers of one job, each in a thread of this process with its own strategy on as many logical
/// CPUs, connected over loopback. Returns what each threw, null if it finished. `change` may alter a worker's
/// set-up.
inline std::vector<std::exception_ptr> run_strategies(
    const std::vector<int>& num_replicas, const std::function<void(MultiWorkerMirroredStrategy&)>& work,
    const std::function<void(int rank, WorkerSetUp&)>& change = [](int, WorkerSetUp&) {}) {
  TcpListener listener("127.0.0.1", 0);
  // Only worker 0's address is used to listen; the others only have to differ.
  std::vector<std::string> hosts{c10::str("127.0.0.1:", listener.port())};
  for (size_t rank = 1; rank < num_replicas.size(); ++rank) hosts.push_back(c10::str("127.0.0.1:", rank));
  const int descriptor = listener.release();
  std::vector<std::exception_ptr> errors(num_replicas.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < num_replicas.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        WorkerSetUp set_up;
        if (rank == 0) set_up.cluster.listening_socket = descriptor;
        change(static_cast<int>(rank), set_up);
        if (set_up.devices.empty()) set_up.devices = cpu_devices(num_replicas[rank]);
        MultiWorkerMirroredStrategy strategy(
            std::make_shared<SimpleClusterResolver>(hosts, static_cast<int>(rank)), set_up.devices,
            set_up.options, set_up.cluster);
        work(strategy);
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return errors;
}

/// The error's message, or "none" for no error.
inline std::string text_of(const std::exception_ptr& error) {
  if (!error) return "none";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& caught) {
    return caught.what();
  }
}

inline void expect_no_worker_failed(const std::vector<std::exception_ptr>& errors) {
  for (const auto& error : errors) EXPECT_EQ(text_of(error), "none");
}

template <typename Error>
bool is_a(const std::exception_ptr& error) {
  if (!error) return false;
  try {
    std::rethrow_exception(error);
  } catch (const Error&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace lockstep
