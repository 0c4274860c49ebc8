#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/apps/shared/strategy_choice/strategy_choice.h"
#include "lockstep/training/state/not_finite.h"

namespace lockstep::apps {

enum class ModelKind { kMobileNetV2, kSimpleCnn };
enum class HeadKind { kGlobalAverage, kFlattenedDense };
enum class OptimizerKind { kAdam, kAdamW, kSgd };
enum class ScheduleKind { kCosine, kConstant, kStep, kReduceOnPlateau };
enum class PrecisionKind { kFloat32, kFloat64, kTf32, kBFloat16, kFloat16 };

/// How flags and printed configurations spell them.
std::string model_name(ModelKind model);
std::string head_name(HeadKind head);
std::string optimizer_name(OptimizerKind optimizer);
std::string schedule_name(ScheduleKind schedule);
std::string not_finite_name(NotFiniteAction action);
std::string precision_name(PrecisionKind precision);

/// What a training run is asked for, as the command line gives it. See help_text() for the flags' meaning.
struct TrainOptions : StrategyChoice {
  std::string data = "auto";
  int64_t limit_train = 0;  ///< 0: all examples
  int64_t limit_test = 0;
  bool skip_bad = false;

  ModelKind model = ModelKind::kSimpleCnn;
  HeadKind head = HeadKind::kGlobalAverage;  ///< of MobileNetV2
  int64_t image_size = 28;                   ///< height and width in pixels
  bool sync_batch_norm = false;              ///< of MobileNetV2: statistics of the global batch

  bool cuda_graph = false;
  PrecisionKind precision = PrecisionKind::kFloat32;
  int64_t global_batch_size = 64;
  int64_t per_replica_batch_size = 0;  ///< other than 0: overrides global_batch_size
  int64_t accumulate_steps = 1;        ///< pieces that a replica's images of a step are computed in
  int64_t epochs = 5;
  int64_t steps_per_epoch = 0;  ///< 0: one pass over the examples
  int64_t early_stopping = 0;   ///< epochs without a better validation loss that end the training; 0: none do
  OptimizerKind optimizer = OptimizerKind::kAdam;
  ScheduleKind schedule = ScheduleKind::kCosine;  ///< of the learning rate
  double momentum = 0.9;                          ///< of sgd
  double learning_rate = 0.001;
  double warmup_epochs = 0;          ///< in which the learning rate rises from 0; may end within an epoch
  int64_t schedule_step_epochs = 2;  ///< of step: between falls; of reduce_on_plateau: without a better loss
  double schedule_factor = 0.1;      ///< of step and reduce_on_plateau: what a fall multiplies by
  bool scale_learning_rate = false;
  int64_t base_batch_size = 32;
  double clip_norm = 0;  ///< the gradients' largest norm over all parameters; 0: any
  uint64_t seed = 1;
  std::string init_weights;  ///< file of the weights to start with; empty: none
  bool strict = false;       ///< init_weights has to fit in whole
  bool quiet = false;        ///< prints errors only

  std::string run_dir;     ///< where the run is recorded; empty: nowhere
  int64_t log_every = 10;  ///< steps between two that are recorded there
  int64_t profile = 0;     ///< steps whose profile is recorded there

  int64_t check_replicas = 1000;  ///< steps between two comparisons of the replicas' bits; 0: none
  NotFiniteAction on_not_finite = NotFiniteAction::kStop;

  std::string backup_dir;            ///< where the training is saved to go on from; empty: nowhere
  std::string save_every = "epoch";  ///< as SaveInterval::parse() reads it
  bool shard_backup = false;         ///< each worker writes a part: BackupOptions::sharded
  std::string resume = "auto";       ///< auto, never, or a path: BackupOptions::resume

  bool operator==(const TrainOptions&) const = default;
};

/// What depends on how many replicas and examples there turn out to be.
struct TrainPlan {
  int64_t global_batch_size = 0;
  int64_t steps_per_epoch = 0;
  double learning_rate = 0;  ///< of the first step
  int64_t num_steps = 0;     ///< of all epochs
};

TrainPlan make_plan(const TrainOptions& options, int num_replicas, int64_t num_train);

}  // namespace lockstep::apps
