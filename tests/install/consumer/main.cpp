// A user's program: one step of gradient descent on y = 3x, on two replicas.
#include <cmath>
#include <iostream>

#include "lockstep/lockstep.h"

using namespace lockstep;

torch::Tensor train_step(ReplicaContext& replica, torch::nn::Linear& model, FusedSgd& optimizer,
                         const torch::data::Example<>& batch) {
  optimizer.zero_grad();
  auto losses = (model->forward(batch.data) - batch.target).square().squeeze(1);
  auto loss = compute_average_loss(replica, losses);
  loss.backward();
  replica.apply_gradients(optimizer);
  return loss.detach();
}

int main() {
  MirroredStrategy strategy({"cpu:0", "cpu:1"});
  auto model = strategy.scope([](ReplicaContext&) {
    torch::nn::Linear linear(torch::nn::LinearOptions(1, 1).bias(false));
    torch::nn::init::zeros_(linear->weight);
    return linear;
  });
  auto optimizer =
      strategy.scope([&](ReplicaContext& replica) { return FusedSgd(model[replica]->parameters(), 0.01); });
  auto x = torch::tensor({{1.0}, {2.0}, {3.0}, {4.0}}, torch::kFloat32);
  auto batches = strategy.distribute_dataset(TensorDataset(x, 3 * x), {.global_batch_size = 4});

  double loss = 0;
  for (const auto& batch : batches) {
    loss = strategy.reduce(ReduceOp::kSum, strategy.run(train_step, model, optimizer, batch)).item<double>();
  }

  // The mean of (0 - 3x)^2 is 67.5, and the mean of its derivative, 2 (0 - 3x) x, is -45.
  const double weight = strategy.local_results(model).at(0)->weight.item<double>();
  std::cout << "loss " << loss << ", weight " << weight << '\n';
  return std::abs(loss - 67.5) < 1e-4 && std::abs(weight - 0.45) < 1e-6 ? 0 : 1;
}
