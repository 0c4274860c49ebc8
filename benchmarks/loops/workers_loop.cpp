#include "lockstep/benchmarks/loops/workers_loop.h"

#include <stdexcept>
#include <string>
#include <utility>

#include "lockstep/benchmarks/jobs.h"
#include "lockstep/benchmarks/local_cluster.h"

namespace lockstep::benchmarks {
namespace {

/// Returns the job of another worker. Flags that only some programs have are given only if needed.
Command worker_job(const Workload& workload, const StrategyLoopOptions& options) {
  Command job = own_job("worker", workload, options.num_replicas);
  auto& flags = job.arguments;
  if (options.bucket_bytes)
    flags.insert(flags.end(), {"--bucket-bytes", std::to_string(*options.bucket_bytes)});
  if (options.gradient_compression != "none")
    flags.insert(flags.end(), {"--gradient-compression", options.gradient_compression});
  if (options.sharding > 0) job = with_sharding(std::move(job), options.sharding);
  if (options.tensor > 1) job = with_tensor_axis(std::move(job), options.tensor);
  if (options.pipeline > 1) job = with_pipeline_axis(std::move(job), workload, options.pipeline);
  if (!options.overlaps) flags.emplace_back("--no-overlap");
  return job;
}

class WorkersLoop : public TrainingLoop {
 public:
  WorkersLoop(const Workload& workload, StrategyLoopOptions options)
      : cluster_(start_local_cluster(worker_job(workload, options), options.num_replicas)) {
    options.cluster = cluster_.resolver;
    options.cluster_options = cluster_.options;
    own_ = make_strategy_loop(workload, options);
  }

  ~WorkersLoop() override { cluster_.close_inputs(); }

  void run(int steps) override {
    // Jobs do their first step without being asked.
    if (std::exchange(has_begun_, true)) {
      cluster_.write_line(std::to_string(steps));
    } else if (steps != 1) {
      throw std::logic_error("[benchmark] expected one step first");
    }
    own_->run(steps);
    cluster_.read_lines();
  }

  int64_t num_parameters() const override { return own_->num_parameters(); }
  double last_loss() override { return own_->last_loss(); }

 private:
  LocalCluster cluster_;
  std::unique_ptr<TrainingLoop> own_;
  bool has_begun_ = false;
};

}  // namespace

std::unique_ptr<TrainingLoop> make_workers_loop(const Workload& workload, StrategyLoopOptions options) {
  return std::make_unique<WorkersLoop>(workload, std::move(options));
}

std::unique_ptr<TrainingLoop> make_worker_loop(const Workload& workload, StrategyLoopOptions options) {
  options.cluster = cluster_of_job();
  return make_strategy_loop(workload, options);
}

}  // namespace lockstep::benchmarks
