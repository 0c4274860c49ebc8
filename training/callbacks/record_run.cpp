#include "lockstep/training/callbacks/record_run.h"

#include <c10/util/StringUtil.h>
#include <torch/utils.h>

#include <algorithm>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/training/callbacks/internal/step_memory.h"
#include "lockstep/training/reporting/html/report.h"
#include "lockstep/training/state/memory_by_part.h"
#include "lockstep/training/state/memory_of_ranks.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

}  // namespace

RecordRun::RecordRun(const RunPaths& paths, const RecordRunOptions& options)
    : paths_(paths),
      options_(options),
      tensorboard_({.folder = paths.tensorboard(),
                    .hyperparameters = options.hyperparameters,
                    .log_every = std::max<int64_t>(options.log_every, 1),
                    .histograms = options.histograms}) {
  tensorboard_.keep_session();
  if (options.log_every < 1) {
    throw InvalidArgument(
        c10::str("[RecordRun] expected log_every of 1 or more steps, but got ", options.log_every));
  }
  if (options.parts_per_example < 1) {
    throw InvalidArgument(
        c10::str("[RecordRun] expected parts_per_example of 1 or more, but got ", options.parts_per_example));
  }
  record_.title = options.title;
  record_.examples = options.examples;
  record_.configuration = options.configuration;
}

RecordRun::~RecordRun() = default;

void RecordRun::on_fit_begin(FitState& state) {
  training_began_.reset();
  if (!state.is_chief()) return;
  record_.start = RunStart::now();
  if (!options_.hosts.empty()) record_.start.hosts = options_.hosts;
  csv_.emplace(paths_.metrics_csv());
  json_lines_.emplace(paths_.metrics_jsonl());
  json_lines_->write(with_kind("start", metric_row(record_.start)));
  tensorboard_.on_fit_begin(state);
  step_memory_ = std::make_unique<StepMemory>(options_.counts_activations);
}

void RecordRun::on_epoch_begin(FitState& state) {
  if (csv_) tensorboard_.on_epoch_begin(state);
  steps_.begin_epoch(state);
  examples_before_ = state.examples;
  if (training_began_) return;
  training_began_ = Clock::now();
  record_.totals.steps_before = state.global_step;
}

void RecordRun::on_step_begin(FitState& state) {
  if (step_memory_) step_memory_->on_step_begin(state);
}

void RecordRun::measure_memory(const FitState& state) {
  const auto& objects = state.objects();
  record_.memory = memory_by_part(objects.strategy, objects.modules, objects.optimizers);
  record_.memory->activations = step_memory_->bytes();
  record_.memory->ranks = memory_of_ranks(objects.strategy, objects.modules, objects.optimizers);
  add_peak(*record_.memory, objects.strategy);
}

void RecordRun::on_step_end(FitState& state) {
  if (step_memory_ && step_memory_->on_step_end(state)) measure_memory(state);
  record_.totals.images += (state.examples - examples_before_) * options_.parts_per_example;
  examples_before_ = state.examples;
  if (!json_lines_ || state.global_step % options_.log_every != 0) return;
  record_.steps.push_back(steps_.next(state));
  count_parts(record_.steps.back().images_per_second);
  json_lines_->write(with_kind("step", metric_row(record_.steps.back())));
  tensorboard_.add_step(record_.steps.back());
}

void RecordRun::on_epoch_end(FitState& state) {
  record_.totals.epochs = state.epoch;
  if (!csv_) return;
  record_.epochs.push_back(epoch_record(state, steps_.seconds()));
  count_parts(record_.epochs.back().images_per_second);
  write_epoch(record_.epochs.back());
  tensorboard_.on_epoch_end(state);
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

void RecordRun::count_parts(std::optional<double>& examples) const {
  if (examples) *examples *= static_cast<double>(options_.parts_per_example);
}

void RecordRun::set_reference_losses(std::vector<ReferenceLoss> losses) {
  std::sort(losses.begin(), losses.end(), [](const auto& a, const auto& b) { return a.loss < b.loss; });
  record_.reference_losses = std::move(losses);
}

void RecordRun::write_epoch(const EpochRecord& epoch) {
  csv_->write(metric_row(epoch));
  json_lines_->write(with_kind("epoch", metric_row(epoch)));
}

void RecordRun::on_fit_end(FitState& state) {
  record_.totals.steps = state.global_step;
  if (!step_memory_) return;
  if (!record_.memory) measure_memory(state);
  add_peak(*record_.memory, state.strategy());
  step_memory_.reset();
}

void RecordRun::set_misclassified(std::vector<MisclassifiedImage> images, int64_t num_all) {
  record_.misclassified = std::move(images);
  record_.num_misclassified = num_all;
  for (size_t i = 0; i < record_.misclassified.size(); ++i) {
    const auto& image = record_.misclassified[i];
    const std::string place = c10::str("misclassified/", i + 1, ": ", image.true_class, " as ");
    tensorboard_.add_validation_image(place + image.predicted_class, image.png, record_.totals.steps);
  }
}

void RecordRun::finish(RunStatus status, const std::string& reason) {
  if (!csv_) return;
  auto& totals = record_.totals;
  totals.status = status;
  totals.reason = reason;
  const auto now = Clock::now();
  totals.seconds = seconds_between(training_began_.value_or(now), now);
  totals.start_up_seconds = seconds_between(options_.began, training_began_.value_or(now));
  if (!record_.steps.empty()) totals.steps = std::max(totals.steps, record_.steps.back().step);
  step_memory_.reset();
  if (record_.memory) {
    json_lines_->write(with_kind("memory", metric_row(*record_.memory)));
    for (const auto& rank : record_.memory->ranks)
      json_lines_->write(with_kind("memory_of_rank", metric_row(rank)));
  }
  if (record_.pipeline) {
    json_lines_->write(with_kind("pipeline", metric_row(*record_.pipeline)));
    for (const auto& action : record_.pipeline->actions)
      json_lines_->write(with_kind("pipeline_action", metric_row(action)));
  }
  json_lines_->write(with_kind("end", metric_row(totals)));
  tensorboard_.end_session(status == RunStatus::kFailed ? SessionStatus::kFailure : SessionStatus::kSuccess);
  write_report(record_, paths_.report());
}

}  // namespace lockstep
