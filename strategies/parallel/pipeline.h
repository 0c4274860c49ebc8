#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "lockstep/strategies/parallel/pipeline_stages.h"

namespace lockstep {

/// A model whose blocks are the stages of a pipeline along an axis of the mesh; see PipelineStages. The model
/// is a torch::nn::Sequential, of which each module maps one tensor to one, or consists of blocks otherwise.
///
/// Example:
///
///     auto model = strategy.scope([](ReplicaContext& replica) {  // of a mesh data=2,pipeline=2
///       torch::nn::Sequential layers(torch::nn::Linear(8, 64), torch::nn::Tanh(), torch::nn::Linear(64, 1));
///       return Pipeline(replica.axis("pipeline"), layers, PipelineOptions{.micro_batches = 8});
///     });
///     // In a run, in place of forward and backward:
///     const auto squares = [](const torch::Tensor& output, const torch::Tensor& target) {
///       return (output - target).square();
///     };
///     model->forward_backward(replica, batch.data, batch.target, {.losses = squares});
///
/// For a model with blocks of its own:
///
///     MobileNetV2 whole(options);
///     return Pipeline(replica.axis("pipeline"), whole.ptr(), whole->blocks());
class PipelineImpl : public torch::nn::Module, public ReplicaBound {
 public:
  /// Names of parameters, and so checkpoints, are those of `blocks`. Throws as PipelineStages does.
  PipelineImpl(const ReplicaAxis& axis, const torch::nn::Sequential& blocks, PipelineOptions options = {});
  /// Names of parameters and buffers, and so checkpoints, are those of `model`, which lives as long as this.
  /// Throws InvalidArgument naming a parameter of the model that no block has, and as PipelineStages does.
  PipelineImpl(const ReplicaAxis& axis, std::shared_ptr<torch::nn::Module> model,
               std::vector<PipelineBlock> blocks, PipelineOptions options = {});

  /// See PipelineStages::forward_backward().
  PipelineResult forward_backward(ReplicaContext& replica, const torch::Tensor& input,
                                  const torch::Tensor& target, const PipelinePass& pass) {
    return stages_.forward_backward(replica, input, target, pass);
  }
  /// See PipelineStages::forward().
  torch::Tensor forward(const torch::Tensor& input) { return stages_.forward(input); }
  /// See PipelineStages::stream(). Trainers evaluate and predict by it.
  void stream(const PipelineInputs& inputs,
              const std::function<void(size_t batch, const torch::Tensor& result)>& take) {
    stages_.stream(inputs, take);
  }

  PipelineStages& stages() { return stages_; }

  void train(bool on = true) override;
  void bind(std::shared_ptr<const ReplicaCollectives> replica) override { stages_.bind(std::move(replica)); }
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Device device, bool non_blocking = false) override;

 private:
  std::shared_ptr<torch::nn::Module> model_;  ///< null: a Sequential, whose modules alone are called
  PipelineStages stages_;
};
TORCH_MODULE(Pipeline);

}  // namespace lockstep
