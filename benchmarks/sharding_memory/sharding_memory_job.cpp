// One process of sharding_memory_benchmark.py: trains an MLP with Adam for a few steps, and prints the memory
// that its tensors had as a line of JSON.

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "lockstep/benchmarks/run_program.h"
#include "lockstep/benchmarks/sharding_memory/sharding_memory_options.h"
#include "lockstep/measurement/counted_allocator.h"
#include "lockstep/measurement/machine.h"
#include "lockstep/runtime/cluster/resolve_cluster.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/mirrored/multi_worker_mirrored_strategy.h"
#include "lockstep/strategies/sharding/sharded_sequential.h"
#include "lockstep/training/optimizers/fused_adam.h"
#include "lockstep/training/state/memory_of_ranks.h"

namespace lockstep::benchmarks {
namespace {

using Json = nlohmann::ordered_json;
using Model = std::shared_ptr<torch::nn::Module>;

std::unique_ptr<Strategy> make_strategy_of(const ShardingMemoryOptions& options) {
  const StrategyOptions chosen{.seed = 1, .sharding = {.stage = options.stage < 3 ? options.stage : 0}};
  if (auto cluster = resolve_cluster(process_environment()))
    return std::make_unique<MultiWorkerMirroredStrategy>(std::move(cluster), cpu_devices(1), chosen);
  return std::make_unique<MirroredStrategy>(cpu_devices(options.replicas), chosen);
}

Model make_model(ReplicaContext& replica, const ShardingMemoryOptions& options) {
  std::vector<ElementFactory> layers;
  layers.reserve(static_cast<size_t>(options.layers));
  for (int64_t i = 0; i < options.layers; ++i)
    layers.emplace_back([width = options.width] { return torch::nn::Linear(width, width); });
  if (options.stage == 3) return shard_elements(layers, along(replica.axis("data"))).ptr();
  torch::nn::Sequential model;
  for (const auto& layer : layers) model->push_back(layer.make());
  return model.ptr();
}

torch::Tensor forward_of(torch::nn::Module& model, const torch::Tensor& x) {
  if (auto* units = dynamic_cast<ShardedSequentialImpl*>(&model)) return units->forward(x);
  return dynamic_cast<torch::nn::SequentialImpl&>(model).forward(x);
}

Json parts_json(const MemoryParts& parts) {
  return {{"parameters", parts.parameters},
          {"gradients", parts.gradients},
          {"optimizer_state", parts.optimizer_state.value_or(0)},
          {"buckets", parts.buckets},
          {"gathered_units", parts.gathered_units}};
}

int run(int argc, char** argv) {
  const auto options = parse_sharding_memory_job(argc, argv);
  measurement::count_cpu_tensors();
  torch::manual_seed(1);  // the same on all workers
  const auto strategy = make_strategy_of(options);
  auto model = strategy->scope([&](ReplicaContext& replica) { return make_model(replica, options); });
  auto optimizer = strategy->scope([&](ReplicaContext& replica) {
    return FusedAdam(model[replica]->parameters(), FusedAdamOptions(1e-4));
  });
  const auto step = [&](ReplicaContext& replica, Model& own, FusedAdam& adam) {
    adam.zero_grad();
    forward_of(*own, torch::ones({1, options.width})).square().sum().backward();
    replica.apply_gradients(adam);
  };
  measurement::restart_counted_peak();
  int64_t earlier_peak = 0;
  for (int64_t i = 0; i < options.steps; ++i) {
    earlier_peak = std::max(earlier_peak, i == 0 ? 0 : measurement::counted_peak());
    measurement::restart_counted_peak();
    strategy->run(step, model, optimizer);
  }
  const int64_t peak = measurement::counted_peak();
  // Threads that exchange with other workers drop the memory of a sum after the step has got it, but before
  // they begin the next collective.
  strategy->run([](ReplicaContext& replica) { replica.all_reduce(ReduceOp::kSum, torch::ones({1})); });
  Json line{{"held", measurement::counted_bytes()},
            {"peak", peak},
            {"peak_of_earlier_steps", earlier_peak},
            {"peak_of_process", measurement::peak_memory_bytes()},
            {"most_units", 0},
            {"ranks", Json::array()}};
  if (options.stage == 3) line["most_units"] = gathered_units(*model.local_values()[0]).counts().most_units;
  std::vector<torch::optim::Optimizer*> optimizers;
  for (auto& own : optimizer.local_values()) optimizers.push_back(&own);
  for (const auto& rank : memory_of_ranks(*strategy, module_pointers(model.local_values()), optimizers)) {
    line["ranks"].push_back({{"rank", rank.rank},
                             {"measured", parts_json(rank.measured)},
                             {"predicted", parts_json(rank.predicted.value())}});
  }
  std::cout << line.dump() << std::endl;
  return 0;
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  return lockstep::benchmarks::run_program([&] { return lockstep::benchmarks::run(argc, argv); });
}
