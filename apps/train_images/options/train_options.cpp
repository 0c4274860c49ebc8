#include "lockstep/apps/train_images/options/train_options.h"

#include <algorithm>

#include "lockstep/training/optimizers/scaling_rule.h"

namespace lockstep::apps {

std::string image_cache_name(ImageCache cache) {
  return cache == ImageCache::kDevice ? "device" : "host";
}

std::string model_name(ModelKind model) {
  return model == ModelKind::kMobileNetV2 ? "mobilenet_v2" : "simple_cnn";
}

std::string head_name(HeadKind head) {
  return head == HeadKind::kFlattenedDense ? "flattened_dense" : "global_average";
}

std::string batch_norm_refresh_name(BatchNormRefresh refresh) {
  switch (refresh) {
    case BatchNormRefresh::kAlways:
      return "always";
    case BatchNormRefresh::kNever:
      return "never";
    case BatchNormRefresh::kAuto:
      break;
  }
  return "auto";
}

std::string optimizer_name(OptimizerKind optimizer) {
  switch (optimizer) {
    case OptimizerKind::kAdam:
      return "adam";
    case OptimizerKind::kAdamW:
      return "adamw";
    case OptimizerKind::kSgd:
      return "sgd";
  }
  return "";
}

std::string schedule_name(ScheduleKind schedule) {
  switch (schedule) {
    case ScheduleKind::kCosine:
      return "cosine";
    case ScheduleKind::kConstant:
      return "constant";
    case ScheduleKind::kStep:
      return "step";
    case ScheduleKind::kReduceOnPlateau:
      return "reduce_on_plateau";
  }
  return "";
}

void shorten(TrainOptions& options) {
  constexpr int64_t kSteps = 5;
  const auto at_most = [](int64_t count, int64_t limit) {
    return count == 0 ? limit : std::min(count, limit);
  };
  options.epochs = 1;
  options.warmup_epochs = std::min(options.warmup_epochs, 1.0);
  options.swa_start = std::min<int64_t>(options.swa_start, 1);
  options.steps_per_epoch = at_most(options.steps_per_epoch, kSteps);
  options.limit_test = at_most(options.limit_test, kSteps * options.global_batch_size);
  // So that what happens every so many steps happens at all.
  options.log_every = 1;
  if (options.check_replicas > 0) options.check_replicas = 1;
  options.backup_dir.clear();
  options.mlflow_dir.clear();
}

TrainPlan make_plan(const TrainOptions& options, int num_replicas, int64_t num_train) {
  TrainPlan plan;
  plan.global_batch_size = options.per_replica_batch_size > 0 ? options.per_replica_batch_size * num_replicas
                                                              : options.global_batch_size;
  plan.steps_per_epoch = options.steps_per_epoch > 0
                             ? options.steps_per_epoch
                             : (num_train + plan.global_batch_size - 1) / plan.global_batch_size;
  plan.num_steps = plan.steps_per_epoch * options.epochs;
  const bool is_wanted = options.refresh_batch_norm == BatchNormRefresh::kAuto
                             ? plan.steps_per_epoch < kFewSteps
                             : options.refresh_batch_norm == BatchNormRefresh::kAlways;
  plan.refreshes_batch_norm = is_wanted && options.model == ModelKind::kMobileNetV2;
  plan.learning_rate =
      options.scale_learning_rate
          ? scaled_learning_rate(options.learning_rate, plan.global_batch_size, options.base_batch_size)
          : options.learning_rate;
  plan.micro_batches = std::max<int64_t>(1, options.accumulate_steps);
  return plan;
}

}  // namespace lockstep::apps
