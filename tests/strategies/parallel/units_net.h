#pragma once

#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <memory>
#include <string>

#include "lockstep/strategies/sharding/sharded_module.h"
#include "lockstep/tests/strategies/parallel/parallel_cases.h"

namespace lockstep {

/// A ParallelNet whose cut layers are sharded units along another axis.
struct UnitsNetImpl : torch::nn::Module {
  UnitsNetImpl(const ReplicaAxis& tensor, const UnitOptions& options)
      : embedding(tensor, wave_embedding(1)),
        up(tensor, wave_linear(kFeatures, kHidden, 2)),
        down(tensor, wave_linear(kHidden, kFeatures, 3)),
        norm(torch::nn::LayerNormOptions({kFeatures})),
        head(tensor, wave_linear(kFeatures, kVocabulary, 4)) {
    const auto unit_of = [&](const char* name, const auto& layer) {
      return register_module(name, std::make_shared<ShardedModule>(layer.ptr(), options));
    };
    embedding_unit = unit_of("embedding", embedding);
    up_unit = unit_of("up", up);
    down_unit = unit_of("down", down);
    register_module("norm", norm);
    norm->to(torch::kDouble);
    head_unit = unit_of("head", head);
    loss = register_module("loss", VocabParallelCrossEntropy(tensor));
  }
  torch::Tensor forward(const torch::Tensor& ids, const torch::Tensor& targets) {
    const auto call = [](const std::shared_ptr<ShardedModule>& unit, auto& layer, const torch::Tensor& in) {
      return unit->call([&](const torch::Tensor& x) { return layer->forward(x); }, in);
    };
    const auto x = call(embedding_unit, embedding, ids);
    const auto hidden = norm(x + call(down_unit, down, torch::gelu(call(up_unit, up, x))));
    return loss(call(head_unit, head, hidden), targets).flatten();
  }

  VocabParallelEmbedding embedding;
  ColumnParallelLinear up;
  RowParallelLinear down;
  torch::nn::LayerNorm norm;
  ColumnParallelLinear head;
  std::shared_ptr<ShardedModule> embedding_unit, up_unit, down_unit, head_unit;
  VocabParallelCrossEntropy loss{nullptr};
};
TORCH_MODULE(UnitsNet);

/// Makes the net with units along `axis`, without drawing random numbers of the process.
inline UnitsNet make_units_net(ReplicaContext& replica, const std::string& axis) {
  return UnitsNet(replica.axis("tensor"), along(replica.axis(axis)));
}

}  // namespace lockstep
