#pragma once

#include <torch/types.h>

#include <vector>

#include "lockstep/apps/train_gpt/options/gpt_plan.h"
#include "lockstep/apps/train_gpt/options/gpt_train_options.h"
#include "lockstep/models/gpt/gpt.h"
#include "lockstep/runtime/replicas/replica_context.h"
#include "lockstep/strategies/core/strategy.h"
#include "lockstep/strategies/input/batch_traits.h"
#include "lockstep/strategies/input/indexed_source.h"
#include "lockstep/training/trainer/trainer_step.h"

namespace lockstep::apps {

/// Makes the model of a training in the dtype of its precision. Its blocks are computed again in backward if
/// the options say so.
Gpt make_gpt(const GptTrainOptions& options, const GptOptions& model);
/// The same for a replica of the strategy, in a scope's factory. The model is cut along the axis tensor if
/// the mesh has it (see axis_of_parts()), computes with the rank's tokens if the mesh cuts sequences (see
/// axis_of_tokens()), ranks along the axis expert share its experts, and it consists of sharded units if the
/// strategy shards parameters. Ranks along the axis pipeline have stages of it, and compute the plan's
/// micro-batches.
Gpt make_gpt(const GptTrainOptions& options, const GptPlan& plan, const Strategy& strategy,
             ReplicaContext& replica);

/// Returns the costs of the model's blocks by which it is cut into stages: floating-point operations, or
/// seconds measured in a run of the strategy if the options say so. Empty for a mesh without stages.
std::vector<double> gpt_stage_costs(const GptTrainOptions& options, const GptPlan& plan, Strategy& strategy);

/// Returns the same losses as sequence_losses(). In training, their gradients are also those of the losses of
/// the experts' routers, times the options' factors.
torch::Tensor trained_losses(const GptTrainOptions& options, Gpt& model, const Example& batch);

/// Returns the mean cross entropy of each sequence's tokens, [B], in nats. If the ranks of a replica have
/// different tokens of the sequences, returns their parts of it, which add up.
torch::Tensor sequence_losses(Gpt& model, const Example& batch);

/// Goes forward and backward through a model in stages, with the gradients of trained_losses(), and returns
/// its losses.
torch::Tensor train_stages(const GptTrainOptions& options, ReplicaContext& replica, Gpt& model,
                           const Example& batch, const BackwardOptions& how);

/// Returns how the sequences to train on make up the global batches.
DistributeOptions gpt_batches(const GptTrainOptions& options, const GptPlan& plan);

}  // namespace lockstep::apps
