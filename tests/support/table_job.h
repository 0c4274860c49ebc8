#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/tests/support/parameter_server_job.h"
#include "lockstep/tests/support/sanitizer.h"
#include "lockstep/tests/support/table_net.h"

namespace lockstep {

enum class Reads { kAhead, kWhenLookedUp };

/// Of the trainings that are compared with trained_alone().
inline constexpr Schedule kTableSchedule{.epochs = few_if_sanitized(kEpochs, 2)};
inline constexpr int64_t kTableSteps = kTableSchedule.epochs * ((kExamples + kBatchSize - 1) / kBatchSize);

inline TensorDataset dataset_of_bags() {
  const auto data = bags();
  return {data.data, data.target};
}

struct TableTraining {
  TableTraining(ParameterServerStrategy& strategy, const MakeOptimizer& make, Reads reads)
      : model(strategy.scope([](ReplicaContext&) { return seeded<TableNet>(); })),
        optimizer(
            strategy.scope([&](ReplicaContext& replica) { return make(model[replica]->parameters()); })),
        batches(strategy.step_batches(dataset_of_bags(), {.global_batch_size = kBatchSize})) {
    if (reads == Reads::kAhead)
      options.look_up = [this](const Example& shard, TableLookups& lookups) {
        model.primary()->list_lookups(shard.data, lookups);
      };
    strategy.define_step(
        "train", batches,
        [&strategy, this](const StepSlot&, PerReplica<Example>& batch) {
          strategy.run(plain_step<TableNet>, model, optimizer, batch);
        },
        options);
  }

  Mirrored<TableNet> model;
  Mirrored<OptimizerPointer> optimizer;
  StepBatches<Example> batches;
  StepOptions<Example> options;
};

/// A job that trains tables. Its threads make them one at a time, because they share the process's random
/// state.
class TableJob {
 public:
  /// Defines further steps of a process.
  using Define = std::function<void(ParameterServerStrategy&, TableTraining&)>;

  TableJob(const ParameterServerJob::Options& options, MakeOptimizer make, Reads reads, Define define = {})
      : make_(std::move(make)),
        reads_(reads),
        define_(std::move(define)),
        job_(options),
        training_(prepare(job_.chief())) {
    job_.start_workers([this](ParameterServerStrategy& strategy) { return prepare(strategy); });
  }

  ParameterServerJob& job() { return job_; }
  TableTraining& training() { return *training_; }

  void run(const std::string& step, int64_t begin, int64_t end) {
    job_.chief().run_steps(step, begin, end, [](int64_t, const std::vector<ClosureValues>&) {});
  }
  void train(int64_t begin, int64_t end) { run("train", begin, end); }

  /// The servers' values on the CPU, in the order of the network's parameters, read as an evaluation reads
  /// them.
  std::vector<torch::Tensor> served() {
    std::vector<torch::Tensor> served;
    job_.chief().run(
        [&](ReplicaContext& replica, TableNet& model) {
          if (replica.local_replica_id() != 0) return;
          const torch::NoGradGuard no_grad;
          const auto rows = torch::arange(kTableRows).to(replica.device());
          for (const auto& values :
               {model->tables[0](rows), model->tables[1](rows.unsqueeze(1)),
                model->tables[2](rows.unsqueeze(1)), model->head->weight, model->head->bias})
            served.push_back(
                values.to(torch::kCPU, values.scalar_type(), /*non_blocking=*/false, /*copy=*/true));
        },
        training_->model);
    return served;
  }

 private:
  std::shared_ptr<TableTraining> prepare(ParameterServerStrategy& strategy) {
    const std::lock_guard<std::mutex> lock(one_at_a_time_);
    auto training = std::make_shared<TableTraining>(strategy, make_, reads_);
    if (define_) define_(strategy, *training);
    return training;
  }

  std::mutex one_at_a_time_;
  MakeOptimizer make_;
  Reads reads_;
  Define define_;
  ParameterServerJob job_;
  std::shared_ptr<TableTraining> training_;
};

}  // namespace lockstep
