#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/benchmarks/planning/planned_training.h"
#include "lockstep/models/parts/model_parts.h"
#include "lockstep/runtime/replicas/replica_context.h"

namespace lockstep::benchmarks {

using PlannedBatch = std::vector<torch::Tensor>;

/// Makes the model, cut along the training's axes if there is a `replica`, and in stages if `has_stages`.
std::shared_ptr<torch::nn::Module> make_planned_model(const PlannedTraining& training,
                                                      const PartWrapper& wrap, ReplicaContext* replica,
                                                      bool has_stages);
PlannedBatch make_planned_batch(const PlannedTraining& training, int64_t examples);
/// Returns the loss of each example, or along a context axis this rank's part of it, computed in the
/// training's precision. The model has no stages.
torch::Tensor planned_losses(const PlannedTraining& training, torch::nn::Module& model,
                             const PlannedBatch& batch);
/// Goes forward and backward through a model with stages.
void train_planned_stages(const PlannedTraining& training, ReplicaContext& replica, torch::nn::Module& model,
                          const PlannedBatch& batch);
std::unique_ptr<torch::optim::Optimizer> make_planned_optimizer(const PlannedTraining& training,
                                                                const std::vector<torch::Tensor>& parameters);

/// Returns the costs of blocks by which the model cuts itself into stages; empty: the bytes of parameters.
std::vector<double> stage_costs(const PlannedTraining& training);
/// The blocks that are computed again begin with it: the layers of a Gpt, and all blocks of an image model
/// but the last.
std::string recomputed_prefix(PlannedModel model);
/// The axis over which batches are cut.
std::string batch_axis(const PlannedTraining& training);

}  // namespace lockstep::benchmarks
