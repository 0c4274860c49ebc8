// Trains a module of your own in a loop of your own: it learns to tell two spirals apart.
//
//     own_module               # on all GPUs, else on the CPU
//     own_module cpu:0 cpu:1   # on two replicas that share the CPU
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "lockstep/lockstep.h"

using namespace lockstep;

// Any torch::nn module works. It does not know about replicas and devices.
struct SpiralNetImpl : torch::nn::Module {
  SpiralNetImpl() {
    register_module("first", first);
    register_module("second", second);
    register_module("output", output);
  }

  torch::Tensor forward(const torch::Tensor& points) {
    return output(torch::tanh(second(torch::tanh(first(points)))));
  }

  torch::nn::Linear first{2, 64}, second{64, 64}, output{64, 2};
};
TORCH_MODULE(SpiralNet);

// Points in the plane [count, 2], and which of two interleaved spirals each is on. You can train on anything
// with size() and get_batch(), including LibTorch's datasets. Here all examples are two tensors.
TensorDataset two_spirals(int64_t count, uint64_t seed) {
  auto generator = torch::make_generator<at::CPUGeneratorImpl>(seed);
  const auto turn = 3 * M_PI * torch::rand({count}, generator).sqrt();
  const auto spiral = torch::arange(count) % 2;
  const auto angle = turn + M_PI * spiral;
  const auto noise = 0.02 * torch::randn({count, 2}, generator);
  const auto points = torch::stack({angle.cos(), angle.sin()}, 1) * (turn / (3 * M_PI)).unsqueeze(1) + noise;
  return {points, spiral};
}

// Both run once per replica, on the replica's own thread, with its shard of the batch on its own device.
void train_step(ReplicaContext& replica, SpiralNet& model, FusedAdam& optimizer, Mean& loss,
                const Example& batch) {
  optimizer.zero_grad();
  const auto losses =
      torch::cross_entropy_loss(model->forward(batch.data), batch.target, {}, at::Reduction::None);
  compute_average_loss(replica, losses).backward();
  replica.apply_gradients(optimizer);
  loss.update(losses);
}

void test_step(ReplicaContext&, SpiralNet& model, CategoricalAccuracy& accuracy, const Example& batch) {
  accuracy.update(model->forward(batch.data), batch.target);
}

int main(int argc, char** argv) try {
  MirroredStrategy strategy(std::vector<std::string>(argv + 1, argv + argc), {.seed = 1});
  std::cout << strategy.describe() << '\n';

  torch::manual_seed(1);
  auto model = strategy.scope([](ReplicaContext&) { return SpiralNet(); });
  auto optimizer =
      strategy.scope([&](ReplicaContext& replica) { return FusedAdam(model[replica]->parameters(), 0.01); });
  auto loss = strategy.scope([](ReplicaContext&) { return Mean(); });
  auto accuracy = strategy.scope([](ReplicaContext&) { return CategoricalAccuracy(); });

  auto train =
      strategy.distribute_dataset(two_spirals(2000, 1), {.global_batch_size = 64, .shuffle_seed = 1});
  auto test = strategy.distribute_dataset(two_spirals(500, 2), {.global_batch_size = 250});

  for (int epoch = 1; epoch <= 20; ++epoch) {
    reset(loss);
    for (const auto& batch : train) strategy.run(train_step, model, optimizer, loss, batch);

    const torch::NoGradGuard no_grad;
    reset(accuracy);
    for (const auto& batch : test) strategy.run(test_step, model, accuracy, batch);
    std::cout << "epoch " << epoch << ": loss " << result(loss) << ", test accuracy " << result(accuracy)
              << '\n';
  }

  // All replicas hold the same values. Python reads this file with safetensors.torch.load_file().
  save_weights("spiral_net.safetensors", state_dict(*model.primary()));
} catch (const std::exception&) {
  std::cerr << "error: " << error_text(std::current_exception()) << '\n';
  return 1;
}
