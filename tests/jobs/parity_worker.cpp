// A worker of cluster_parity_test.py and cluster_size_test.py: trains a small net in float64 for 20 steps, on
// some logical CPUs, in the cluster that its environment names, and writes the trained values.
#include <c10/util/env.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <cstdint>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <memory>
#include <string>

#include "lockstep/datasets/tensors/tensor_dataset.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/strategies/mirrored/multi_worker_mirrored_strategy.h"
#include "lockstep/strategies/nn/losses.h"
#include "lockstep/tests/equivalence/random_pauses.h"
#include "lockstep/tests/support/tanh_net.h"

namespace lockstep {
namespace {

constexpr int kEpochs = 4;

struct Options {
  int num_replicas = 1;
  std::string file;
  int64_t batch_size = 13;  // an epoch has five batches, of which the last one is smaller
  bool is_endless = false;  // it continues to train after it has written its values
};

using Sgd = std::unique_ptr<torch::optim::SGD>;

void train_step(ReplicaContext& replica, TanhNet& model, Sgd& optimizer, const Example& batch) {
  optimizer->zero_grad();
  const auto losses =
      torch::cross_entropy_loss(model->forward(batch.data), batch.target, {}, at::Reduction::None);
  compute_average_loss(replica, losses).backward();
  replica.apply_gradients(*optimizer);
}

void write_values(const TanhNet& model, const std::string& file) {
  std::ofstream out(file);
  out << std::setprecision(17);
  for (const auto& parameter : model->parameters()) {
    const auto values = parameter.detach().flatten();
    for (int64_t i = 0; i < values.numel(); ++i) out << values[i].item<double>() << '\n';
  }
}

/// Returns whether this process has memory in common with another worker.
bool shares_memory() {
  std::ifstream mappings("/proc/self/maps");
  for (std::string line; std::getline(mappings, line);) {
    if (line.find("/memfd:lockstep") != std::string::npos) return true;
  }
  return false;
}

void train(const Options& options) {
  torch::manual_seed(17);
  const int64_t num_examples = 5 * options.batch_size - 4;
  const auto data = torch::randn({num_examples, 6}, torch::kDouble);
  const auto target = torch::randint(0, 3, {num_examples});
  // Small buckets, for several sums in a step.
  MultiWorkerMirroredStrategy strategy(
      nullptr, cpu_devices(options.num_replicas),
      {.intra_op_threads = 1, .buckets = {.first_bucket_bytes = 64, .bucket_bytes = 128}});
  auto model = strategy.scope([](ReplicaContext& replica) {
    TanhNet net;
    if (const auto seed = c10::utils::get_env("LOCKSTEP_TEST_PAUSES"))
      pause_before_gradients(*net, static_cast<unsigned>(100 * std::stoi(*seed) + replica.replica_id()));
    return net;
  });
  auto optimizer = strategy.scope([&](ReplicaContext& replica) {
    return std::make_unique<torch::optim::SGD>(model[replica]->parameters(),
                                               torch::optim::SGDOptions(0.1).momentum(0.9));
  });
  auto batches = strategy.distribute_dataset(TensorDataset(data, target),
                                             {.global_batch_size = options.batch_size, .shuffle_seed = 3});
  const auto train_epoch = [&] {
    for (const auto& batch : batches) strategy.run(train_step, model, optimizer, batch);
  };
  for (int epoch = 0; epoch < kEpochs; ++epoch) train_epoch();
  write_values(model.primary(), options.file);
  std::cout << strategy.cluster_resolver()->source() << ", " << strategy.num_replicas_in_sync()
            << " replicas, " << (shares_memory() ? "shared memory" : "no shared memory") << std::endl;
  while (options.is_endless) train_epoch();
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  if (argc < 3 || argc > 5) {
    std::cerr << "expected: parity_worker REPLICAS FILE [BATCH_SIZE [forever]]\n";
    return 2;
  }
  try {
    lockstep::Options options{.num_replicas = std::stoi(argv[1]), .file = argv[2]};
    if (argc > 3) options.batch_size = std::stoi(argv[3]);
    options.is_endless = argc > 4 && argv[4] == std::string("forever");
    lockstep::train(options);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
}
