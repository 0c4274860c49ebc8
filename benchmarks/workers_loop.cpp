#include "lockstep/benchmarks/workers_loop.h"

#include <c10/util/StringUtil.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/benchmarks/child_process.h"
#include "lockstep/benchmarks/jobs.h"
#include "lockstep/benchmarks/strategy_loop.h"
#include "lockstep/runtime/tcp_listener.h"
#include "lockstep/strategies/resolve_cluster.h"

namespace lockstep::benchmarks {
namespace {

constexpr std::chrono::seconds kTimeout{300};

/// Only worker 0's address is listened on; the others have to differ.
std::vector<std::string> addresses_of(int num_workers, int port) {
  std::vector<std::string> addresses{c10::str("127.0.0.1:", port)};
  for (int worker = 1; worker < num_workers; ++worker) addresses.push_back(c10::str("127.0.0.1:", worker));
  return addresses;
}

std::string tf_config(const std::vector<std::string>& addresses, int worker) {
  std::vector<std::string> quoted;
  for (const auto& address : addresses) quoted.push_back("\"" + address + "\"");
  return c10::str(R"({"cluster": {"worker": [)", c10::Join(", ", quoted),
                  R"(]}, "task": {"type": "worker", "index": )", worker, "}}");
}

class WorkersLoop : public TrainingLoop {
 public:
  WorkersLoop(const Workload& workload, int num_workers) {
    TcpListener listener("127.0.0.1", 0);
    const auto addresses = addresses_of(num_workers, listener.port());
    for (int worker = 1; worker < num_workers; ++worker) {
      Command job = own_job("worker", workload, num_workers);
      job.environment.emplace_back("TF_CONFIG", tf_config(addresses, worker));
      others_.push_back(std::make_unique<ChildProcess>(job));
    }
    StrategyLoopOptions options{.num_replicas = num_workers};
    options.cluster = std::make_shared<SimpleClusterResolver>(addresses, 0);
    options.cluster_options.listening_socket = listener.release();
    own_ = make_strategy_loop(workload, options);
  }

  void run(int steps) override {
    // Jobs do their first step before they are asked.
    if (std::exchange(has_begun_, true)) {
      for (const auto& other : others_) other->write_line(std::to_string(steps));
    } else if (steps != 1) {
      throw std::logic_error("[benchmark] expected one step first");
    }
    own_->run(steps);
    for (const auto& other : others_) other->read_line(kTimeout);
  }

  int64_t num_parameters() const override { return own_->num_parameters(); }

 private:
  std::vector<std::unique_ptr<ChildProcess>> others_;
  std::unique_ptr<TrainingLoop> own_;
  bool has_begun_ = false;
};

}  // namespace

std::unique_ptr<TrainingLoop> make_workers_loop(const Workload& workload, int num_workers) {
  return std::make_unique<WorkersLoop>(workload, num_workers);
}

std::unique_ptr<TrainingLoop> make_worker_loop(const Workload& workload, int num_workers) {
  StrategyLoopOptions options{.num_replicas = num_workers};
  options.cluster = resolve_cluster(process_environment());
  if (!options.cluster)
    throw std::invalid_argument("--serve worker: expected a cluster in the environment, but got none");
  return make_strategy_loop(workload, options);
}

}  // namespace lockstep::benchmarks
