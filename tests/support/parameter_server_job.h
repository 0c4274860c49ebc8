#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/parameter_server/service/parameter_service.h"
#include "lockstep/runtime/base/net/tcp_listener.h"
#include "lockstep/runtime/rpc/rpc_server.h"
#include "lockstep/strategies/parameter_server/parameter_server_strategy.h"
#include "lockstep/tests/runtime/cluster/job_token.h"

namespace lockstep {

/// Parameter servers, a chief and workers, each in its own threads, as processes would be.
class ParameterServerJob {
 public:
  struct Options {
    int num_servers = 2;
    int num_workers = 1;
    int replicas_per_worker = 1;
    /// For the chief and each worker. If empty, a CPU for each replica.
    std::vector<std::string> devices{};
    std::chrono::milliseconds join_timeout = std::chrono::seconds(30);
    ParameterServerOptions parameters;
  };

  explicit ParameterServerJob(Options options) : options_(std::move(options)), socket_("127.0.0.1", 0) {
    ClusterSpec::Jobs jobs{{"chief", {{0, {"127.0.0.1", socket_.port()}}}}};
    for (int i = 0; i < options_.num_servers; ++i) {
      services_.emplace_back();
      servers_.emplace_back();
      jobs["ps"][i] = {"127.0.0.1", start_server(i)};
    }
    for (int i = 0; i < options_.num_workers; ++i) jobs["worker"][i] = {"127.0.0.1", i + 1};
    spec_ = ClusterSpec(jobs);
    options_.parameters.on_message = [](const std::string&) {};
    chief_ = make("chief", 0, socket_.release());
  }

  /// Ends the chief; workers serve until then.
  ~ParameterServerJob() { chief_->coordinator().end(); }
  ParameterServerJob(const ParameterServerJob&) = delete;
  ParameterServerJob& operator=(const ParameterServerJob&) = delete;

  ParameterServerStrategy& chief() { return *chief_; }
  const ClusterSpec& spec() const { return spec_; }
  ParameterService& service(int server) { return services_.at(static_cast<size_t>(server)); }
  /// The number of requests that the server has answered since it started.
  uint64_t num_requests(int server) const {
    return servers_.at(static_cast<size_t>(server))->counts().requests;
  }
  void stop_server(int server) { servers_.at(static_cast<size_t>(server)).reset(); }
  /// Loses all connections, but keeps the server's shards.
  void restart_server(int server) {
    const int port = servers_.at(static_cast<size_t>(server))->port();
    stop_server(server);
    start_server(server, port);
  }

  std::unique_ptr<ParameterServerStrategy> make(const std::string& type, int task,
                                                std::optional<int> listening_socket = std::nullopt) {
    ClusterOptions cluster{.token = kJobToken, .listening_socket = listening_socket};
    cluster.join_timeout = options_.join_timeout;
    return std::make_unique<ParameterServerStrategy>(
        std::make_shared<SimpleClusterResolver>(spec_, type, task),
        options_.devices.empty() ? cpu_devices(options_.replicas_per_worker) : options_.devices,
        options_.parameters, StrategyOptions{.intra_op_threads = 1, .seed = 5}, cluster);
  }

  /// Starts all workers. Each one's `prepare(strategy)` makes its model, defines its steps, and returns what
  /// these need.
  template <typename Prepare>
  void start_workers(const Prepare& prepare) {
    for (int task = 0; task < options_.num_workers; ++task) {
      workers_.push_back(std::async(std::launch::async, [this, task, prepare] {
        const auto strategy = make("worker", task);
        [[maybe_unused]] const auto kept = prepare(*strategy);
        strategy->coordinator().serve();
      }));
    }
  }
  /// Ends the chief, and rethrows a worker's error.
  void end() {
    chief_->coordinator().end();
    for (auto& worker : workers_) worker.get();
  }

 private:
  int start_server(int server, int port = 0) {
    const auto at = static_cast<size_t>(server);
    servers_.at(at) = std::make_unique<RpcServer>(
        RpcServerOptions{.port = port, .token = kJobToken, .task = "ps " + std::to_string(server)},
        [&service = services_.at(at)](const RpcMessage& request) { return service.handle(request); });
    return servers_.at(at)->port();
  }

  Options options_;
  TcpListener socket_;
  ClusterSpec spec_;
  std::deque<ParameterService> services_;
  std::vector<std::unique_ptr<RpcServer>> servers_;
  std::unique_ptr<ParameterServerStrategy> chief_;
  std::vector<std::future<void>> workers_;
};

}  // namespace lockstep
