#pragma once

#include <cstdint>
#include <string>

#include "lockstep/apps/shared/planning/layout_policy.h"
#include "lockstep/apps/shared/precision/precision_kind.h"
#include "lockstep/apps/shared/session/run_choice.h"
#include "lockstep/apps/shared/strategy_choice/pipeline_choice.h"
#include "lockstep/apps/shared/strategy_choice/strategy_choice.h"
#include "lockstep/apps/train_images/options/augmentation_choice.h"
#include "lockstep/datasets/images/image_cache.h"

namespace lockstep::apps {

enum class ModelKind { kMobileNetV2, kSimpleCnn };
enum class HeadKind { kGlobalAverage, kFlattenedDense };
enum class BatchNormRefresh { kAuto, kAlways, kNever };
enum class OptimizerKind { kAdam, kAdamW, kSgd };
enum class ScheduleKind { kCosine, kConstant, kStep, kReduceOnPlateau };

/// Return the spelling used in flags and printed configurations.
std::string image_cache_name(ImageCache cache);
std::string model_name(ModelKind model);
std::string head_name(HeadKind head);
std::string batch_norm_refresh_name(BatchNormRefresh refresh);
std::string optimizer_name(OptimizerKind optimizer);
std::string schedule_name(ScheduleKind schedule);

/// In an epoch with fewer steps, the running statistics of batch normalization lag too far behind the
/// weights.
inline constexpr int64_t kFewSteps = 100;

/// Options of a training run, as given on the command line. train_help_text() explains the flags.
struct TrainOptions : StrategyChoice, PipelineChoice, LayoutPolicyChoice, RunChoice {
  std::string data = "auto";
  std::string test_data;    ///< of Parquet files; empty: test_share of `data`
  double test_share = 0.1;  ///< for Parquet files
  std::string image_column = "image";
  std::string label_column = "label";
  std::string parquet_memory = "1GiB";  ///< ParquetImagesOptions::memory_limit
  int64_t limit_train = 0;              ///< 0: all examples
  int64_t limit_test = 0;
  bool skip_bad = false;
  bool exif_orientation = false;
  ImageCache image_cache = ImageCache::kHost;  ///< for folders of images
  AugmentationChoice augment;                  ///< of the images to train on

  ModelKind model = ModelKind::kSimpleCnn;
  HeadKind head = HeadKind::kGlobalAverage;  ///< for MobileNetV2
  int64_t image_size = 28;                   ///< height and width in pixels
  bool sync_batch_norm = false;              ///< for MobileNetV2: use statistics of the global batch
  /// For MobileNetV2: whether to measure running statistics again before each test; kAuto: if an epoch has
  /// fewer than kFewSteps steps.
  BatchNormRefresh refresh_batch_norm = BatchNormRefresh::kAuto;

  bool cuda_graph = false;
  bool cudnn_benchmark = true;
  PrecisionKind precision = PrecisionKind::kFloat32;
  int64_t global_batch_size = 64;
  int64_t per_replica_batch_size = 0;  ///< if not 0, overrides global_batch_size
  /// Number of pieces into which a replica's images of a step are split. 0: 1, or as
  /// micro_batches_of_stages() says.
  int64_t accumulate_steps = 0;
  int64_t epochs = 5;
  int64_t steps_per_epoch = 0;  ///< 0: one pass over the examples
  int64_t early_stopping = 0;   ///< stop after this many epochs without a better validation loss; 0: never
  OptimizerKind optimizer = OptimizerKind::kAdam;
  ScheduleKind schedule = ScheduleKind::kCosine;  ///< of the learning rate
  double momentum = 0.9;                          ///< for sgd
  double learning_rate = 0.001;
  double warmup_epochs = 0;  ///< epochs in which the learning rate rises from 0; may be fractional
  /// For step: epochs between decays; for reduce_on_plateau: epochs without a better loss.
  int64_t schedule_step_epochs = 2;
  double schedule_factor = 0.1;  ///< for step and reduce_on_plateau: factor of each decay
  bool scale_learning_rate = false;
  int64_t base_batch_size = 32;
  double ema = 0;         ///< decay of the moving average of the weights; 0: none
  int64_t swa_start = 0;  ///< first epoch whose weights stochastic weight averaging counts, from 1; 0: none
  double swa_learning_rate = 0;  ///< from epoch swa_start on; 0: that of the schedule
  double clip_norm = 0;          ///< maximum norm of the gradients over all parameters; 0: no limit
  uint64_t seed = 1;
  std::string init_weights;  ///< file of initial weights; empty: none
  bool strict = false;       ///< init_weights must match completely

  /// Instead of a training: losses at rising learning rates, with a suggestion.
  bool find_learning_rate = false;

  bool operator==(const TrainOptions&) const = default;
};

/// Values that depend on the number of replicas and examples.
struct TrainPlan {
  int64_t global_batch_size = 0;
  int64_t steps_per_epoch = 0;
  double learning_rate = 0;  ///< of the first step
  int64_t num_steps = 0;     ///< over all epochs
  bool refreshes_batch_norm = false;
  int64_t micro_batches = 1;  ///< pieces of a replica's images of a step
  int64_t num_stages = 1;     ///< of the model, along the axis pipeline
};

/// Changes the options into those of a fast development run: a few steps, a test, and every callback.
void shorten(TrainOptions& options);

TrainPlan make_plan(const TrainOptions& options, int num_replicas, int64_t num_train);

}  // namespace lockstep::apps
