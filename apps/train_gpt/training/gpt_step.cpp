#include "lockstep/apps/train_gpt/training/gpt_step.h"

#include <optional>
#include <string>
#include <utility>

#include "lockstep/apps/shared/precision/precision_choice.h"
#include "lockstep/apps/shared/strategy_choice/pipeline_axis.h"
#include "lockstep/apps/shared/strategy_choice/sharded_parts.h"
#include "lockstep/apps/train_gpt/training/gpt_axes.h"
#include "lockstep/models/gpt/gpt_flops.h"
#include "lockstep/strategies/nn/recompute.h"
#include "lockstep/strategies/parallel/block_costs.h"

namespace lockstep::apps {
namespace {

GptBlockRunner recomputing_runner(const GptTrainOptions& options) {
  // Only dropout draws random numbers.
  const RecomputeOptions recompute_options{.restores_random_state = options.dropout > 0};
  return [recompute_options](const PartFunction& block, const torch::Tensor& x) {
    return recompute(recompute_options, block, x);
  };
}

/// Returns the parts of the sequences' mean losses that are those of this rank's tokens.
torch::Tensor means_of_sequences(const torch::Tensor& losses, const Example& batch) {
  const int64_t length = batch.data.size(1);
  return losses.size(1) == length ? losses.mean(1) : losses.sum(1) / length;
}

Gpt prepared(const GptTrainOptions& options, Gpt model) {
  model->to(parameter_dtype(options.precision));
  if (options.recompute == GptRecompute::kEveryBlock) model->set_block_runner(recomputing_runner(options));
  return model;
}

}  // namespace

Gpt make_gpt(const GptTrainOptions& options, const GptOptions& model_options) {
  return prepared(options, Gpt(model_options));
}

Gpt make_gpt(const GptTrainOptions& options, const GptPlan& plan, const Strategy& strategy,
             ReplicaContext& replica) {
  const std::string stages = axis_of_pipeline(strategy.mesh());
  const std::string parts = axis_of_parts(strategy.mesh());
  const std::string tokens = axis_of_tokens(strategy.mesh());
  const std::string experts = axis_of_experts(strategy.mesh());
  GptAxes axes{.context_method = options.context_attention == GptContextAttention::kAllToAll
                                     ? ContextMethod::kAllToAll
                                     : ContextMethod::kRing};
  if (!parts.empty()) axes.parts = &replica.axis(parts);
  if (!tokens.empty()) axes.tokens = &replica.axis(tokens);
  if (!experts.empty()) axes.experts = &replica.axis(experts);
  if (!stages.empty()) {
    axes.stages = &replica.axis(stages);
    axes.pipeline = pipeline_options(options, plan.micro_batches, plan.stage_costs);
  }
  const GptCutOptions cut{.shard_sequence = options.sequence_parallel};
  return prepared(options, Gpt(plan.model, axes, cut, sharded_parts(strategy, replica)));
}

std::vector<double> gpt_stage_costs(const GptTrainOptions& options, const GptPlan& plan, Strategy& strategy) {
  if (axis_of_pipeline(strategy.mesh()).empty()) return {};
  if (options.pipeline_cut != "time") return gpt_block_flops(plan.model, plan.sequence_length);
  const auto make = [&](ReplicaContext&) {
    Gpt whole(plan.model);
    whole->to(parameter_dtype(options.precision));
    return ModelOfBlocks{whole.ptr(), whole->blocks()};
  };
  const int64_t pieces = plan.micro_batches * strategy.num_replicas_in_sync();
  const int64_t sequences = (plan.global_batch_size + pieces - 1) / pieces;
  const auto tokens = torch::arange(sequences * plan.sequence_length)
                          .remainder(plan.model.vocabulary_size)
                          .view({sequences, plan.sequence_length});
  return measure_block_costs(strategy, make, tokens, {.autocast = autocast_dtype(options.precision)});
}

torch::Tensor trained_losses(const GptTrainOptions& options, Gpt& model, const Example& batch) {
  if (!model->is_training() || model->options().num_experts == 0) return sequence_losses(model, batch);
  const auto all = model->losses_with_routing(batch.data, batch.target);
  const auto added = options.balance_loss * all.balance_losses + options.router_z_loss * all.z_losses;
  // Only its gradient: what is reported is the cross entropy.
  return means_of_sequences(all.losses, batch) + (added - added.detach());
}

torch::Tensor sequence_losses(Gpt& model, const Example& batch) {
  return means_of_sequences(model->losses(batch.data, batch.target), batch);
}

torch::Tensor train_stages(const GptTrainOptions& options, ReplicaContext& replica, Gpt& model,
                           const Example& batch, const BackwardOptions& how) {
  return model->forward_backward(replica, batch.data, batch.target,
                                 {.balance_loss = options.balance_loss,
                                  .z_loss = options.router_z_loss,
                                  .autocast = how.autocast,
                                  .scaler = how.scaler});
}

DistributeOptions gpt_batches(const GptTrainOptions& options, const GptPlan& plan) {
  const bool is_drawn = is_generated(options);  // in random order already
  return {.global_batch_size = plan.global_batch_size,
          .shuffle_seed = is_drawn ? std::nullopt : std::optional(options.seed),
          .shuffle_window = options.shuffle_window};
}

}  // namespace lockstep::apps
