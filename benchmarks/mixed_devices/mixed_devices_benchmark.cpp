// One strategy over devices of different types, beside the sum of what each of them reaches alone.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <chrono>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/apps/shared/device_plugin.h"
#include "lockstep/benchmarks/alternating_pairs.h"
#include "lockstep/benchmarks/bar.h"
#include "lockstep/benchmarks/loops/training_loop.h"
#include "lockstep/benchmarks/mixed_devices/mixed_devices_options.h"
#include "lockstep/benchmarks/run_program.h"
#include "lockstep/datasets/tensors/tensor_dataset.h"
#include "lockstep/measurement/machine.h"
#include "lockstep/measurement/statistics.h"
#include "lockstep/models/simple_cnn.h"
#include "lockstep/runtime/cluster/environment.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/nn/losses.h"
#include "lockstep/training/metrics/loss_functions.h"
#include "lockstep/training/optimizers/fused_adam.h"

namespace lockstep::benchmarks {
namespace {

constexpr Bar kAgainstSum{Bar::Side::kAtLeast, 0.9};
/// Measured weights are kept after at most as many.
constexpr int kWarmUpSteps = 62;

using Batches = DistributedDataset<torch::data::Example<>>;

/// Trains a SimpleCnn with Adam on images of noise.
class Training {
 public:
  Training(const std::vector<std::string>& devices, const ReplicaWeights& weights, int64_t batch)
      : batch_(batch),
        strategy_(devices, {.intra_op_threads = 1, .replica_weights = weights}),
        model_(strategy_.scope([](ReplicaContext&) { return SimpleCnn(); })),
        optimizer_(strategy_.scope([&](ReplicaContext& replica) {
          return FusedAdam(model_[replica]->parameters(), FusedAdamOptions(1e-3));
        })),
        batches_(strategy_.distribute_dataset(
            TensorDataset(torch::rand({batch, 1, 28, 28}), torch::randint(10, {batch}, torch::kLong)),
            {.global_batch_size = batch})) {}

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      for (const auto& batch : batches_) strategy_.run(step, model_, optimizer_, batch);
    }
    synchronize(strategy_.devices());
  }

  double images_per_second(int steps) {
    const auto start = std::chrono::steady_clock::now();
    run(steps);
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    return static_cast<double>(steps * batch_) / time.count();
  }

  std::string describe() const { return strategy_.describe(); }

 private:
  static void step(ReplicaContext& replica, SimpleCnn& model, FusedAdam& optimizer,
                   const torch::data::Example<>& batch) {
    optimizer.zero_grad();
    compute_average_loss(replica, cross_entropy(model->forward(batch.data), batch.target)).backward();
    replica.apply_gradients(optimizer);
  }

  int64_t batch_;
  MirroredStrategy strategy_;
  Mirrored<SimpleCnn> model_;
  Mirrored<FusedAdam> optimizer_;
  Batches batches_;
};

void print_ratio(const std::string& of, const AlternatingPairs& pairs) {
  const auto ratio = measurement::median_with_interval(pairs.ratios());
  std::cout << fmt::format("| {} | {:.0f} | {:.0f} | {:.3f} | {:.3f} to {:.3f} | {} {} |\n", of,
                           measurement::median(pairs.first), measurement::median(pairs.second), ratio.median,
                           ratio.lower, ratio.upper, kAgainstSum.str(),
                           kAgainstSum.is_met(ratio) ? "met" : "missed");
}

int run(int argc, char** argv) {
  const auto options = parse_mixed_devices_options(argc, argv);
  if (!options) return 0;
  apps::load_device_plugin(process_environment());
  const auto weights =
      options->weights.empty() ? ReplicaWeights::measured() : ReplicaWeights(options->weights);
  Training together(options->devices, weights, options->batch);
  together.run(kWarmUpSteps);
  std::vector<std::unique_ptr<Training>> alone;
  for (const auto& device : options->devices) {
    alone.push_back(std::make_unique<Training>(std::vector{device}, ReplicaWeights(), options->batch));
    alone.back()->run(3);
  }
  const auto of_all = [&] { return together.images_per_second(options->steps); };
  const auto in_turn = [&] {
    double sum = 0;
    for (const auto& training : alone) sum += training->images_per_second(options->steps);
    return sum;
  };
  // Trainings that know nothing of each other: devices may share memory, caches or power.
  const auto at_once = [&] {
    std::vector<double> speeds(alone.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < alone.size(); ++i)
      threads.emplace_back([&, i] { speeds[i] = alone[i]->images_per_second(options->steps); });
    for (auto& thread : threads) thread.join();
    double sum = 0;
    for (const double speed : speeds) sum += speed;
    return sum;
  };
  std::cout << fmt::format("{}, {}\n{}\nbatches of {}\n\n", measurement::today(),
                           measurement::describe_machine(), together.describe(), options->batch)
            << "| beside | together, images/s | sum, images/s | ratio | 95 % interval | bar |\n"
               "|---|---|---|---|---|---|\n";
  print_ratio("the sum of each alone",
              measure_alternating_pairs(options->pairs, of_all, in_turn, &std::cerr));
  print_ratio("the sum at the same time",
              measure_alternating_pairs(options->pairs, of_all, at_once, &std::cerr));
  return 0;
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  return lockstep::benchmarks::run_program([&] { return lockstep::benchmarks::run(argc, argv); });
}
