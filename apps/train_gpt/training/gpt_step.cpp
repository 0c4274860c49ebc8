#include "lockstep/apps/train_gpt/training/gpt_step.h"

#include <optional>
#include <utility>

#include "lockstep/apps/shared/precision/precision_choice.h"
#include "lockstep/strategies/nn/recompute.h"
#include "lockstep/training/metrics/loss_functions.h"

namespace lockstep::apps {
namespace {

GptBlockRunner recomputing_runner(const GptTrainOptions& options) {
  // Only dropout draws random numbers.
  const RecomputeOptions recompute_options{.restores_random_state = options.dropout > 0};
  return [recompute_options](const PartFunction& block, const torch::Tensor& x) {
    return recompute(recompute_options, block, x);
  };
}

}  // namespace

Gpt make_gpt(const GptTrainOptions& options, const GptOptions& model_options, PartWrapper wrap) {
  Gpt model(model_options, std::move(wrap));
  model->to(parameter_dtype(options.precision));
  if (options.recompute == GptRecompute::kEveryBlock) model->set_block_runner(recomputing_runner(options));
  return model;
}

torch::Tensor sequence_losses(Gpt& model, const Example& batch) {
  const auto logits = model->forward(batch.data);
  const auto losses = cross_entropy(logits.flatten(0, 1), batch.target.flatten());
  return losses.view(batch.target.sizes()).mean(1);
}

DistributeOptions gpt_batches(const GptTrainOptions& options, const GptPlan& plan) {
  const bool is_drawn = is_generated(options);  // in random order already
  return {.global_batch_size = plan.global_batch_size,
          .shuffle_seed = is_drawn ? std::nullopt : std::optional(options.seed),
          .shuffle_window = options.shuffle_window};
}

}  // namespace lockstep::apps
