#pragma once

// Internal: for the source of each model.

#include <functional>

#include "lockstep/apps/train_mnist/optimizer_choice.h"
#include "lockstep/apps/train_mnist/precision_choice.h"
#include "lockstep/apps/train_mnist/training.h"
#include "lockstep/training/confusion_matrix.h"
#include "lockstep/training/loss_functions.h"
#include "lockstep/training/trainer.h"

namespace lockstep::apps {

/// One model's training: an epoch is so many steps of an endless stream of batches.
template <typename Model>
History train_model(const TrainingRun& run, const std::function<Model(ReplicaContext&)>& make_model) {
  const auto& options = run.options;
  Trainer<Model> trainer(run.strategy, make_model,
                         [&](std::vector<torch::Tensor> parameters) {
                           return make_optimizer(options, run.plan.learning_rate, std::move(parameters));
                         },
                         cross_entropy, {{"accuracy", CategoricalAccuracy()}},
                         {.autocast = autocast_dtype(options.precision),
                          .cuda_graph = options.cuda_graph,
                          .evaluation_metrics = {{"confusion", ConfusionMatrix(run.data.num_classes)}}});
  run.on_start(*trainer.model().primary());
  auto images = distribute(run.strategy, run.data.train,
                           {.global_batch_size = run.plan.global_batch_size, .shuffle_seed = options.seed});
  return trainer.fit(images, {.epochs = options.epochs,
                              .steps_per_epoch = run.plan.steps_per_epoch,
                              .validation = distribute(run.strategy, run.data.test,
                                                       {.global_batch_size = run.plan.global_batch_size}),
                              .callbacks = run.callbacks});
}

}  // namespace lockstep::apps
