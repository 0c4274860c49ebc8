#include "lockstep/benchmarks/loops/workload_model.h"

#include <utility>

#include "lockstep/strategies/nn/recompute.h"

namespace lockstep::benchmarks {
namespace {

GptOptions gpt_options(const Workload& workload) {
  return {.vocabulary_size = kVocabularySize,
          .max_length = workload.sequence_length,
          .num_layers = workload.num_layers,
          .num_heads = workload.width / kHeadWidth,
          .width = workload.width};
}

}  // namespace

WorkloadModelImpl::WorkloadModelImpl(Workload workload, PartWrapper wrap)
    : workload_(std::move(workload)), wrap_(std::move(wrap)) {
  reset();
}

WorkloadModelImpl::WorkloadModelImpl(Workload workload, const ReplicaAxis& axis)
    : workload_(std::move(workload)) {
  take_tokens(Gpt(gpt_options(workload_), axis));
}

void WorkloadModelImpl::reset() {
  if (workload_.model == BenchmarkModel::kGpt) {
    take_tokens(Gpt(gpt_options(workload_), wrap_));
    return;
  }
  images_ = register_module(
      "images", MobileNetV2(MobileNetV2Options{.num_classes = kNumClasses,
                                               .head = workload_.dense_head ? MobileNetV2Head::kFlattenedDense
                                                                            : MobileNetV2Head::kGlobalAverage,
                                               .image_size = workload_.image_size}));
}

void WorkloadModelImpl::take_tokens(Gpt tokens) {
  tokens_ = register_module("tokens", std::move(tokens));
  if (workload_.recompute)
    tokens_->set_block_runner([](const auto& block, const auto& x) { return recompute(block, x); });
}

torch::Tensor WorkloadModelImpl::cross_entropy(const torch::data::Example<>& batch,
                                               at::Reduction::Reduction reduction) {
  if (tokens_.is_empty()) {
    return torch::cross_entropy_loss(images_->forward(batch.data), batch.target, {}, reduction);
  }
  // A model that is cut never has all logits.
  if (reduction == at::Reduction::None) return tokens_->losses(batch.data, batch.target);
  return torch::cross_entropy_loss(tokens_->forward(batch.data).flatten(0, 1), batch.target.flatten(), {},
                                   reduction);
}

torch::Tensor WorkloadModelImpl::losses(const torch::data::Example<>& batch) {
  const auto losses = cross_entropy(batch, at::Reduction::None);
  return tokens_.is_empty() ? losses : losses.mean(1);
}

torch::Tensor WorkloadModelImpl::mean_loss(const torch::data::Example<>& batch) {
  return cross_entropy(batch, at::Reduction::Mean);
}

}  // namespace lockstep::benchmarks
