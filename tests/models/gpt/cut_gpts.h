#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/models/gpt/gpt.h"
#include "lockstep/runtime/replicas/rank_random.h"
#include "lockstep/runtime/replicas/sharded_parameter.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/nn/losses.h"
#include "lockstep/strategies/sharding/sharded_module.h"
#include "lockstep/tests/models/gpt/small_gpts.h"

namespace lockstep {

/// Factors of the losses of experts' routers.
inline constexpr double kBalanceLoss = 0.1;
inline constexpr double kRouterZLoss = 0.01;

/// Small models that up to four ranks can divide.
inline std::vector<NamedGpt> cut_gpts() {
  GptOptions gpt2 = small_gpt2();
  gpt2.vocabulary_size = 32;
  gpt2.num_heads = 4;
  gpt2.width = 16;
  GptOptions llama = small_llama();
  llama.vocabulary_size = 32;
  llama.num_heads = 8;
  llama.num_key_value_heads = 4;
  GptOptions mixed = llama;
  mixed.has_attention_bias = true;
  mixed.has_mlp_bias = true;
  mixed.has_tied_head = true;
  mixed.norm = GptNorm::kLayerNorm;
  GptOptions unusual = gpt2;
  unusual.activation = GptActivation::kGelu;
  unusual.has_tied_head = false;
  return {{"Gpt2", gpt2}, {"Llama", llama}, {"BiasedLlamaWithTiedHead", mixed}, {"Gpt2WithOwnHead", unusual}};
}

inline StrategyOptions cut_gpt_strategy(const Mesh& mesh, int stage = 0) {
  return {.intra_op_threads = 1, .seed = 3, .mesh = mesh, .sharding = {.stage = stage}};
}

/// Makes a sharded unit of each part of a model if the strategy shards parameters.
inline PartWrapper cut_gpt_units(const Strategy& strategy, ReplicaContext& replica) {
  if (strategy.sharding().stage != 3) return {};
  return [options = along(replica.axis(strategy.sharding().axis))](const ModelPart& part) {
    const auto unit = std::make_shared<ShardedModule>(part.module, options);
    return WrappedPart{unit, [unit](const PartFunction& function, const torch::Tensor& x) {
                         return unit->call(function, x);
                       }};
  };
}

/// Makes a model, or the rank's part of it along "tensor", "context", "pipeline" and "expert" if the mesh has
/// these axes, of sharded units in stage 3. Every part of the model matters to its results.
inline Gpt make_cut_gpt(ReplicaContext& replica, const Strategy& strategy, const GptOptions& options,
                        GptCutOptions cut = {}, ContextMethod method = ContextMethod::kRing,
                        PipelineOptions pipeline = {.micro_batches = 2}) {
  const auto generator = at::detail::createCPUGenerator(12);
  const RankRandom apart(generator);  // Workers that are threads share the process's generator.
  Gpt whole(options);
  whole->to(torch::kDouble);
  spread_parameters(whole);
  GptAxes axes{.context_method = method};
  if (strategy.mesh().has("tensor")) axes.parts = &replica.axis("tensor");
  if (strategy.mesh().has("context")) axes.tokens = &replica.axis("context");
  if (strategy.mesh().has("pipeline")) axes.stages = &replica.axis("pipeline");
  if (strategy.mesh().has("expert")) axes.experts = &replica.axis("expert");
  axes.pipeline = std::move(pipeline);
  const bool is_cut =
      axes.parts != nullptr || axes.tokens != nullptr || axes.stages != nullptr || axes.experts != nullptr;
  if (!is_cut && strategy.sharding().stage != 3) return whole;
  const auto units = cut_gpt_units(strategy, replica);
  Gpt own = is_cut ? Gpt(options, axes, cut, units) : Gpt(options, units);
  own->to(torch::kDouble);
  const torch::NoGradGuard no_grad;
  const auto values = whole->named_parameters();
  for (auto& item : own->named_parameters()) {
    const auto* part = sharded_parameter_of(item.value());
    item.value().copy_(part != nullptr ? part_of_values(values[item.key()], *part) : values[item.key()]);
  }
  return own;
}

/// Returns the tokens of a step, [4, T + 1].
inline torch::Tensor tokens_of_step(int step, const GptOptions& options, int64_t sequences = 4) {
  const int64_t length = options.max_length;
  return (torch::arange(sequences * length).reshape({sequences, length}) * 7 + 3 * step)
      .square()
      .remainder(options.vocabulary_size);
}

/// Returns this replica's share of the mean loss of all sequences. Routers of experts are trained with losses
/// of their own, too.
inline double cut_gpt_step(ReplicaContext& replica, Gpt& gpt, torch::optim::AdamW& optimizer, int step) {
  optimizer.zero_grad();
  const auto all = tokens_of_step(step, gpt->options());
  const int64_t share = all.size(0) / replica.num_replicas();
  const auto own = all.narrow(0, replica.replica_id() * share, share);
  const int64_t length = own.size(1) - 1;
  if (gpt->stages() != nullptr) {
    const auto means = gpt->forward_backward(replica, own.narrow(1, 0, length), own.narrow(1, 1, length),
                                             {.balance_loss = kBalanceLoss, .z_loss = kRouterZLoss});
    replica.apply_gradients(optimizer, {.clip_norm = 0.5});
    return sum_over_contexts(replica, means.sum()).item<double>() / static_cast<double>(all.size(0));
  }
  const auto losses = gpt->losses_with_routing(own.narrow(1, 0, length), own.narrow(1, 1, length));
  const auto loss =
      sum_over_contexts(replica, losses.losses.sum() / static_cast<double>(all.size(0) * length));
  auto trained = loss;
  if (gpt->options().num_experts > 0) {
    const auto of_routers = kBalanceLoss * losses.balance_losses + kRouterZLoss * losses.z_losses;
    trained = loss + of_routers.sum() / all.size(0);
  }
  trained.backward();
  replica.apply_gradients(optimizer, {.clip_norm = 0.5});
  return loss.item<double>();
}

/// A training of such a model under a strategy.
struct CutGptTraining {
  CutGptTraining(Strategy& on, const GptOptions& options, const GptBlockRunner& runner = {},
                 GptCutOptions cut = {}, ContextMethod method = ContextMethod::kRing,
                 PipelineOptions pipeline = {.micro_batches = 2})
      : strategy(on),
        model(on.scope([&](ReplicaContext& replica) {
          Gpt gpt = make_cut_gpt(replica, on, options, cut, method, pipeline);
          gpt->set_block_runner(runner);
          return gpt;
        })),
        // Keys' biases have no effect, and so gradients of about 1e-18: epsilon keeps AdamW from making much
        // of them.
        adam(on.scope([&](ReplicaContext& replica) {
          return torch::optim::AdamW(model[replica]->parameters(),
                                     torch::optim::AdamWOptions(0.02).weight_decay(0.1).eps(1e-3));
        })) {}

  double step(int number) {
    const auto losses = strategy.run(cut_gpt_step, model, adam, number);
    return strategy.reduce(ReduceOp::kSum, losses);
  }

  Strategy& strategy;
  Mirrored<Gpt> model;
  Mirrored<torch::optim::AdamW> adam;
};

/// Returns the largest difference of a rank's parameters from its parts of those of a whole model.
inline double difference_from_whole(const Gpt& own, const Gpt& whole) {
  const auto expected = whole->named_parameters();
  TORCH_CHECK(own->named_parameters().keys() == expected.keys());
  double most = 0;
  for (const auto& item : own->named_parameters()) {
    const auto* place = sharded_parameter_of(item.value());
    const auto& values = expected[item.key()];
    const auto part = place != nullptr ? part_of_values(values, *place) : values;
    if (part.numel() == 0) continue;
    most = std::max(most, (part - item.value()).abs().max().item<double>());
  }
  return most;
}

}  // namespace lockstep
