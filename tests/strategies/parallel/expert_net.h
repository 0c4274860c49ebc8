#pragma once

#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/types.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/strategies/nn/recompute.h"
#include "lockstep/strategies/sharding/sharded_module.h"
#include "lockstep/tests/strategies/parallel/expert_cases.h"

namespace lockstep {

struct ExpertNetParts {
  const ReplicaAxis* experts = nullptr;  ///< null: all experts are on this device
  const ReplicaAxis* shards = nullptr;   ///< along which layers are sharded units
  std::optional<double> capacity_factor = std::nullopt;
  bool recomputes = false;
};

using BlockOutput = std::tuple<torch::Tensor, torch::Tensor, torch::Tensor>;

struct ExpertBlockImpl : torch::nn::Module {
  explicit ExpertBlockImpl(const ExpertNetParts& parts) {
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kFeatures})));
    norm->to(torch::kDouble);
    experts = register_module("experts", wave_experts({.features = kFeatures,
                                                       .hidden_features = kHidden,
                                                       .num_experts = 8,
                                                       .num_shared_experts = 1,
                                                       .activation = ExpertActivation::kSwiGlu,
                                                       .capacity_factor = parts.capacity_factor}));
    if (parts.experts != nullptr) experts->cut(*parts.experts);
  }
  BlockOutput forward(const torch::Tensor& x) {
    const auto mixed = experts->forward(norm(x));
    return {x + mixed.output, mixed.balance_loss, mixed.z_loss};
  }

  torch::nn::LayerNorm norm{nullptr};
  MixtureOfExperts experts{nullptr};
};
TORCH_MODULE(ExpertBlock);

/// A language model without attention, with one layer of experts.
struct ExpertNetImpl : torch::nn::Module {
  explicit ExpertNetImpl(const ExpertNetParts& parts) : recomputes(parts.recomputes), block(parts) {
    embedding = register_module("embedding", wave_embedding(1));
    head = register_module("head", wave_linear(kFeatures, kVocabulary, 4));
    if (parts.shards == nullptr) {
      register_module("block", block);
      return;
    }
    unit = register_module("block", std::make_shared<ShardedModule>(block.ptr(), along(*parts.shards)));
    auto whole_head = head;
    head_unit =
        replace_module("head", std::make_shared<ShardedModule>(whole_head.ptr(), along(*parts.shards)));
  }

  /// Returns the losses of each example.
  torch::Tensor forward(const torch::Tensor& ids, const torch::Tensor& targets) {
    const auto compute = [block = block](const torch::Tensor& x) { return block.ptr()->forward(x); };
    const auto run = [this, compute](const torch::Tensor& x) {
      return unit != nullptr ? unit->call(compute, x) : compute(x);
    };
    const auto x = embedding(ids);
    const auto [y, balance, z] = recomputes ? recompute(run, x) : run(x);
    const auto project = [own = head](const torch::Tensor& in) { return own.ptr()->forward(in); };
    const auto logits = head_unit != nullptr ? head_unit->call(project, y) : project(y);
    const auto losses =
        at::cross_entropy_loss(logits.flatten(0, -2), targets.flatten(), {}, at::Reduction::None);
    return losses.view(targets.sizes()).mean(1) + 0.1 * balance + 0.01 * z;
  }

  bool recomputes = false;
  torch::nn::Embedding embedding{nullptr};
  ExpertBlock block{nullptr};
  torch::nn::Linear head{nullptr};
  std::shared_ptr<ShardedModule> unit, head_unit;
};
TORCH_MODULE(ExpertNet);

struct ExpertStepResult {
  double loss = 0;
  torch::Tensor norm;
  torch::Tensor load, dropped;  ///< over all replicas
};

/// A step in two accumulated parts, with clipping. Replicas have different numbers of examples.
inline ExpertStepResult expert_step(ReplicaContext& replica, ExpertNet& net, torch::optim::AdamW& optimizer,
                                    int step) {
  optimizer.zero_grad();
  constexpr int64_t kExamples = 10;
  const auto [ids, targets] = examples_of_step(step, kExamples);
  const int64_t replicas = replica.num_replicas();
  const int64_t begin = replica.replica_id() * kExamples / replicas;
  const int64_t end = (replica.replica_id() + 1) * kExamples / replicas;
  net->block->experts->reset_statistics();
  double loss = 0;
  const auto backward = [&, ids = ids, targets = targets](int64_t first, int64_t last) {
    const auto losses = net->forward(ids.slice(0, first, last), targets.slice(0, first, last));
    const auto sum = losses.sum() / kExamples;
    sum.backward();
    loss += sum.item<double>();
  };
  {
    const auto held = replica.accumulate();
    backward(begin, begin + 1);
  }
  backward(begin + 1, end);
  const auto statistics = net->block->experts->statistics();
  const auto sum = [&](const torch::Tensor& own) { return replica.all_reduce(ReduceOp::kSum, own); };
  return {loss, replica.apply_gradients(optimizer, {.clip_norm = 0.05}), sum(statistics.load),
          sum(statistics.dropped)};
}

struct ExpertRun {
  std::vector<std::pair<std::string, torch::Tensor>> parameters;
  std::vector<ExpertStepResult> steps;
};

inline ExpertRun experts_on_one_device(int steps, std::optional<double> capacity_factor = std::nullopt) {
  MirroredStrategy strategy(cpu_devices(1), {.intra_op_threads = 1, .seed = 3});
  auto model = strategy.scope(
      [&](ReplicaContext&) { return ExpertNet(ExpertNetParts{.capacity_factor = capacity_factor}); });
  auto adam = strategy.scope([&](ReplicaContext& replica) { return parallel_adam(model[replica]); });
  ExpertRun run;
  for (int step = 0; step < steps; ++step)
    run.steps.push_back(strategy.run(expert_step, model, adam, step)[0]);
  for (const auto& item : model.primary()->named_parameters())
    run.parameters.emplace_back(item.key(), item.value().detach().clone());
  return run;
}

/// Returns the largest difference of a rank's parameters from its slices of the whole ones.
inline double difference_of_slices(ExpertNet& net, const ExpertRun& whole) {
  double most = 0;
  const auto own = net->named_parameters();
  TORCH_CHECK(own.size() == whole.parameters.size());
  for (const auto& [name, expected] : whole.parameters) {
    const auto& parameter = own[name];
    const auto* slice = sharded_parameter_of(parameter);
    const auto part =
        slice == nullptr ? expected : expected.flatten().narrow(0, slice->offset, slice->length);
    if (part.numel() > 0) most = std::max(most, (part - parameter).abs().max().item<double>());
  }
  return most;
}

}  // namespace lockstep
