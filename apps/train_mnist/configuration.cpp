#include "lockstep/apps/train_mnist/configuration.h"

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

std::string learning_rate_text(const ResolvedRun& run) {
  std::string text = fmt::format("{}", run.plan.learning_rate);
  if (run.options.scale_learning_rate) {
    text += fmt::format(", scaled from {} at a batch of {}", run.options.learning_rate,
                        run.options.base_batch_size);
  }
  const bool is_constant = run.options.schedule == ScheduleKind::kConstant;
  return text + (is_constant ? ", constant" : ", falling to 0 along a cosine");
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
      break;
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
  const std::string name = optimizer_name(options.optimizer);
  return options.optimizer == OptimizerKind::kSgd ? fmt::format("{}, momentum {}", name, options.momentum)
                                                  : name;
}

}  // namespace

std::string configuration_text(const ResolvedRun& run) {
  std::string text = row("data", run.data);
  std::istringstream hint(run.hint);
  for (std::string line; std::getline(hint, line);) text += row("", line);
  text += row("images", fmt::format("{} to train on, {} to test on", run.num_train, run.num_test));
  if (run.num_skipped > 0) text += row("skipped", fmt::format("{} damaged images", run.num_skipped));
  text += row("model", model_text(run));
  text += row("strategy", run.strategy);
  text += row("replicas", run.replicas);
  text += row("threads", fmt::format("{} in each replica", run.threads));
  text += row("global batch", batch_text(run));
  text += row("epochs", fmt::format("{} of {} {}", run.options.epochs, run.plan.steps_per_epoch,
                                    run.plan.steps_per_epoch == 1 ? "step" : "steps"));
  text += row("precision", precision_text(run.options.precision));
  if (run.options.cuda_graph) text += row("CUDA graph", "of each step, replayed after a few calls");
  text += row("optimizer", optimizer_text(run.options));
  text += row("learning rate", learning_rate_text(run));
  text += row("seed", fmt::format("{}", run.options.seed));
  return text;
}

}  // namespace lockstep::apps
