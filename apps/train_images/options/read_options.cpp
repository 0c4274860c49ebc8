#include "lockstep/apps/train_images/options/read_options.h"

#include <fmt/format.h>

#include "lockstep/apps/shared/command_line/data_place.h"
#include "lockstep/apps/shared/planning/layout_policy.h"
#include "lockstep/apps/shared/planning/quantity.h"
#include "lockstep/apps/shared/precision/precision_kind.h"
#include "lockstep/apps/shared/strategy_choice/pipeline_flags.h"

namespace lockstep::apps {
namespace {

// The product of two counts fits into int64_t.
constexpr IntegerRange kCounts{.least = 1, .most = 1'000'000'000};
constexpr IntegerRange kCountsOrNone{.least = 0, .most = 1'000'000'000};
// Below 33, the last feature maps have one pixel, and BatchNorm cannot train on a shard of one image.
constexpr IntegerRange kMobileNetSizes{.least = 33, .most = 2048};
constexpr IntegerRange kSimpleCnnSizes{.least = 4, .most = 2048};

void read_optimizer(const Arguments& given, TrainOptions& options) {
  options.optimizer = given.choice<OptimizerKind>(
      "optimizer",
      {{"adam", OptimizerKind::kAdam}, {"adamw", OptimizerKind::kAdamW}, {"sgd", OptimizerKind::kSgd}},
      options.optimizer);
  if (given.has("momentum") && options.optimizer != OptimizerKind::kSgd) {
    given.refuse_together(
        "momentum", "expected it with --optimizer sgd only, but got " + optimizer_name(options.optimizer));
  }
  options.momentum = given.fraction("momentum", options.momentum);
  options.learning_rate = given.positive("learning-rate", options.learning_rate);
  options.scale_learning_rate = given.is_on("scale-learning-rate");
  if (given.has("base-batch-size") && !options.scale_learning_rate)
    given.refuse_together("base-batch-size", "expected --scale-learning-rate with it");
  options.base_batch_size = given.integer("base-batch-size", kCounts, options.base_batch_size);
  if (given.has("clip-norm")) options.clip_norm = given.positive("clip-norm", 0);
}

void read_schedule(const Arguments& given, TrainOptions& options) {
  options.schedule = given.choice<ScheduleKind>("learning-rate-schedule",
                                                {{"cosine", ScheduleKind::kCosine},
                                                 {"constant", ScheduleKind::kConstant},
                                                 {"step", ScheduleKind::kStep},
                                                 {"reduce_on_plateau", ScheduleKind::kReduceOnPlateau}},
                                                options.schedule);
  const bool has_falls =
      options.schedule == ScheduleKind::kStep || options.schedule == ScheduleKind::kReduceOnPlateau;
  for (const std::string flag : {"schedule-step-epochs", "schedule-factor"}) {
    if (!given.has(flag) || has_falls) continue;
    given.refuse_together(
        flag, "expected it with --learning-rate-schedule step or reduce_on_plateau only, but got " +
                  schedule_name(options.schedule));
  }
  options.schedule_step_epochs = given.integer("schedule-step-epochs", kCounts, options.schedule_step_epochs);
  options.schedule_factor = given.factor("schedule-factor", options.schedule_factor);
  options.warmup_epochs = given.amount("warmup-epochs", options.warmup_epochs);
  if (options.warmup_epochs > static_cast<double>(options.epochs)) {
    given.refuse_together("warmup-epochs",
                          fmt::format("expected at most the {} of --epochs", options.epochs));
  }
}

void read_averaging(const Arguments& given, TrainOptions& options) {
  if (given.has("ema")) options.ema = given.factor("ema", 0);
  options.swa_start = given.integer("swa-start", kCounts, options.swa_start);
  if (options.swa_start > options.epochs)
    given.refuse_together("swa-start", fmt::format("expected at most the {} of --epochs", options.epochs));
  if (given.has("swa-learning-rate")) options.swa_learning_rate = given.positive("swa-learning-rate", 0);
}

/// Reads the flags that Parquet files as --data have.
void read_parquet(const Arguments& given, TrainOptions& options) {
  const auto text = [&](const std::string& flag, const std::string& expected, std::string& value) {
    value = given.text(flag, value);
    if (given.has(flag) && value.empty()) given.refuse(flag, expected);
  };
  text("test-data", "Parquet files", options.test_data);
  refuse_credentials("test-data", options.test_data);
  options.test_share = given.factor("test-share", options.test_share);
  text("image-column", "the name of a column", options.image_column);
  text("label-column", "the name of a column", options.label_column);
  options.parquet_memory = given.text("parquet-memory", options.parquet_memory);
  if (given.has("parquet-memory")) parse_bytes("parquet-memory", options.parquet_memory);
}

}  // namespace

void read_data(const Arguments& given, TrainOptions& options) {
  options.data = given.text("data", options.data);
  if (options.data.empty()) given.refuse("data", "auto, generated or a path");
  refuse_credentials("data", options.data);
  read_parquet(given, options);
  options.limit_train = given.integer("limit-train", kCounts, options.limit_train);
  options.limit_test = given.integer("limit-test", kCounts, options.limit_test);
  options.skip_bad = given.is_on("skip-bad");
  options.exif_orientation = given.is_on("exif-orientation");
  options.image_cache = given.choice<ImageCache>(
      "image-cache", {{"host", ImageCache::kHost}, {"device", ImageCache::kDevice}}, options.image_cache);
}

void read_model(const Arguments& given, TrainOptions& options) {
  options.model = given.choice<ModelKind>(
      "model", {{"simple_cnn", ModelKind::kSimpleCnn}, {"mobilenet_v2", ModelKind::kMobileNetV2}},
      options.model);
  const bool is_mobilenet = options.model == ModelKind::kMobileNetV2;
  for (const std::string flag : {"head", "sync-batch-norm", "refresh-batch-norm"}) {
    if (is_mobilenet || !given.has(flag) || given.text(flag) == "false") continue;
    given.refuse_together(flag, "expected it with --model mobilenet_v2 only, but got --model simple_cnn");
  }
  options.head = given.choice<HeadKind>(
      "head", {{"global_average", HeadKind::kGlobalAverage}, {"flattened_dense", HeadKind::kFlattenedDense}},
      options.head);
  options.sync_batch_norm = given.is_on("sync-batch-norm");
  options.refresh_batch_norm = given.choice<BatchNormRefresh>("refresh-batch-norm",
                                                              {{"auto", BatchNormRefresh::kAuto},
                                                               {"always", BatchNormRefresh::kAlways},
                                                               {"never", BatchNormRefresh::kNever}},
                                                              options.refresh_batch_norm);
  options.image_size =
      given.integer("image-size", is_mobilenet ? kMobileNetSizes : kSimpleCnnSizes, is_mobilenet ? 64 : 28);
}

void read_augment(const Arguments& given, TrainOptions& options) {
  options.augment = read_augmentation(given);
  const auto& augment = options.augment;
  if (augment.crop >= options.image_size)
    given.refuse_together("augment", fmt::format("expected a crop of less than the {} pixels of --image-size",
                                                 options.image_size));
  if (options.model == ModelKind::kSimpleCnn && (augment.saturation > 0 || augment.hue > 0)) {
    given.refuse_together(
        "augment",
        "expected saturation and hue with --model mobilenet_v2 only, as simple_cnn sees grey images");
  }
}

void read_training(const Arguments& given, TrainOptions& options) {
  options.global_batch_size = given.integer("global-batch-size", kCounts, options.global_batch_size);
  options.per_replica_batch_size =
      given.integer("per-replica-batch-size", kCounts, options.per_replica_batch_size);
  options.epochs = given.integer("epochs", kCounts, options.epochs);
  options.steps_per_epoch = given.integer("steps-per-epoch", kCounts, options.steps_per_epoch);
  options.precision = read_precision(given, options.precision);
  options.cuda_graph = given.is_on("cuda-graph");
  options.cudnn_benchmark = !given.is_on("no-cudnn-benchmark");
  options.accumulate_steps = given.integer("accumulate-steps", kCounts, options.accumulate_steps);
  read_pipeline(given, options);
  read_layout_policy(
      given, {"mesh", "sharding", "accumulate-steps", "pipeline-schedule", "stages-per-rank", "pipeline-cut"},
      options);
  if (options.plan == LayoutPolicy::kAuto && options.per_replica_batch_size > 0)
    given.refuse_together("per-replica-batch-size",
                          "expected --global-batch-size with --plan auto, which chooses the replicas");
  options.early_stopping = given.integer("early-stopping", kCountsOrNone, options.early_stopping);
  read_optimizer(given, options);
  read_schedule(given, options);
  read_averaging(given, options);
  options.seed = given.seed("seed", options.seed);
  options.init_weights = given.text("init-weights", "");
  if (given.has("init-weights") && options.init_weights.empty()) given.refuse("init-weights", "a file");
  options.strict = given.is_on("strict");
}

void read_learning_rate_finder(const Arguments& given, TrainOptions& options) {
  options.find_learning_rate = given.is_on("find-learning-rate");
  if (options.find_learning_rate && options.fast_dev_run)
    given.refuse_together("find-learning-rate", "expected no --fast-dev-run with it");
}

}  // namespace lockstep::apps
