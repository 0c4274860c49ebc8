#include <string>
#include <vector>

#include "lockstep/lockstep.h"

using namespace lockstep;

namespace {

void train_step(ReplicaContext& replica, torch::nn::Linear& model, FusedSgd& optimizer,
                const Example& batch) {
  optimizer.zero_grad();
  auto losses = (model->forward(batch.data) - batch.target).square().squeeze(1);
  compute_average_loss(replica, losses).backward();
  replica.apply_gradients(optimizer);
}

}  // namespace

/// Fits y = w x in steps of 4 examples under the named strategy. Returns w after each step.
std::vector<double> train(const std::string& strategy_name, const torch::Tensor& x, const torch::Tensor& y) {
  const auto [strategy, reason] = make_strategy(strategy_name);
  auto model = strategy->scope([](ReplicaContext&) {
    torch::nn::Linear linear(torch::nn::LinearOptions(1, 1).bias(false));
    torch::nn::init::zeros_(linear->weight);
    return linear;
  });
  auto optimizer =
      strategy->scope([&](ReplicaContext& replica) { return FusedSgd(model[replica]->parameters(), 0.01); });
  auto batches = strategy->distribute_dataset(TensorDataset(x, y), {.global_batch_size = 4});

  std::vector<double> weights;  // replica 0's after every step
  for (const auto& batch : batches) {
    strategy->run(train_step, model, optimizer, batch);
    weights.push_back(model.primary()->weight.item<double>());
  }
  return weights;
}
