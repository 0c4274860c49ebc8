#include "lockstep/apps/compare_strategies/trials/measured_images.h"

#include <functional>
#include <type_traits>

#include "lockstep/apps/compare_strategies/trials/timed_steps.h"
#include "lockstep/apps/shared/precision/precision_choice.h"
#include "lockstep/apps/shared/strategy_choice/choose_strategy.h"
#include "lockstep/apps/shared/strategy_choice/sharded_parts.h"
#include "lockstep/apps/train_images/data/image_data.h"
#include "lockstep/apps/train_images/training/image_stages.h"
#include "lockstep/apps/train_images/training/model_choice.h"
#include "lockstep/apps/train_images/training/optimizer_choice.h"
#include "lockstep/runtime/devices/cudnn_benchmark.h"
#include "lockstep/runtime/precision/grad_scaler.h"
#include "lockstep/runtime/precision/tf32.h"
#include "lockstep/strategies/nn/losses.h"

namespace lockstep::apps {
namespace {

/// Runs once per replica. Returns its part of the global batch's mean loss.
template <typename Model>
torch::Tensor measured_step(ReplicaContext& replica, Model& model, Optimizer& optimizer, GradScaler& scaler,
                            const PrecisionKind& precision, const Example& batch) {
  optimizer->zero_grad();
  if constexpr (std::is_same_v<Model, Pipeline>) {
    const Example shard{batch.data.to(parameter_dtype(precision)), batch.target};
    const auto outputs =
        train_image_stages(replica, model, shard, {.autocast = autocast_dtype(precision), .scaler = &scaler});
    replica.apply_gradients(*optimizer, {.scaler = &scaler});
    scaler.update();
    return compute_average_loss(replica, outputs.losses);
  }
  torch::Tensor losses;
  {
    const auto cast = replica.autocast(autocast_dtype(precision));
    const auto logits = model->forward(batch.data.to(parameter_dtype(precision)));
    losses = torch::cross_entropy_loss(logits, batch.target, {}, at::Reduction::None);
  }
  const auto loss = compute_average_loss(replica, losses);
  scaler.scale(loss).backward();
  replica.apply_gradients(*optimizer, {.scaler = &scaler});
  scaler.update();
  return loss.detach();
}

template <typename Model>
MeasuredTraining train_and_measure(const CompareOptions& options, const TrainOptions& work,
                                   Strategy& strategy, const ImageData& data,
                                   const std::function<Model(ReplicaContext&)>& make_model) {
  auto model = strategy.scope([&](ReplicaContext& replica) {
    Model made = make_model(replica);
    made->to(parameter_dtype(work.precision));
    return made;
  });
  auto optimizer = strategy.scope([&](ReplicaContext& replica) {
    return make_optimizer(work, work.learning_rate, model[replica]->parameters());
  });
  auto scaler = strategy.scope([&](ReplicaContext& replica) {
    return GradScaler(replica.device(), {.enabled = needs_loss_scaling(work.precision)});
  });
  const auto batches = distribute(strategy, data.train,
                                  {.global_batch_size = work.global_batch_size, .shuffle_seed = work.seed});
  model.train();
  MeasuredTraining measured;
  measured.run = time_steps(options, strategy, batches, [&](const PerReplica<Example>& batch) {
    return strategy.run(measured_step<Model>, model, optimizer, scaler, work.precision, batch);
  });
  set_memory(strategy, module_pointers(model.local_values()), optimizer.local_values(), measured);
  set_parameters(whole_parameters(strategy, module_pointers(model.local_values())), measured);
  return measured;
}

MeasuredTraining measure(const CompareOptions& options, const TrainOptions& work, Strategy& strategy,
                         const ImageData& data) {
  TrainPlan plan = make_plan(work, strategy.num_replicas_in_sync(), size_of(data.train));
  plan_image_stages(strategy, work, plan);
  if (plan.num_stages > 1) {
    const ImageStages stages{.plan = plan,
                             .num_classes = data.num_classes,
                             .costs = image_stage_costs(work, plan, data.num_classes, strategy)};
    return train_and_measure<Pipeline>(options, work, strategy, data, [&](ReplicaContext& replica) {
      return make_image_stages(work, stages, strategy, replica);
    });
  }
  if (work.model == ModelKind::kSimpleCnn) {
    const auto cnn = simple_cnn_options(work, data.num_classes);
    return train_and_measure<SimpleCnn>(options, work, strategy, data, [&](ReplicaContext& replica) {
      return SimpleCnn(cnn, sharded_parts(strategy, replica));
    });
  }
  const auto mobilenet = mobilenet_v2_options(work, data.num_classes);
  return train_and_measure<MobileNetV2>(options, work, strategy, data, [&](ReplicaContext& replica) {
    return MobileNetV2(mobilenet, sharded_parts(strategy, replica));
  });
}

}  // namespace

MeasuredTraining measure_images(const CompareOptions& options, const TrainOptions& work) {
  const MadeStrategy made =
      choose_strategy(work, {.program = "compare_strategies", .seed = work.seed, .shards_parameters = true});
  check_precision(work.precision, made.strategy->devices());
  const Tf32Guard tf32(tf32_use(work.precision));
  const CudnnBenchmarkGuard benchmark(measures_convolutions(work.cudnn_benchmark, made.strategy->devices()));
  const DataLocation location = locate_data(work.data);
  const ImageData data = load_images(location, work);
  auto measured = measure(options, work, *made.strategy, data);
  measured.run.data = location.why;
  return measured;
}

}  // namespace lockstep::apps
