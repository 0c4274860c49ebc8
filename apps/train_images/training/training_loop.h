#pragma once

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "lockstep/apps/shared/precision/precision_choice.h"
#include "lockstep/apps/train_images/training/misclassified.h"
#include "lockstep/apps/train_images/training/optimizer_choice.h"
#include "lockstep/apps/train_images/training/training.h"
#include "lockstep/training/callbacks/learning_rate_finder.h"
#include "lockstep/training/callbacks/refresh_batch_norm.h"
#include "lockstep/training/checkpoints/weights_file.h"
#include "lockstep/training/metrics/confusion_matrix.h"
#include "lockstep/training/metrics/loss_functions.h"
#include "lockstep/training/trainer/trainer.h"

namespace lockstep::apps {

/// The rest of a training of a model that computes in its own way.
template <typename Model>
struct OwnComputation {
  ForwardBackward<Model, Example> forward_backward;            ///< Empty: forward, the losses, and backward.
  std::function<Callbacks(const Mirrored<Model>&)> callbacks;  ///< Empty: no more than those of the run.
};

/// Trains one model. An epoch is a fixed number of steps of an endless stream of batches.
template <typename Model>
History train_model(const TrainingRun& run, const std::function<Model(ReplicaContext&)>& make_model,
                    const OwnComputation<Model>& own = {}) {
  const auto& options = run.options;
  const auto dtype = parameter_dtype(options.precision);
  const auto make_in_dtype = [&](ReplicaContext& replica) {
    auto model = make_model(replica);
    model->to(dtype);
    return model;
  };
  Trainer<Model> trainer(run.strategy, make_in_dtype,
                         [&](std::vector<torch::Tensor> parameters) {
                           return make_optimizer(options, run.plan.learning_rate, std::move(parameters));
                         },
                         cross_entropy, {{"accuracy", CategoricalAccuracy()}},
                         {.autocast = autocast_dtype(options.precision),
                          .cuda_graph = options.cuda_graph,
                          .evaluation_metrics = {{"confusion", ConfusionMatrix(run.data.num_classes)}},
                          .forward_backward = own.forward_backward});
  if (!options.init_weights.empty())
    run.on_weights(init_weights(trainer.model(), options.init_weights, {.strict = options.strict}));
  run.on_start(*trainer.model().primary());
  const auto in_dtype = [dtype](const DistributedDataset<Example>& batches) {
    if (dtype == torch::kFloat) return batches;
    return batches.map([dtype](const Example& shard) {
      const auto& target = shard.target;
      return Example{shard.data.to(dtype), target.is_floating_point() ? target.to(dtype) : target};
    });
  };
  const DistributeOptions in_order{.global_batch_size = run.plan.global_batch_size};
  const auto training_batches = [&](std::shared_ptr<InputTimes> times) {
    auto shuffled = in_order;
    shuffled.shuffle_seed = options.seed;
    shuffled.times = std::move(times);
    if (options.augment == AugmentationChoice{})
      return in_dtype(distribute(run.strategy, run.data.train, shuffled));
    return in_dtype(distribute_augmented(run.strategy, run.data.train,
                                         augmentation_of(options, run.data.num_classes), shuffled));
  };
  auto images = training_batches(run.input_times);
  if (options.find_learning_rate) {
    run.on_sweep(find_learning_rate(trainer, images));
    return {};
  }
  auto test_images = in_dtype(distribute(run.strategy, run.data.test, in_order));
  FitOptions<> fit{.epochs = options.epochs,
                   .steps_per_epoch = run.plan.steps_per_epoch,
                   .validation = test_images,
                   .callbacks = run.callbacks,
                   .micro_batches = own.forward_backward ? 1 : run.plan.micro_batches};
  if (run.plan.refreshes_batch_norm) {
    fit.callbacks.push_back(refresh_batch_norm(trainer.model(), training_batches(nullptr),
                                               {.max_batches = std::min(run.plan.steps_per_epoch, kFewSteps),
                                                .autocast = autocast_dtype(options.precision)}));
  }
  if (own.callbacks)
    for (auto& callback : own.callbacks(trainer.model())) fit.callbacks.push_back(callback);
  if (options.clip_norm > 0) fit.clip_norm = options.clip_norm;
  auto history = trainer.fit(images, fit);
  if (run.is_recorded && !run.is_interrupted()) record_misclassified(run, trainer.predict(test_images));
  return history;
}

}  // namespace lockstep::apps
