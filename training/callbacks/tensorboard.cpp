#include "lockstep/training/callbacks/tensorboard.h"

#include <c10/util/StringUtil.h>
#include <torch/types.h>

#include <span>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

/// TensorBoard's HPARAMS tab does not find metrics in a folder next to the session's own, so the validation
/// results are repeated there.
std::string session_tag(const std::string& name) {
  return "hparams/" + name;
}

/// Returns nothing for parameters that are not floating-point: their histogram would say little.
std::optional<ValueHistogram> histogram_of(const torch::Tensor& tensor) {
  if (!tensor.is_floating_point() || tensor.numel() == 0) return std::nullopt;
  const auto values = tensor.detach().to(torch::kCPU, torch::kFloat).contiguous();
  return make_histogram(
      std::span<const float>(values.const_data_ptr<float>(), static_cast<size_t>(values.numel())));
}

}  // namespace

TensorBoard::TensorBoard(const TensorBoardOptions& options) : options_(options) {
  if (options.folder.empty()) throw InvalidArgument("[TensorBoard] expected a folder, but got none");
  if (options.log_every < 1) {
    throw InvalidArgument(
        c10::str("[TensorBoard] expected log_every of 1 or more steps, but got ", options.log_every));
  }
}

void TensorBoard::on_fit_begin(FitState&) {
  training_.reset();
  validation_.reset();
}

/// Opens the files with the first epoch, so that a finished fit that is started again leaves none.
void TensorBoard::begin_session(const FitState& state) {
  if (training_ || !state.is_chief()) return;
  training_.emplace(options_.folder + "/train");
  validation_.emplace(options_.folder + "/validation");
  HyperparameterSession session{.values = options_.hyperparameters};
  for (const char* metric : {"loss", "accuracy"}) {
    session.metrics.push_back({.tag = metric, .title = metric});
    session.metrics.push_back({.tag = session_tag(std::string("validation_") + metric),
                               .title = std::string("validation ") + metric});
  }
  training_->start_session(session);
}

void TensorBoard::on_epoch_begin(FitState& state) {
  begin_session(state);
  steps_.begin_epoch(state);
}

void TensorBoard::on_step_end(FitState& state) {
  if (training_ && state.global_step % options_.log_every == 0) add_step(steps_.next(state));
}

void TensorBoard::add_step(const StepRecord& step) {
  if (!training_) return;
  const EventTime when{.step = step.step};
  if (step.loss) training_->scalar("step/loss", *step.loss, when);
  if (step.images_per_second) training_->scalar("step/images_per_second", *step.images_per_second, when);
  if (step.learning_rate) training_->scalar("step/learning_rate", *step.learning_rate, when);
}

void TensorBoard::on_epoch_end(FitState& state) {
  if (!training_) return;
  const EventTime when{.step = state.global_step};
  for (const auto& [name, value] : state.logs) {
    const std::string prefix = "validation_";
    if (name.starts_with(prefix)) {
      validation_->scalar(name.substr(prefix.size()), value, when);
      training_->scalar(session_tag(name), value, when);
    } else {
      training_->scalar(name, value, when);
    }
  }
  if (options_.histograms) write_histograms(state);
}

void TensorBoard::write_histograms(const FitState& state) {
  const EventTime when{.step = state.global_step};
  for (const auto& parameter : state.objects().modules.front()->named_parameters()) {
    if (const auto histogram = histogram_of(parameter.value()))
      training_->histogram("parameters/" + parameter.key(), *histogram, when);
  }
}

void TensorBoard::on_fit_end(FitState&) {
  if (ends_session_) end_session(SessionStatus::kSuccess);
}

void TensorBoard::add_validation_image(const std::string& tag, const std::vector<uint8_t>& png,
                                       int64_t step) {
  if (validation_) validation_->image(tag, png, {.step = step});
}

void TensorBoard::end_session(SessionStatus status) {
  if (training_) training_->end_session(status);
}

}  // namespace lockstep
