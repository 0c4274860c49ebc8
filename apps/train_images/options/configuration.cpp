#include "lockstep/apps/train_images/options/configuration.h"

#include <fmt/format.h>

#include <sstream>

namespace lockstep::apps {
namespace {

std::string row(const std::string& name, const std::string& value) {
  return fmt::format("{:<17}{}\n", name, value);
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

std::string precision_text(PrecisionKind precision) {
  std::string name = precision_name(precision);
  switch (precision) {
    case PrecisionKind::kFloat32:
    case PrecisionKind::kFloat64:
      break;
    case PrecisionKind::kIeee:
      return name + ": float32 without TF32";
    case PrecisionKind::kTf32:
      return name + " in products and convolutions, else float32";
    case PrecisionKind::kBFloat16:
      return name + " by autocast, parameters in float32";
    case PrecisionKind::kFloat16:
      return name + " by autocast, parameters in float32, loss scaled";
  }
  return name;
}

std::string optimizer_text(const TrainOptions& options) {
  std::string text = optimizer_name(options.optimizer);
  if (options.optimizer == OptimizerKind::kSgd) text += fmt::format(", momentum {}", options.momentum);
  if (options.accumulate_steps > 1) text += fmt::format(", each step in {} pieces", options.accumulate_steps);
  if (options.clip_norm > 0) text += fmt::format(", gradients clipped to a norm of {}", options.clip_norm);
  return text;
}

}  // namespace

std::string configuration_text(const ResolvedRun& run) {
  std::string text = row("data", run.data);
  std::istringstream hint(run.hint);
  for (std::string line; std::getline(hint, line);) text += row("", line);
  text += row("images", fmt::format("{} to train on, {} to test on", run.num_train, run.num_test));
  if (run.num_skipped > 0) text += row("skipped", fmt::format("{} damaged images", run.num_skipped));
  text += row("model", model_text(run));
  if (!run.options.init_weights.empty()) {
    text += row("weights", run.options.init_weights +
                               (run.options.strict ? ", every one of them" : ", where names and shapes fit"));
  }
  text += row("strategy", run.strategy);
  text += row("replicas", run.replicas);
  text += row("threads", fmt::format("{} in each replica", run.threads));
  text += row("global batch", batch_text(run));
  text += row("epochs", fmt::format("{} of {} {}", run.options.epochs, run.plan.steps_per_epoch,
                                    run.plan.steps_per_epoch == 1 ? "step" : "steps"));
  if (run.options.early_stopping > 0) {
    text += row("early stopping",
                "after " + epochs_text(run.options.early_stopping) + " without a better validation loss");
  }
  text += row("precision", precision_text(run.options.precision));
  if (run.options.cuda_graph) text += row("CUDA graph", "of each step, replayed after a few calls");
  text += row("optimizer", optimizer_text(run.options));
  text += row("learning rate", learning_rate_text(run));
  text += row("seed", fmt::format("{}", run.options.seed));
  if (!run.options.run_dir.empty()) text += row("recorded in", run.options.run_dir);
  if (!run.options.mlflow_dir.empty()) text += row("MLflow's store", run.options.mlflow_dir);
  if (!run.options.backup_dir.empty()) {
    const std::string& every = run.options.save_every;
    const char* sharing = run.options.shard_backup ? ", each worker a part" : "";
    text += row("saved in", run.options.backup_dir + ", every " + every + sharing);
  }
  return text;
}

}  // namespace lockstep::apps
