#include "lockstep/benchmarks/planning/order/layout_training.h"

#include <torch/optim/optimizer.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/apps/shared/strategy_choice/sharded_parts.h"
#include "lockstep/benchmarks/emulation/emulated_channel.h"
#include "lockstep/benchmarks/emulation/emulated_operators.h"
#include "lockstep/measurement/seconds_since.h"
#include "lockstep/models/gpt/gpt.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/nn/losses.h"
#include "lockstep/strategies/nn/recompute.h"
#include "lockstep/training/optimizers/fused_adam.h"
#include "lockstep/training/optimizers/fused_sgd.h"

namespace lockstep::benchmarks {
namespace {

using Optimizer = std::unique_ptr<torch::optim::Optimizer>;

struct Tokens {
  torch::Tensor inputs, targets;
};

StrategyOptions strategy_options(const OrderCase& order_case, const PlannedLayout& layout,
                                 const std::shared_ptr<EmulatedMachines>& machines) {
  const auto size = [](int64_t ranks) { return static_cast<int>(ranks); };
  StrategyOptions options{.seed = 1,
                          .mesh = {{"data", size(layout.data)},
                                   {"shard", size(layout.shard)},
                                   {"expert", size(layout.expert)},
                                   {"pipeline", size(layout.pipeline)},
                                   {"context", size(layout.context)},
                                   {"tensor", size(layout.tensor)}},
                          .buckets = {.first_bucket_bytes = order_case.training.first_bucket_bytes,
                                      .bucket_bytes = order_case.training.bucket_bytes}};
  if (layout.stage > 0)
    options.sharding = {.stage = layout.stage, .axis = layout.shard > 1 ? "shard" : "expert"};
  if (machines) {
    options.cross_device_ops = std::make_shared<EmulatedCommunication>(machines);
    options.intra_op_threads = 1;
  }
  return options;
}

Gpt make_gpt(const OrderCase& order_case, const PlannedLayout& layout, const Strategy& strategy,
             ReplicaContext& replica) {
  GptAxes axes;
  if (layout.tensor > 1) axes.parts = &replica.axis("tensor");
  if (layout.context > 1) axes.tokens = &replica.axis("context");
  if (layout.expert > 1) axes.experts = &replica.axis("expert");
  if (layout.pipeline > 1) {
    axes.stages = &replica.axis("pipeline");
    axes.pipeline = {.schedule = layout.schedule,
                     .micro_batches = static_cast<int>(layout.micro_batches),
                     .stages_per_rank = static_cast<int>(layout.stages_per_rank)};
  }
  Gpt model(order_case.model, axes, {.shard_sequence = layout.has_sequence_shards},
            apps::sharded_parts(strategy, replica));
  if (layout.recomputes) {
    model->set_block_runner([](const PartFunction& block, const torch::Tensor& x) {
      return recompute(RecomputeOptions{.restores_random_state = false}, block, x);
    });
  }
  return model;
}

Optimizer make_optimizer(const PlannedTraining& training, const std::vector<torch::Tensor>& parameters) {
  constexpr double kRate = 1e-4;
  if (training.optimizer_states == 0) return std::make_unique<FusedSgd>(parameters, FusedSgdOptions(kRate));
  return std::make_unique<FusedAdamW>(parameters, FusedAdamWOptions(kRate));
}

void train_step(const OrderCase& order_case, const PlannedLayout& layout, ReplicaContext& replica, Gpt& model,
                Optimizer& optimizer, const Tokens& tokens) {
  optimizer->zero_grad();
  if (layout.pipeline > 1) {
    model->forward_backward(replica, tokens.inputs, tokens.targets);
    replica.apply_gradients(*optimizer);
    return;
  }
  const auto inputs = tokens.inputs.tensor_split(layout.micro_batches);
  const auto targets = tokens.targets.tensor_split(layout.micro_batches);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto go = [&] {
      const auto losses = model->losses(inputs[i], targets[i]);
      compute_average_loss(replica, losses.sum(1) / order_case.length,
                           {.global_batch_size = order_case.training.global_batch})
          .backward();
    };
    if (i + 1 == inputs.size()) {
      go();
    } else {
      const auto hold = replica.accumulate();
      go();
    }
  }
  replica.apply_gradients(*optimizer);
}

}  // namespace

LayoutTraining::LayoutTraining(const OrderCase& order_case, const PlannedLayout& layout) {
  const auto machines = order_case.is_emulated ? std::make_shared<EmulatedMachines>(order_case.cluster)
                                               : std::shared_ptr<EmulatedMachines>();
  auto strategy =
      std::make_shared<MirroredStrategy>(cpu_devices(static_cast<int>(order_case.cluster.devices)),
                                         strategy_options(order_case, layout, machines));
  const auto make_model = [&](ReplicaContext& replica) {
    return make_gpt(order_case, layout, *strategy, replica);
  };
  auto models = std::make_shared<decltype(strategy->scope(make_model))>(strategy->scope(make_model));
  const auto optimizer_of = [&](ReplicaContext& replica) {
    return make_optimizer(order_case.training, (*models)[replica]->parameters());
  };
  auto optimizers = std::make_shared<decltype(strategy->scope(optimizer_of))>(strategy->scope(optimizer_of));
  const int64_t examples = (order_case.training.global_batch + layout.replicas() - 1) / layout.replicas();
  const auto random = [&] {
    return torch::randint(order_case.model.vocabulary_size, {examples, order_case.length}, torch::kLong);
  };
  const Tokens tokens{random(), random()};
  step_ = [=] {
    const auto begin = std::chrono::steady_clock::now();
    const auto step = [&](ReplicaContext& replica, Gpt& model, Optimizer& optimizer) {
      if (!machines) return train_step(order_case, layout, replica, model, optimizer, tokens);
      auto& device = machines->device(replica.rank());
      device.begin(begin);
      const EmulatedOperatorsGuard emulated(device);
      train_step(order_case, layout, replica, model, optimizer, tokens);
      device.wait_until(device.now());
    };
    strategy->run(step, *models, *optimizers);
    if (!machines) return measurement::seconds_since(begin);
    const auto last = std::max_element(machines->devices.begin(), machines->devices.end(),
                                       [](const auto& a, const auto& b) { return a.now() < b.now(); });
    return std::chrono::duration<double>(last->now() - begin).count();
  };
}

}  // namespace lockstep::benchmarks
