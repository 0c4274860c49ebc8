#pragma once

#include <functional>
#include <vector>

#include "lockstep/tests/support/one_device_equivalence.h"
#include "lockstep/tests/support/worker_strategies.h"

namespace lockstep {

/// Values for a TanhNet to start from.
inline std::vector<torch::Tensor> initial_values() {
  torch::manual_seed(17);
  return values_of(TanhNet()->parameters());
}

inline TanhNet tanh_net_of(const std::vector<torch::Tensor>& values) {
  TanhNet net;
  const torch::NoGradGuard no_grad;
  const auto parameters = net->parameters();
  for (size_t i = 0; i < parameters.size(); ++i) torch::Tensor(parameters[i]).copy_(values[i]);
  return net;
}

/// The net that worker 0 starts from. The other workers make another one, which must be overwritten.
inline TanhNet net_of_worker(const std::vector<torch::Tensor>& values, int worker) {
  std::vector<torch::Tensor> own;
  for (const auto& value : values) own.push_back(worker == 0 ? value : torch::full_like(value, 99));
  return tanh_net_of(own);
}

struct WorkersTraining {
  std::vector<int> num_replicas;  ///< for each worker
  std::vector<torch::Tensor> start;
  std::function<DistributedDataset<Example>(Strategy&)> distribute;  ///< null: examples_of_three_classes()
  std::function<void(int rank, WorkerSetUp&)> change = [](int, WorkerSetUp&) {};
  std::function<void(int replica, TanhNet&)> prepare = [](int, TanhNet&) {};  ///< changes a replica's model
  int epochs = kEpochs;
};

/// Returns the trained parameters. All replicas of all workers must agree after every step.
inline std::vector<torch::Tensor> trained_by_workers(const WorkersTraining& training) {
  const auto data = examples_of_three_classes();
  std::vector<std::vector<torch::Tensor>> results(training.num_replicas.size());
  const auto train = [&](MultiWorkerMirroredStrategy& strategy) {
    const int worker = strategy.cluster_resolver()->rank();
    auto model = strategy.scope([&](ReplicaContext& replica) {
      auto net = net_of_worker(training.start, worker);
      training.prepare(replica.replica_id(), net);
      return net;
    });
    auto optimizer =
        strategy.scope([&](ReplicaContext& replica) { return momentum_sgd()(model[replica]->parameters()); });
    auto batches = training.distribute ? training.distribute(strategy)
                                       : strategy.distribute_dataset(TensorDataset(data.data, data.target),
                                                                     {.global_batch_size = kBatchSize});
    int64_t steps = 0;
    for (int epoch = 0; epoch < training.epochs; ++epoch) {
      for (const auto& batch : batches) {
        strategy.run(plain_step<TanhNet>, model, optimizer, batch);
        expect_bit_equal_replicas(model, ++steps);
      }
    }
    for (const auto& value : values_of(model.primary()->parameters()))
      results[static_cast<size_t>(worker)].push_back(value.cpu());
  };
  expect_no_worker_failed(run_strategies(training.num_replicas, train, training.change));
  for (const auto& result : results) EXPECT_TRUE(bit_equal(result, results[0]));
  return results[0];
}

}  // namespace lockstep
