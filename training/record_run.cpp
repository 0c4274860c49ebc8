#include "lockstep/training/record_run.h"

#include <c10/util/StringUtil.h>
#include <torch/utils.h>

#include <algorithm>
#include <utility>

#include "lockstep/runtime/errors.h"
#include "lockstep/training/report.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_after(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

EpochRecord epoch_record(const FitState& state, double seconds) {
  EpochRecord epoch{.epoch = state.epoch, .step = state.global_step, .seconds = seconds};
  const std::pair<const char*, std::optional<double>*> places[] = {
      {"loss", &epoch.loss},
      {"accuracy", &epoch.accuracy},
      {"validation_loss", &epoch.validation_loss},
      {"validation_accuracy", &epoch.validation_accuracy},
      {"learning_rate", &epoch.learning_rate},
      {"examples_per_second", &epoch.images_per_second},
      {"data_wait", &epoch.data_wait_share}};
  for (const auto& [name, value] : state.logs) {
    bool is_placed = false;
    for (const auto& [known, place] : places) {
      if (name != known) continue;
      *place = value;
      is_placed = true;
    }
    if (!is_placed) epoch.others.emplace_back(name, value);
  }
  return epoch;
}

/// TensorBoard's HPARAMS tab finds a session's metrics in the session's own event file alone, whatever folder
/// --logdir names; so what the validation came to stands there once more.
std::string session_tag(const std::string& name) {
  return "hparams/" + name;
}

/// Float32 and float64 parameters; others have no histogram that says something.
std::optional<ValueHistogram> histogram_of(const torch::Tensor& tensor) {
  if (!tensor.is_floating_point() || tensor.numel() == 0) return std::nullopt;
  const auto values = tensor.detach().to(torch::kCPU, torch::kFloat).contiguous();
  return make_histogram(
      std::span<const float>(values.const_data_ptr<float>(), static_cast<size_t>(values.numel())));
}

}  // namespace

RecordRun::RecordRun(const RunPaths& paths, const RecordRunOptions& options)
    : paths_(paths), options_(options) {
  if (options.log_every < 1) {
    throw InvalidArgument(
        c10::str("[RecordRun] expected log_every of 1 or more steps, but got ", options.log_every));
  }
  record_.title = options.title;
  record_.configuration = options.configuration;
}

void RecordRun::on_fit_begin(FitState& state) {
  fit_began_ = Clock::now();
  if (!state.is_chief()) return;
  csv_.emplace(paths_.metrics_csv());
  json_lines_.emplace(paths_.metrics_jsonl());
  train_events_.emplace(paths_.tensorboard() + "/train");
  validation_events_.emplace(paths_.tensorboard() + "/validation");
  HyperparameterSession session{.values = options_.hyperparameters};
  for (const char* metric : {"loss", "accuracy"}) {
    session.metrics.push_back({.tag = metric, .title = metric});
    session.metrics.push_back({.tag = session_tag(std::string("validation_") + metric),
                               .title = std::string("validation ") + metric});
  }
  train_events_->start_session(session);
}

void RecordRun::on_epoch_begin(FitState&) {
  epoch_began_ = Clock::now();
  last_ = {};
}

void RecordRun::on_step_end(FitState& state) {
  if (train_events_ && state.global_step % options_.log_every == 0)
    add_step(state, seconds_after(epoch_began_));
}

void RecordRun::add_step(const FitState& state, double seconds) {
  StepRecord step{.step = state.global_step, .learning_rate = state.learning_rate()};
  const auto [loss_sum, losses] = state.local_loss();
  const Window now{.seconds = seconds, .loss_sum = loss_sum, .losses = losses, .examples = state.examples};
  const auto examples = static_cast<double>(now.examples - last_.examples);
  if (now.losses > last_.losses) step.loss = (now.loss_sum - last_.loss_sum) / (now.losses - last_.losses);
  if (now.seconds > last_.seconds) step.images_per_second = examples / (now.seconds - last_.seconds);
  last_ = now;
  json_lines_->write(with_kind("step", metric_row(step)));
  const EventTime when{.step = step.step};
  if (step.loss) train_events_->scalar("step/loss", *step.loss, when);
  if (step.images_per_second) train_events_->scalar("step/images_per_second", *step.images_per_second, when);
  train_events_->scalar("step/learning_rate", *step.learning_rate, when);
  record_.steps.push_back(std::move(step));
}

void RecordRun::on_epoch_end(FitState& state) {
  record_.totals.images += state.examples;
  record_.totals.epochs = state.epoch;
  if (!csv_) return;
  record_.epochs.push_back(epoch_record(state, seconds_after(epoch_began_)));
  write_epoch(record_.epochs.back());
  const EventTime when{.step = state.global_step};
  for (const auto& [name, value] : state.logs) {
    const std::string prefix = "validation_";
    if (name.starts_with(prefix)) {
      validation_events_->scalar(name.substr(prefix.size()), value, when);
      train_events_->scalar(session_tag(name), value, when);
    } else {
      train_events_->scalar(name, value, when);
    }
  }
  if (options_.histograms) write_histograms(state);
  for (const auto& [name, tensor] : state.tensors) {
    if (name != options_.confusion || tensor.dim() != 2) continue;
    ConfusionCounts confusion{.class_names = options_.class_names};
    for (int64_t i = static_cast<int64_t>(confusion.class_names.size()); i < tensor.size(0); ++i)
      confusion.class_names.push_back(std::to_string(i));
    const auto counts = tensor.round().to(torch::kCPU, torch::kLong).contiguous();
    confusion.counts.assign(counts.const_data_ptr<int64_t>(),
                            counts.const_data_ptr<int64_t>() + counts.numel());
    record_.confusion = std::move(confusion);
  }
}

void RecordRun::write_epoch(const EpochRecord& epoch) {
  csv_->write(metric_row(epoch));
  json_lines_->write(with_kind("epoch", metric_row(epoch)));
}

void RecordRun::write_histograms(const FitState& state) {
  const EventTime when{.step = state.global_step};
  for (const auto& parameter : state.objects().modules.front()->named_parameters()) {
    if (const auto histogram = histogram_of(parameter.value()))
      train_events_->histogram("parameters/" + parameter.key(), *histogram, when);
  }
}

void RecordRun::on_fit_end(FitState& state) {
  record_.totals.steps = state.global_step;
}

void RecordRun::set_misclassified(std::vector<MisclassifiedImage> images, int64_t num_all) {
  record_.misclassified = std::move(images);
  record_.num_misclassified = num_all;
  if (!validation_events_) return;
  for (size_t i = 0; i < record_.misclassified.size(); ++i) {
    const auto& image = record_.misclassified[i];
    const std::string place = c10::str("misclassified/", i + 1, ": ", image.true_class, " as ");
    validation_events_->image(place + image.predicted_class, image.png, {.step = record_.totals.steps});
  }
}

void RecordRun::finish(RunStatus status, const std::string& reason) {
  if (!csv_) return;
  auto& totals = record_.totals;
  totals.status = status;
  totals.reason = reason;
  totals.seconds = seconds_after(fit_began_);
  if (!record_.steps.empty()) totals.steps = std::max(totals.steps, record_.steps.back().step);
  json_lines_->write(with_kind("end", metric_row(totals)));
  train_events_->end_session(status == RunStatus::kFailed ? SessionStatus::kFailure
                                                          : SessionStatus::kSuccess);
  write_report(record_, paths_.report());
}

}  // namespace lockstep
