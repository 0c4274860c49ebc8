// Trains a transformer encoder (encoder.h) whose layers are cut over two ranks, without a change to its code:
// it learns which kind of token a sequence has most of.
//
//     parallel_encoder                             # on four ranks that share the CPU
//     parallel_encoder gpu:0 gpu:1 gpu:2 gpu:3     # on any even number of devices
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "encoder.h"
#include "lockstep/lockstep.h"

using namespace lockstep;

// Says which layers are cut, and how: those that widen the features by columns, those that narrow them again
// by rows, and the table of tokens by rows. All others stay whole.
const ParallelPlan kPlan{{"embedding", RowwiseParallel{}},
                         {"blocks.*.attention.output", RowwiseParallel{}},
                         {"blocks.*.attention.*", ColwiseParallel{}},
                         {"blocks.*.up", ColwiseParallel{}},
                         {"blocks.*.down", RowwiseParallel{}}};

// Sequences [count, 16] of tokens from 0 to 31, and the kind, token % 4, of 7 tokens of each. Of the other
// kinds, it has 3 each.
TensorDataset sequences(int64_t count, uint64_t seed) {
  auto generator = torch::make_generator<at::CPUGeneratorImpl>(seed);
  const auto most = torch::arange(count) % 4;
  const auto kinds =
      torch::cat({most.unsqueeze(1).expand({count, 4}), torch::arange(12).expand({count, 12}) % 4}, 1);
  const auto order = torch::rand({count, 16}, generator).argsort(1, /*descending=*/false);
  const auto tokens = kinds.gather(1, order) + 4 * torch::randint(8, {count, 16}, generator, torch::kLong);
  return {tokens, most};
}

void train_step(ReplicaContext& replica, Encoder& model, FusedAdam& optimizer, Mean& loss,
                const Example& batch) {
  optimizer.zero_grad();
  const auto losses =
      torch::cross_entropy_loss(model->forward(batch.data), batch.target, {}, at::Reduction::None);
  compute_average_loss(replica, losses).backward();
  replica.apply_gradients(optimizer, {.clip_norm = 1});
  loss.update(losses);
}

void test_step(ReplicaContext&, Encoder& model, CategoricalAccuracy& accuracy, const Example& batch) {
  accuracy.update(model->forward(batch.data), batch.target);
}

int main(int argc, char** argv) try {
  std::vector<std::string> devices(argv + 1, argv + argc);
  if (devices.empty()) devices = {"cpu:0", "cpu:1", "cpu:2", "cpu:3"};
  const int pairs = static_cast<int>(devices.size()) / 2;
  MirroredStrategy strategy(devices, {.seed = 1, .mesh = {{"data", pairs}, {"tensor", 2}}});
  std::cout << strategy.describe() << '\n';

  // Finds a layer that the plan misses, before it spoils a training.
  const auto sample = sequences(4, 3).get_batch({0, 1, 2, 3}).data;
  check_parallelized(
      strategy, "tensor", kPlan, [](ReplicaContext&) { return Encoder(); },
      [&](ReplicaContext& replica, Encoder& model) { return model->forward(sample.to(replica.device())); });
  std::cout << "the parallelized encoder computes what the whole one does\n";

  torch::manual_seed(1);
  auto model = strategy.scope([](ReplicaContext& replica) {
    Encoder encoder;
    parallelize(encoder, replica.axis("tensor"), kPlan);
    return encoder;
  });
  auto optimizer =
      strategy.scope([&](ReplicaContext& replica) { return FusedAdam(model[replica]->parameters(), 0.003); });
  auto loss = strategy.scope([](ReplicaContext&) { return Mean(); });
  auto accuracy = strategy.scope([](ReplicaContext&) { return CategoricalAccuracy(); });

  auto train = strategy.distribute_dataset(sequences(2000, 1), {.global_batch_size = 64, .shuffle_seed = 1});
  auto test = strategy.distribute_dataset(sequences(500, 2), {.global_batch_size = 250});
  for (int epoch = 1; epoch <= 4; ++epoch) {
    reset(loss);
    for (const auto& batch : train) strategy.run(train_step, model, optimizer, loss, batch);

    const torch::NoGradGuard no_grad;
    reset(accuracy);
    for (const auto& batch : test) strategy.run(test_step, model, accuracy, batch);
    std::cout << "epoch " << epoch << ": loss " << result(loss) << ", test accuracy " << result(accuracy)
              << '\n';
  }

  // Whole weights, with the names of the encoder: any other layout, one device and Python read them.
  save_weights("encoder.safetensors", strategy, model);
} catch (const std::exception&) {
  std::cerr << "error: " << error_text(std::current_exception()) << '\n';
  return 1;
}
