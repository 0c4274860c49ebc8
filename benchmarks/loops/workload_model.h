#pragma once

#include <torch/data/example.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <memory>

#include "lockstep/benchmarks/loops/workload.h"
#include "lockstep/models/gpt/gpt.h"
#include "lockstep/models/mobilenet_v2.h"
#include "lockstep/models/parts/model_parts.h"

namespace lockstep::benchmarks {

/// The model of a workload with its loss, the cross entropy: of an image's class, or of each token of a
/// sequence after the first.
class WorkloadModelImpl : public torch::nn::Cloneable<WorkloadModelImpl> {
 public:
  /// `wrap` gets the parts of a GPT; see Gpt.
  explicit WorkloadModelImpl(Workload workload, PartWrapper wrap = {});
  /// Makes this rank's part of a GPT that is cut along an axis of the mesh; see Gpt. It cannot be cloned.
  WorkloadModelImpl(Workload workload, const ReplicaAxis& axis);
  /// Makes this rank's stages of a GPT, of which each has equally many layers as far as possible. All
  /// programs that train it begin with the same weights, the peers' too: see gpt.py.
  static std::shared_ptr<WorkloadModelImpl> in_stages(Workload workload, const ReplicaAxis& axis);

  void reset() override;

  /// Returns the loss of each example, [N]: of a sequence the mean over its tokens.
  torch::Tensor losses(const torch::data::Example<>& batch);
  /// Returns the mean of losses(), as LibTorch computes it at once.
  torch::Tensor mean_loss(const torch::data::Example<>& batch);

  bool has_stages() { return !tokens_.is_empty() && tokens_->stages() != nullptr; }
  /// Returns the loss of each example, without gradients, after going backward through their mean. Only of a
  /// model that has stages.
  torch::Tensor forward_backward(ReplicaContext& replica, const torch::data::Example<>& batch);

 private:
  WorkloadModelImpl(Workload workload, const GptAxes& axes);

  void take_tokens(Gpt tokens);
  void draw_known_weights();
  /// Returns the loss of each class that is predicted, or their mean.
  torch::Tensor cross_entropy(const torch::data::Example<>& batch, at::Reduction::Reduction reduction);

  Workload workload_;
  PartWrapper wrap_;
  MobileNetV2 images_{nullptr};
  Gpt tokens_{nullptr};
};
TORCH_MODULE(WorkloadModel);

}  // namespace lockstep::benchmarks
