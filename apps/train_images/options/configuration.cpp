#include "lockstep/apps/train_images/options/configuration.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <sstream>

#include "lockstep/apps/shared/command_line/configuration_row.h"

namespace lockstep::apps {
namespace {

/// Returns the rows that list the images that were left out, or nothing.
std::string skipped_text(const ResolvedRun& run) {
  constexpr size_t kMaxLines = 5;
  const size_t count = run.skipped.size();
  if (count == 0) return "";
  std::string text = row("skipped", fmt::format("{} damaged {}", count, count == 1 ? "image" : "images"));
  for (size_t i = 0; i < std::min(count, kMaxLines); ++i) text += row("", run.skipped[i]);
  if (count > kMaxLines) text += row("", fmt::format("and {} more", count - kMaxLines));
  const std::string& folder = run.options.run_dir;
  if (!folder.empty()) text += row("", fmt::format("all are listed in {}/{}", folder, kSkippedImagesFile));
  return text;
}

std::string batch_text(const ResolvedRun& run) {
  const int64_t batch = run.plan.global_batch_size;
  if (run.num_replicas == 1) return fmt::format("{}", batch);
  const int64_t shard = (batch + run.num_replicas - 1) / run.num_replicas;
  if (batch < run.num_replicas) {
    return fmt::format("{}, so that {} of {} replicas get no images", batch, run.num_replicas - batch,
                       run.num_replicas);
  }
  return fmt::format("{}, {}{} a replica", batch, batch % run.num_replicas == 0 ? "" : "up to ", shard);
}

std::string pipeline_text(const ResolvedRun& run) {
  return fmt::format("{} stages, {}, {} micro-batches", run.plan.num_stages, run.options.pipeline_schedule,
                     run.plan.micro_batches);
}

std::string epochs_text(int64_t epochs) {
  return fmt::format("{} {}", epochs, epochs == 1 ? "epoch" : "epochs");
}

std::string schedule_text(const TrainOptions& options) {
  switch (options.schedule) {
    case ScheduleKind::kConstant:
      return "constant";
    case ScheduleKind::kCosine:
      return "falling to 0 along a cosine";
    case ScheduleKind::kStep:
      return fmt::format("times {} every {}", options.schedule_factor,
                         epochs_text(options.schedule_step_epochs));
    case ScheduleKind::kReduceOnPlateau:
      return fmt::format("times {} after {} without a better validation loss", options.schedule_factor,
                         epochs_text(options.schedule_step_epochs));
  }
  return "";
}

std::string warmup_text(const TrainOptions& options) {
  if (options.warmup_epochs == 0) return "";
  return fmt::format(", after a warm-up of {} {}", options.warmup_epochs,
                     options.warmup_epochs == 1 ? "epoch" : "epochs");
}

std::string learning_rate_text(const ResolvedRun& run) {
  std::string text = fmt::format("{}", run.plan.learning_rate);
  if (run.options.scale_learning_rate) {
    text += fmt::format(", scaled from {} at a batch of {}", run.options.learning_rate,
                        run.options.base_batch_size);
  }
  return text + ", " + schedule_text(run.options) + warmup_text(run.options);
}

std::string model_text(const ResolvedRun& run) {
  const auto& options = run.options;
  const std::string head =
      options.model == ModelKind::kMobileNetV2 ? ", head " + head_name(options.head) : std::string();
  const std::string norm = options.sync_batch_norm ? ", batch normalisation over all replicas" : "";
  return fmt::format("{}{}{}, {} parameters, {}x{} {}, {} classes", model_name(options.model), head, norm,
                     run.num_parameters, options.image_size, options.image_size,
                     run.channels == 1 ? "grey" : "RGB", run.num_classes);
}

std::string optimizer_text(const TrainOptions& options) {
  std::string text = optimizer_name(options.optimizer);
  if (options.optimizer == OptimizerKind::kSgd) text += fmt::format(", momentum {}", options.momentum);
  if (options.accumulate_steps > 1) text += fmt::format(", each step in {} pieces", options.accumulate_steps);
  if (options.clip_norm > 0) text += fmt::format(", gradients clipped to a norm of {}", options.clip_norm);
  return text;
}

/// Returns nothing if the weights are not averaged.
std::string averaging_text(const TrainOptions& options) {
  if (options.ema > 0) return fmt::format("exponential moving average, decay {}", options.ema);
  if (options.swa_start == 0) return "";
  const std::string rate = options.swa_learning_rate > 0
                               ? fmt::format(", learning rate {} then", options.swa_learning_rate)
                               : std::string();
  return fmt::format("mean over the epochs from {} on{}", options.swa_start, rate);
}

/// Returns advice if an epoch has so few steps that a smaller batch learns more from the same images.
std::string few_steps_hint(const ResolvedRun& run) {
  constexpr int64_t kTooFew = 32;
  constexpr int64_t kEnough = 60;
  constexpr int64_t kLeastShard = 8;  // batch normalization needs several images
  if (run.options.steps_per_epoch > 0 || run.plan.steps_per_epoch >= kTooFew) return "";
  const auto fitting = std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(1, run.num_train / kEnough)));
  const int64_t batch = std::max(static_cast<int64_t>(fitting), kLeastShard * run.num_replicas);
  if (batch >= run.plan.global_batch_size) return "";
  return fmt::format(
      "few steps for so few images: --global-batch-size {} makes {} of them, and usually learns more", batch,
      (run.num_train + batch - 1) / batch);
}

}  // namespace

std::string configuration_text(const ResolvedRun& run) {
  std::string text = row("data", run.data);
  std::istringstream hint(run.hint);
  for (std::string line; std::getline(hint, line);) text += row("", line);
  text += row("images", fmt::format("{} to train on, {} to test on", run.num_train, run.num_test));
  text += skipped_text(run);
  if (run.options.augment != AugmentationChoice{})
    text += row("augmentation", augmentation_text(run.options.augment));
  text += row("model", model_text(run));
  if (!run.options.init_weights.empty()) {
    text += row("weights", run.options.init_weights +
                               (run.options.strict ? ", every one of them" : ", where names and shapes fit"));
  }
  text += row("strategy", run.strategy);
  text += row("replicas", run.replicas);
  text += row("threads", fmt::format("{} in each replica", run.threads));
  text += row("global batch", batch_text(run));
  if (run.plan.num_stages > 1) text += row("pipeline", pipeline_text(run));
  text += row("epochs", fmt::format("{} of {} {}", run.options.epochs, run.plan.steps_per_epoch,
                                    run.plan.steps_per_epoch == 1 ? "step" : "steps"));
  if (const std::string hint = few_steps_hint(run); !hint.empty()) text += row("", hint);
  if (run.plan.refreshes_batch_norm) {
    text += row("batch norm",
                "statistics measured again before each test" +
                    std::string(run.plan.steps_per_epoch < kFewSteps ? ", as an epoch has few steps" : ""));
  }
  if (run.options.early_stopping > 0) {
    text += row("early stopping",
                "after " + epochs_text(run.options.early_stopping) + " without a better validation loss");
  }
  text += row("precision", precision_text(run.options.precision));
  if (run.options.cuda_graph) text += row("CUDA graph", "of each step, replayed after a few calls");
  text += row("optimizer", optimizer_text(run.options));
  text += row("learning rate", learning_rate_text(run));
  if (const std::string averaging = averaging_text(run.options); !averaging.empty())
    text += row("weights' average", averaging);
  text += row("seed", fmt::format("{}", run.options.seed));
  return text + run_rows(run.options);
}

}  // namespace lockstep::apps
