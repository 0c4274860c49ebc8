#include "lockstep/training/trainer/trainer.h"

#include <c10/util/StringUtil.h>

#include <set>

namespace lockstep::detail {
namespace {

constexpr int64_t kUsualBatchSize = 32;

}  // namespace

void check_fit_options(const FitNumbers& numbers) {
  const auto check_count = [](const char* what, int64_t count, int64_t least) {
    if (count < least)
      throw InvalidArgument(c10::str("[fit] expected ", what, " of ", least, " or more, but got ", count));
  };
  check_count("epochs", numbers.epochs, 1);
  check_count("steps_per_epoch", numbers.steps_per_epoch.value_or(1), 1);
  check_count("micro_batches", numbers.micro_batches, 1);
  check_count("epochs_done", numbers.epochs_done, 0);
  check_count("steps_done", numbers.steps_done, 0);
  if (numbers.clip_norm && !(*numbers.clip_norm >= 0))
    throw InvalidArgument(c10::str("[fit] expected a clip_norm of 0 or more, but got ", *numbers.clip_norm));
  if (numbers.has_own_step && (numbers.clip_norm || numbers.micro_batches > 1)) {
    throw InvalidArgument(
        "[fit] expected neither clip_norm nor micro_batches with TrainerOptions::train_step, which has to "
        "handle them itself");
  }
  if (numbers.has_own_backward && (numbers.has_own_step || numbers.micro_batches > 1)) {
    throw InvalidArgument(c10::str("[fit] expected ",
                                   numbers.has_own_step ? "no train_step" : "1 of micro_batches",
                                   " with TrainerOptions::forward_backward, but got ",
                                   numbers.has_own_step ? "one" : c10::str(numbers.micro_batches)));
  }
  if (numbers.is_endless && !numbers.steps_per_epoch)
    throw InvalidArgument("[fit] expected steps_per_epoch for an endless dataset, but got none");
}

DistributeOptions training_batches(DistributeOptions options) {
  if (!options.global_batch_size) options.global_batch_size = kUsualBatchSize;
  return options;
}

DistributeOptions validation_batches(const DistributeOptions& options) {
  DistributeOptions whole = training_batches(options);
  whole.shuffle_seed.reset();
  whole.drop_remainder = false;
  return whole;
}

std::vector<std::string> log_names(const MetricList& training, const MetricList* validation,
                                   bool has_gradient_norm) {
  std::vector<std::string> names{"loss"};
  for (const auto& [name, metric] : training) names.push_back(name);
  if (has_gradient_norm) names.emplace_back("gradient_norm");
  names.insert(names.end(), {"learning_rate", "examples_per_second", "data_wait"});
  if (validation == nullptr) return names;
  names.emplace_back("validation_loss");
  for (const auto& [name, metric] : *validation) names.push_back("validation_" + name);
  return names;
}

void check_metrics(const MetricList& metrics, bool cuda_graph) {
  static const std::set<std::string> kOwnNames{"loss", "learning_rate", "gradient_norm",
                                               "examples_per_second", "data_wait"};
  std::set<std::string> names;
  for (const auto& [name, metric] : metrics) {
    if (kOwnNames.contains(name) || name.starts_with("validation_")) {
      throw InvalidArgument(c10::str(
          "[Trainer] expected a metric's name that the logs do not have anyway, but got '", name, "'"));
    }
    if (!names.insert(name).second)
      throw InvalidArgument(
          c10::str("[Trainer] expected metrics of different names, but got '", name, "' twice"));
    if (cuda_graph && !metric.is_capturable()) {
      throw InvalidArgument(c10::str(
          "[Trainer] expected metrics with for_each_tensor() under cuda_graph, but '", name, "' has none"));
    }
  }
}

}  // namespace lockstep::detail
