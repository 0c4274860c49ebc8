#pragma once

// The training of one_device_equivalence.h with parameter servers.

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/tests/support/one_device_equivalence.h"
#include "lockstep/tests/support/parameter_server_job.h"

namespace lockstep {

inline constexpr int64_t kServedStepsPerEpoch = (kExamples + kBatchSize - 1) / kBatchSize;
inline constexpr int64_t kServedSteps = kEpochs * kServedStepsPerEpoch;

/// A process's part of the training that trained_alone() does.
struct TanhTraining {
  TanhTraining(ParameterServerStrategy& strategy, const MakeOptimizer& make_optimizer)
      : model(strategy.scope([](ReplicaContext&) {
          torch::manual_seed(17);
          return make_tanh_net();
        })),
        optimizer(strategy.scope(
            [&](ReplicaContext& replica) { return make_optimizer(model[replica]->parameters()); })) {
    const auto data = examples_of_three_classes();
    const auto batches =
        strategy.step_batches(TensorDataset(data.data, data.target), {.global_batch_size = kBatchSize});
    strategy.define_step("train", batches,
                         [&strategy, this](const StepSlot& step, PerReplica<Example>& batch) {
                           strategy.run(plain_step<TanhNet>, model, optimizer, batch);
                           return step.step;
                         });
    strategy.define_step("examples", batches,
                         [&strategy, this](const StepSlot&, PerReplica<Example>& batch) {
                           const torch::NoGradGuard no_grad;
                           return strategy.reduce(
                               ReduceOp::kSum, strategy.run(
                                                   [](ReplicaContext&, TanhNet& net, const Example& shard) {
                                                     return example_losses(net, shard).sum();
                                                   },
                                                   model, batch));
                         },
                         {.only_reads = true});
  }

  Mirrored<TanhNet> model;
  Mirrored<OptimizerPointer> optimizer;
};

/// Makes one training at a time, because all threads of a job share the random state.
inline std::shared_ptr<TanhTraining> make_training(ParameterServerStrategy& strategy,
                                                   const MakeOptimizer& make) {
  static std::mutex one_at_a_time;
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  return std::make_shared<TanhTraining>(strategy, make);
}

/// The servers' values, as the chief's model has them after a run that only looks at it.
inline std::vector<torch::Tensor> served_values(ParameterServerStrategy& chief, TanhTraining& training) {
  chief.run([](ReplicaContext&, TanhNet&) {}, training.model);
  return values_of(training.model.primary()->parameters());
}

inline MakeOptimizer adagrad() {
  return [](const auto& parameters) {
    return std::make_unique<torch::optim::Adagrad>(parameters, torch::optim::AdagradOptions(0.1));
  };
}

inline MakeOptimizer adam() {
  return [](const auto& parameters) {
    return std::make_unique<torch::optim::Adam>(parameters, torch::optim::AdamOptions(0.01));
  };
}

}  // namespace lockstep
