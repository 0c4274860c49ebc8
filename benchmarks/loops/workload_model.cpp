#include "lockstep/benchmarks/loops/workload_model.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "lockstep/strategies/nn/recompute.h"
#include "lockstep/strategies/pipeline/pipeline_schedule.h"

namespace lockstep::benchmarks {
namespace {

GptOptions gpt_options(const Workload& workload) {
  return {.vocabulary_size = kVocabularySize,
          .max_length = workload.sequence_length,
          .num_layers = workload.num_layers,
          .num_heads = workload.width / kHeadWidth,
          .width = workload.width};
}

/// Returns the first block of each stage but the first. Blocks are the embeddings, the layers and the head.
std::vector<size_t> cuts_of(const Workload& workload, int ranks) {
  const int stages = make_pipeline_schedule(workload.schedule, ranks, workload.micro_batches).num_stages();
  if (workload.num_layers < stages) {
    throw std::invalid_argument("[benchmark] expected at least a layer for each of " +
                                std::to_string(stages) + " stages, but got " +
                                std::to_string(workload.num_layers));
  }
  std::vector<size_t> cuts;
  for (int stage = 1; stage < stages; ++stage)
    cuts.push_back(static_cast<size_t>(1 + workload.num_layers * stage / stages));
  return cuts;
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

WorkloadModelImpl::WorkloadModelImpl(Workload workload, const GptAxes& axes)
    : workload_(std::move(workload)) {
  take_tokens(Gpt(gpt_options(workload_), axes));
}

std::shared_ptr<WorkloadModelImpl> WorkloadModelImpl::in_stages(Workload workload, const ReplicaAxis& axis) {
  const GptAxes axes{.stages = &axis,
                     .pipeline = {.schedule = workload.schedule,
                                  .micro_batches = workload.micro_batches,
                                  .cuts = cuts_of(workload, axis.size())}};
  std::shared_ptr<WorkloadModelImpl> model(new WorkloadModelImpl(std::move(workload), axes));
  model->draw_known_weights();
  return model;
}

/// Biases and norms have values without randomness already.
void WorkloadModelImpl::draw_known_weights() {
  const torch::NoGradGuard no_grad;
  uint64_t number = 0;
  for (const auto& parameter : parameters()) {
    if (parameter.dim() < 2) continue;
    const auto generator = at::detail::createCPUGenerator(++number);
    // Those of other ranks are empty.
    if (parameter.numel() > 0) parameter.copy_(at::normal(0, 0.02, parameter.sizes(), generator));
  }
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

torch::Tensor WorkloadModelImpl::forward_backward(ReplicaContext& replica,
                                                  const torch::data::Example<>& batch) {
  const auto dtype = workload_.bfloat16 ? torch::kBFloat16 : torch::kFloat;
  return tokens_->forward_backward(replica, batch.data, batch.target, {.autocast = dtype});
}

torch::Tensor WorkloadModelImpl::mean_loss(const torch::data::Example<>& batch) {
  return cross_entropy(batch, at::Reduction::Mean);
}

}  // namespace lockstep::benchmarks
