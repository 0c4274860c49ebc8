#include "lockstep/apps/train_gpt/training/train_gpt.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/apps/shared/precision/precision_choice.h"
#include "lockstep/apps/shared/session/pipeline_step_times.h"
#include "lockstep/apps/shared/strategy_choice/pipeline_axis.h"
#include "lockstep/apps/train_gpt/training/gpt_optimizer.h"
#include "lockstep/apps/train_gpt/training/gpt_routing.h"
#include "lockstep/apps/train_gpt/training/gpt_samples.h"
#include "lockstep/apps/train_gpt/training/gpt_step.h"
#include "lockstep/apps/train_gpt/training/gpt_weights_choice.h"
#include "lockstep/models/gpt/gpt.h"
#include "lockstep/training/callbacks/learning_rate_schedule.h"
#include "lockstep/training/metrics/loss_functions.h"
#include "lockstep/training/state/not_finite.h"
#include "lockstep/training/trainer/trainer.h"

namespace lockstep::apps {
namespace {

/// Gives each epoch its number of steps: the last one may have fewer.
class EpochSteps : public Callback {
 public:
  EpochSteps(const GptTrainOptions& options, const GptPlan& plan) : options_(options), plan_(plan) {}
  void on_epoch_begin(FitState& state) override {
    state.steps_per_epoch =
        steps_of_epoch(options_, plan_, {.epoch = state.epoch, .steps_done = state.global_step - state.step});
  }

 private:
  const GptTrainOptions& options_;
  const GptPlan& plan_;
};

}  // namespace

Callbacks gpt_step_callbacks(const GptTrainOptions& options, const GptPlan& plan) {
  return {
      std::make_shared<EpochSteps>(options, plan),
      std::make_shared<LearningRateSchedule>(options.learning_rate, [&options, &plan](const FitState& state) {
        return std::optional(learning_rate_share(options, plan, state.global_step));
      })};
}

History train_gpt(const GptTraining& training) {
  const auto& [strategy, options, plan, data, callbacks, input_times, on_start, on_sample, on_routing,
               on_not_finite_router, on_pipeline] = training;
  const bool has_stages = !axis_of_pipeline(strategy.mesh()).empty();
  const ForwardBackward<Gpt, Example> forward_backward =
      [&options](ReplicaContext& replica, Gpt& model, const Example& batch, const BackwardOptions& how) {
        return StepOutputs{.losses = train_stages(options, replica, model, batch, how)};
      };
  Trainer<Gpt> trainer(
      strategy, [&](ReplicaContext& replica) { return make_gpt(options, plan, strategy, replica); },
      [&](Gpt& model) { return make_gpt_optimizer(options, model); }, cross_entropy, {},
      {.autocast = autocast_dtype(options.precision),
       .cuda_graph = options.cuda_graph,
       .compute =
           [&](ReplicaContext&, Gpt& model, const Example& batch) {
             return StepOutputs{.losses = trained_losses(options, model, batch)};
           },
       .forward_backward = has_stages ? forward_backward : ForwardBackward<Gpt, Example>()});
  std::optional<LoadReport> weights;
  if (!options.init_weights.empty()) weights = load_initial_weights(options, trainer.model());
  on_start(*trainer.model().primary(), weights ? &*weights : nullptr);
  DistributeOptions distributed = gpt_batches(options, plan);
  distributed.times = input_times;
  auto batches = distribute(strategy, data.train, distributed);
  // A test holds no more at once than a micro batch.
  const int64_t test_batch = (plan.global_batch_size + plan.micro_batches - 1) / plan.micro_batches;
  FitOptions<> fit{.epochs = plan.epochs,
                   .steps_per_epoch = options.test_every,
                   .validation = distribute(strategy, data.test, {.global_batch_size = test_batch}),
                   .callbacks = callbacks,
                   .micro_batches = has_stages ? 1 : plan.micro_batches};
  if (plan.model.num_experts > 0)
    fit.callbacks.insert(fit.callbacks.begin(), std::make_shared<GptRouting>(trainer.model(), on_routing));
  if (has_stages) {
    const auto stages = trainer.model().map([](const Gpt& model) { return model.ptr()->stages(); });
    fit.callbacks.push_back(std::make_shared<PipelineStepTimes>(stages, on_pipeline));
  }
  fit.callbacks.push_back(std::make_shared<GptSamples>(options, data.codec, trainer.model(), on_sample));
  if (options.clip_norm > 0) fit.clip_norm = options.clip_norm;
  try {
    return trainer.fit(batches, fit);
  } catch (const NotFinite&) {
    const std::string router = first_not_finite_router(trainer.model());
    if (on_not_finite_router && !router.empty()) on_not_finite_router(router);
    throw;
  }
}

}  // namespace lockstep::apps
