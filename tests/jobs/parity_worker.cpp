// A worker of cluster_test.py: trains a small net in float64 for a few epochs, on REPLICAS logical CPUs, in
// the cluster that its environment names, and writes the trained values.
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <fstream>
#include <iomanip>
#include <iostream>
#include <string>

#include "lockstep/datasets/tensors/tensor_dataset.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/mirrored/multi_worker_mirrored_strategy.h"
#include "lockstep/strategies/nn/losses.h"
#include "lockstep/tests/support/tanh_net.h"

namespace lockstep {
namespace {

using Sgd = std::unique_ptr<torch::optim::SGD>;

void train_step(ReplicaContext& replica, TanhNet& model, Sgd& optimizer, const Example& batch) {
  optimizer->zero_grad();
  const auto losses =
      torch::cross_entropy_loss(model->forward(batch.data), batch.target, {}, at::Reduction::None);
  compute_average_loss(replica, losses).backward();
  replica.apply_gradients(*optimizer);
}

void train(int num_replicas, const std::string& file) {
  torch::manual_seed(17);
  const auto data = torch::randn({61, 6}, torch::kDouble);
  const auto target = torch::randint(0, 3, {61});
  MultiWorkerMirroredStrategy strategy(nullptr, cpu_devices(num_replicas));
  auto model = strategy.scope([](ReplicaContext&) { return TanhNet(); });
  auto optimizer = strategy.scope([&](ReplicaContext& replica) {
    return std::make_unique<torch::optim::SGD>(model[replica]->parameters(),
                                               torch::optim::SGDOptions(0.1).momentum(0.9));
  });
  auto batches =
      strategy.distribute_dataset(TensorDataset(data, target), {.global_batch_size = 13, .shuffle_seed = 3});
  for (int epoch = 0; epoch < 4; ++epoch) {
    for (const auto& batch : batches) strategy.run(train_step, model, optimizer, batch);
  }
  std::ofstream out(file);
  out << std::setprecision(17);
  for (const auto& parameter : model.primary()->parameters()) {
    const auto values = parameter.detach().flatten();
    for (int64_t i = 0; i < values.numel(); ++i) out << values[i].item<double>() << '\n';
  }
  std::cout << strategy.cluster_resolver()->source() << ", " << strategy.num_replicas_in_sync() << " replicas"
            << std::endl;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "expected: parity_worker REPLICAS FILE\n";
    return 2;
  }
  try {
    lockstep::train(std::stoi(argv[1]), argv[2]);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
}
