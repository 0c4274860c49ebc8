#include "lockstep/benchmarks/planning/planned_model.h"

#include "lockstep/models/gpt/gpt.h"
#include "lockstep/models/gpt/gpt_flops.h"
#include "lockstep/models/mobilenet_v2.h"
#include "lockstep/models/simple_cnn.h"
#include "lockstep/runtime/precision/autocast.h"
#include "lockstep/strategies/parallel/pipeline.h"
#include "lockstep/training/metrics/loss_functions.h"
#include "lockstep/training/optimizers/fused_adam.h"
#include "lockstep/training/optimizers/fused_sgd.h"

namespace lockstep::benchmarks {
namespace {

using Model = std::shared_ptr<torch::nn::Module>;

constexpr int64_t kClasses = 10;

PipelineOptions pipeline_options(const PlannedTraining& training) {
  const auto& pipeline = training.layout.pipeline;
  return {.schedule = pipeline.schedule,
          .micro_batches = static_cast<int>(training.layout.micro_batches),
          .stages_per_rank = pipeline.stages_per_rank};
}

GptOptions gpt_options(const PlannedTraining& training) {
  return {.vocabulary_size = training.vocabulary,
          .max_length = training.size,
          .num_layers = training.layers,
          .num_heads = 4,
          .width = training.width,
          .hidden_width = training.experts > 0 ? 2 * training.width : 0,
          .has_tied_head = training.has_tied_head,
          .num_experts = training.experts};
}

Model make_gpt(const PlannedTraining& training, const PartWrapper& wrap, ReplicaContext* replica,
               bool has_stages) {
  const GptOptions options = gpt_options(training);
  if (replica == nullptr) return Gpt(options, wrap).ptr();
  GptAxes axes;
  if (training.tensor > 1) axes.parts = &replica->axis("tensor");
  if (training.context > 1) axes.tokens = &replica->axis("context");
  if (training.shares_experts) axes.experts = &replica->axis("expert");
  if (has_stages) {
    axes.stages = &replica->axis("pipeline");
    axes.pipeline = pipeline_options(training);
  }
  return Gpt(options, axes, GptCutOptions{.shard_sequence = training.shards_sequence}, wrap).ptr();
}

template <typename Net>
Model in_stages(const PlannedTraining& training, const Net& net, ReplicaContext* replica, bool has_stages) {
  if (!has_stages) return net.ptr();
  return Pipeline(replica->axis("pipeline"), net.ptr(), net->blocks(), pipeline_options(training)).ptr();
}

at::ScalarType precision_of(const PlannedTraining& training) {
  return training.is_bfloat16 ? torch::kBFloat16 : torch::kFloat;
}

}  // namespace

Model make_planned_model(const PlannedTraining& training, const PartWrapper& wrap, ReplicaContext* replica,
                         bool has_stages) {
  switch (training.model) {
    case PlannedModel::kGpt:
      return make_gpt(training, wrap, replica, has_stages);
    case PlannedModel::kMobileNet: {
      const MobileNetV2Options options{.num_classes = kClasses,
                                       .width_multiplier = static_cast<double>(training.width) / 100,
                                       .image_size = training.size};
      return in_stages(training, MobileNetV2(options, wrap), replica, has_stages);
    }
    case PlannedModel::kSimpleCnn: {
      const SimpleCnnOptions options{.num_classes = kClasses, .image_size = training.size};
      return in_stages(training, SimpleCnn(options, wrap), replica, has_stages);
    }
  }
  return nullptr;
}

PlannedBatch make_planned_batch(const PlannedTraining& training, int64_t examples) {
  if (training.model == PlannedModel::kGpt) {
    const auto tokens = [&] {
      return torch::randint(training.vocabulary, {examples, training.size}, torch::kLong);
    };
    return {tokens(), tokens()};
  }
  const int64_t channels = training.model == PlannedModel::kMobileNet ? 3 : 1;
  return {torch::rand({examples, channels, training.size, training.size}),
          torch::randint(kClasses, {examples}, torch::kLong)};
}

torch::Tensor planned_losses(const PlannedTraining& training, torch::nn::Module& model,
                             const PlannedBatch& batch) {
  const AutocastGuard cast(torch::kCPU, precision_of(training));
  if (auto* gpt = dynamic_cast<GptImpl*>(&model)) {
    const auto losses = gpt->losses(batch[0], batch[1]);
    return training.context == 1 ? losses.mean(1) : losses.sum(1) / training.size;
  }
  if (auto* net = dynamic_cast<MobileNetV2Impl*>(&model))
    return cross_entropy(net->forward(batch[0]), batch[1]);
  return cross_entropy(dynamic_cast<SimpleCnnImpl&>(model).forward(batch[0]), batch[1]);
}

void train_planned_stages(const PlannedTraining& training, ReplicaContext& replica, torch::nn::Module& model,
                          const PlannedBatch& batch) {
  if (auto* gpt = dynamic_cast<GptImpl*>(&model)) {
    gpt->forward_backward(replica, batch[0], batch[1], {.autocast = precision_of(training)});
    return;
  }
  const auto losses = [](const torch::Tensor& logits, const torch::Tensor& target) {
    return cross_entropy(logits, target);
  };
  dynamic_cast<PipelineImpl&>(model).forward_backward(
      replica, batch[0], batch[1],
      {.losses = losses, .autocast = precision_of(training), .returns_outputs = false});
}

std::unique_ptr<torch::optim::Optimizer> make_planned_optimizer(
    const PlannedTraining& training, const std::vector<torch::Tensor>& parameters) {
  constexpr double kRate = 1e-4, kMomentum = 0.9;
  switch (training.layout.optimizer) {
    case PlannedOptimizer::kSgd:
      return std::make_unique<FusedSgd>(parameters, FusedSgdOptions(kRate));
    case PlannedOptimizer::kMomentum:
      return std::make_unique<FusedSgd>(parameters, FusedSgdOptions(kRate).momentum(kMomentum));
    case PlannedOptimizer::kAdam:
      return std::make_unique<FusedAdam>(parameters, FusedAdamOptions(kRate));
    case PlannedOptimizer::kAdamW:
      return std::make_unique<FusedAdamW>(parameters, FusedAdamWOptions(kRate));
  }
  return nullptr;
}

std::vector<double> stage_costs(const PlannedTraining& training) {
  if (training.model != PlannedModel::kGpt) return {};
  return gpt_block_flops(gpt_options(training), training.size);
}

std::string recomputed_prefix(PlannedModel model) {
  if (model == PlannedModel::kGpt) return "blocks.";
  return model == PlannedModel::kMobileNet ? "features." : "convolution";
}

std::string batch_axis(const PlannedTraining& training) {
  return training.shares_experts ? "expert" : "data";
}

}  // namespace lockstep::benchmarks
