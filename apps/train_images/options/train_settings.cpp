#include "lockstep/apps/train_images/options/train_settings.h"

#include "lockstep/apps/shared/command_line/configuration_file.h"
#include "lockstep/apps/shared/command_line/setting_values.h"
#include "lockstep/apps/shared/planning/layout_policy.h"
#include "lockstep/apps/shared/session/run_flags.h"
#include "lockstep/apps/shared/strategy_choice/pipeline_flags.h"
#include "lockstep/apps/shared/strategy_choice/strategy_flags.h"

namespace lockstep::apps {
namespace {

using settings::count;
using settings::list;
using settings::NamedValues;
using settings::text;
using settings::where;

NamedValues data_values(const TrainOptions& options) {
  return {{"data", options.data},
          {"test-data", text(options.test_data)},
          {"test-share", where(options.test_data.empty(), options.test_share)},
          {"image-column", options.image_column},
          {"label-column", options.label_column},
          {"parquet-memory", options.parquet_memory},
          {"limit-train", count(options.limit_train)},
          {"limit-test", count(options.limit_test)},
          {"skip-bad", options.skip_bad},
          {"exif-orientation", options.exif_orientation},
          {"image-cache", image_cache_name(options.image_cache)},
          {"augment", augmentation_text(options.augment)}};
}

NamedValues model_values(const TrainOptions& options) {
  const bool is_mobilenet = options.model == ModelKind::kMobileNetV2;
  return {{"model", model_name(options.model)},
          {"image-size", options.image_size},
          {"head", where(is_mobilenet, head_name(options.head))},
          {"sync-batch-norm", where(is_mobilenet, options.sync_batch_norm)},
          {"refresh-batch-norm", where(is_mobilenet, batch_norm_refresh_name(options.refresh_batch_norm))}};
}

NamedValues training_values(const TrainOptions& options) {
  const bool is_per_replica = options.per_replica_batch_size > 0;
  const bool has_falls =
      options.schedule == ScheduleKind::kStep || options.schedule == ScheduleKind::kReduceOnPlateau;
  return {{"epochs", options.epochs},
          {"steps-per-epoch", count(options.steps_per_epoch)},
          {"global-batch-size", where(!is_per_replica, options.global_batch_size)},
          {"per-replica-batch-size", count(options.per_replica_batch_size)},
          {"accumulate-steps", count(options.accumulate_steps)},
          {"early-stopping", options.early_stopping},
          {"precision", precision_name(options.precision)},
          {"cuda-graph", options.cuda_graph},
          {"no-cudnn-benchmark", !options.cudnn_benchmark},
          {"optimizer", optimizer_name(options.optimizer)},
          {"learning-rate", options.learning_rate},
          {"learning-rate-schedule", schedule_name(options.schedule)},
          {"schedule-step-epochs", where(has_falls, options.schedule_step_epochs)},
          {"schedule-factor", where(has_falls, options.schedule_factor)},
          {"warmup-epochs", options.warmup_epochs},
          {"scale-learning-rate", options.scale_learning_rate},
          {"base-batch-size", where(options.scale_learning_rate, options.base_batch_size)},
          {"momentum", where(options.optimizer == OptimizerKind::kSgd, options.momentum)},
          {"clip-norm", where(options.clip_norm > 0, options.clip_norm)},
          {"ema", where(options.ema > 0, options.ema)},
          {"swa-start", count(options.swa_start)},
          {"swa-learning-rate", where(options.swa_learning_rate > 0, options.swa_learning_rate)},
          {"init-weights", text(options.init_weights)},
          {"strict", where(!options.init_weights.empty(), options.strict)},
          {"seed", options.seed}};
}

}  // namespace

std::vector<Setting> settings_of(const TrainOptions& options, const std::map<std::string, Origin>& origins) {
  return settings::with_origins(
      {data_values(options), model_values(options), training_values(options), pipeline_values(options),
       layout_policy_values(options), run_values(options), strategy_values(options)},
      origins);
}

std::vector<Setting> resolved_settings(const ResolvedRun& run) {
  return {{"data", run.data, {}},
          {"images-to-train-on", run.num_train, {}},
          {"images-to-test-on", run.num_test, {}},
          {"images-skipped", static_cast<int64_t>(run.skipped.size()), {}},
          {"classes", run.num_classes, {}},
          {"parameters", run.num_parameters, {}},
          {"strategy", run.strategy, {}},
          {"replicas", int64_t{run.num_replicas}, {}},
          {"threads", int64_t{run.threads}, {}},
          {"global-batch-size", run.plan.global_batch_size, {}},
          {"steps-per-epoch", run.plan.steps_per_epoch, {}},
          {"learning-rate", run.plan.learning_rate, {}},
          {"settings-changed-on-resume", list(run.changed_settings), {}},
          color_setting()};
}

std::string run_configuration(const ResolvedRun& run, const std::map<std::string, Origin>& origins,
                              const std::string& version) {
  return configuration_json({.program = "train_images",
                             .version = version,
                             .values = settings_of(run.options, origins),
                             .resolved = resolved_settings(run)});
}

}  // namespace lockstep::apps
