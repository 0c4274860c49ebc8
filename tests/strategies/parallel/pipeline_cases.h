#pragma once

#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/types.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/strategies/nn/recompute.h"
#include "lockstep/strategies/parallel/parallel_linear.h"
#include "lockstep/strategies/parallel/pipeline_stages.h"
#include "lockstep/strategies/sharding/sharded_module.h"
#include "lockstep/tests/strategies/parallel/parallel_cases.h"

namespace lockstep {

struct StagedNetOptions {
  int num_blocks = 6;
  double dropout = 0;
  bool recomputes = false;
  PipelineOptions pipeline{};
  const ReplicaAxis* stages = nullptr;  ///< null: one device
  const ReplicaAxis* parts = nullptr;   ///< along which layers are cut; null: they are not
  std::optional<UnitOptions> units{};   ///< none: blocks are no sharded units
};

/// A linear layer, whole or cut, as a module that maps one tensor to one.
struct StagedBlockImpl : torch::nn::Module {
  StagedBlockImpl(int place, const ReplicaAxis* parts) {
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kFeatures})));
    norm->to(torch::kDouble);
    const auto up = wave_linear(kFeatures, kHidden, 2 + place);
    const auto down = wave_linear(kHidden, kFeatures, 3 + place);
    if (parts != nullptr) {
      cut_up = register_module("up", ColumnParallelLinear(*parts, up));
      cut_down = register_module("down", RowParallelLinear(*parts, down));
    } else {
      whole_up = register_module("up", up);
      whole_down = register_module("down", down);
    }
  }
  torch::Tensor forward(const torch::Tensor& x, double dropout) {
    const auto inner = norm(x);
    const auto hidden =
        cut_up.is_empty() ? whole_down(torch::gelu(whole_up(inner))) : cut_down(torch::gelu(cut_up(inner)));
    return x + torch::dropout(hidden, dropout, is_training());
  }

  torch::nn::LayerNorm norm{nullptr};
  ColumnParallelLinear cut_up{nullptr};
  RowParallelLinear cut_down{nullptr};
  torch::nn::Linear whole_up{nullptr};
  torch::nn::Linear whole_down{nullptr};
};
TORCH_MODULE(StagedBlock);

/// A language model without attention, whose last layer has the table of the first one. Its blocks are stages
/// of a pipeline, or follow one another on one device: the oracle.
struct StagedNetImpl : torch::nn::Module, ReplicaBound {
  explicit StagedNetImpl(const StagedNetOptions& options) {
    std::vector<PipelineBlock> blocks;
    const auto table = wave_embedding(1);
    const auto table_module = wrapped("table", table.ptr(), options);
    blocks.push_back({"table", {table_module}, call(table_module, [table](const torch::Tensor& ids) {
                        return torch::embedding(table->weight, ids);
                      })});
    for (int i = 0; i < options.num_blocks; ++i) {
      const std::string name = "block" + std::to_string(i);
      StagedBlock block(i, options.parts);
      const auto module = wrapped(name, block.ptr(), options);
      auto forward = call(module, [block, dropout = options.dropout](const torch::Tensor& x) {
        auto own = block;
        return own->forward(x, dropout);
      });
      if (options.recomputes) forward = [forward](const torch::Tensor& x) { return recompute(forward, x); };
      blocks.push_back({name, {module}, forward});
    }
    auto bias = std::make_shared<torch::nn::Module>("Bias");
    bias->register_parameter("bias", wave_values({kVocabulary}, 5));
    const auto bias_module = register_module("head", bias);
    blocks.push_back({"head", {bias_module, table_module}, [=](const torch::Tensor& x) {
                        const auto logits = call(table_module, [table](const torch::Tensor& in) {
                          return torch::linear(in, table->weight);
                        });
                        return logits(x) + bias_module->named_parameters()["bias"];
                      }});
    if (options.stages != nullptr) {
      stages = std::make_unique<PipelineStages>(*options.stages, std::move(blocks), options.pipeline);
    } else {
      functions = std::move(blocks);
    }
  }

  static torch::Tensor losses_of(const torch::Tensor& logits, const torch::Tensor& targets) {
    return at::cross_entropy_loss(logits.flatten(0, -2), targets.flatten(), {}, at::Reduction::None)
        .view(targets.sizes());
  }
  torch::Tensor logits(const torch::Tensor& ids) {
    torch::Tensor x = ids;
    for (const auto& block : functions) x = block.forward(x);
    return x;
  }

  void bind(std::shared_ptr<const ReplicaCollectives> replica) override {
    if (stages != nullptr) stages->bind(std::move(replica));
  }
  void to(torch::Device device, bool non_blocking = false) override {
    torch::nn::Module::to(device, non_blocking);
    if (stages != nullptr) stages->moved();
  }

  std::unique_ptr<PipelineStages> stages;
  std::vector<PipelineBlock> functions;

 private:
  std::shared_ptr<torch::nn::Module> wrapped(const std::string& name,
                                             const std::shared_ptr<torch::nn::Module>& module,
                                             const StagedNetOptions& options) {
    if (!options.units) return register_module(name, module);
    UnitOptions units = *options.units;
    units.name = name;
    return register_module(name, std::make_shared<ShardedModule>(module, units));
  }
  static std::function<torch::Tensor(const torch::Tensor&)> call(
      const std::shared_ptr<torch::nn::Module>& module,
      std::function<torch::Tensor(const torch::Tensor&)> function) {
    const auto unit = std::dynamic_pointer_cast<ShardedModule>(module);
    if (unit == nullptr) return function;
    return [unit, function](const torch::Tensor& x) { return unit->call(function, x); };
  }
};
TORCH_MODULE(StagedNet);

/// The examples of a replica in a step, in which replicas have different numbers of them.
inline std::pair<torch::Tensor, torch::Tensor> uneven_examples(const ReplicaContext& replica, int step,
                                                               int64_t count) {
  const auto [ids, targets] = examples_of_step(step, count);
  const int64_t begin = count * replica.replica_id() / replica.num_replicas();
  const int64_t end = count * (replica.replica_id() + 1) / replica.num_replicas();
  return {ids.narrow(0, begin, end - begin), targets.narrow(0, begin, end - begin)};
}

/// Trains the whole net on one device: the oracle.
inline ParallelRun trained_unstaged(int steps, int64_t count, const StagedNetOptions& options = {}) {
  StagedNet net(options);
  auto adam = parallel_adam(net);
  ParallelRun run;
  for (int step = 0; step < steps; ++step) {
    adam.zero_grad();
    const auto [ids, targets] = examples_of_step(step, count);
    const auto loss = StagedNetImpl::losses_of(net->logits(ids), targets).sum() / count;
    loss.backward();
    run.norms.push_back(torch::nn::utils::clip_grad_norm_(net->parameters(), 0.5));
    adam.step();
    run.losses.push_back(loss.item<double>());
  }
  for (const auto& item : net->named_parameters())
    run.parameters.emplace_back(item.key(), item.value().detach().clone());
  return run;
}

}  // namespace lockstep
