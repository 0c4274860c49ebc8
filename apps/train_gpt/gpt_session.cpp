#include "lockstep/apps/train_gpt/gpt_session.h"

#include <c10/util/StringUtil.h>

#include <iomanip>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "lockstep/apps/shared/print.h"
#include "lockstep/apps/shared/run_recording.h"
#include "lockstep/apps/shared/session/guard_callbacks.h"
#include "lockstep/apps/shared/session/loaded_weights.h"
#include "lockstep/apps/train_gpt/options/gpt_flags.h"
#include "lockstep/apps/train_gpt/training/train_gpt.h"
#include "lockstep/models/gpt/gpt_configuration.h"
#include "lockstep/runtime/base/files/output_file.h"
#include "lockstep/runtime/base/internal/utf8_text.h"
#include "lockstep/training/trainer/model_summary.h"

namespace lockstep::apps {
namespace {

constexpr size_t kLongestPrintedSample = 400;

std::string nats(double loss) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(4) << loss;
  return text.str();
}

/// Returns the config.json of Hugging Face for the model; none if neither of its families has such a model.
std::optional<std::string> model_json(const GptOptions& model) {
  try {
    return gpt_configuration_text(model);
  } catch (const std::invalid_argument&) {
    return std::nullopt;
  }
}

}  // namespace

GptSession::GptSession(SessionSetting setting, PreparedGpt gpt)
    : TrainingSession(std::move(setting)), gpt_(std::move(gpt)) {}

FlagTable GptSession::flags() const {
  return gpt_flags(/*strategies=*/{});
}

std::vector<Setting> GptSession::settings() const {
  return gpt_settings(gpt_.facts.options, gpt_.origins);
}

std::vector<Setting> GptSession::resolved_settings() const {
  return gpt_resolved_settings(gpt_.facts);
}

std::string GptSession::configuration() const {
  return gpt_configuration_json(gpt_.facts, gpt_.origins, LOCKSTEP_VERSION);
}

void GptSession::set_changed_settings(std::vector<std::string> changes) {
  gpt_.facts.changed_settings = std::move(changes);
}

NumbersError GptSession::not_finite(const NotFinite::Place& place) const {
  const auto error = not_finite_error(place, c10::str("--learning-rate ", gpt_.facts.options.learning_rate));
  if (not_finite_router_.empty()) return error;
  return NumbersError(
      c10::str(error.what(), "; the first router with NaN or infinity was that of ", not_finite_router_));
}

Callbacks GptSession::make_callbacks(const Log& log) {
  const GptTrainOptions& options = gpt_.facts.options;
  Callbacks callbacks = guard_callbacks(options, log);
  for (auto& callback : gpt_step_callbacks(options, gpt_.facts.plan)) callbacks.push_back(callback);
  callbacks.push_back(std::make_shared<GptLogs>(gpt_.scale));
  add_outcome_callbacks(
      options, options.early_stopping,
      role().is_recorded ? std::optional(RunPaths{role().is_chief ? options.run_dir : "."}) : std::nullopt,
      callbacks);
  return callbacks;
}

std::shared_ptr<RecordRun> GptSession::make_record(const RunPaths& paths) {
  record_model(paths);
  RecordRunOptions options{.title = record_title("train_gpt", gpt_.facts.model, gpt_.facts.replicas),
                           .log_every = gpt_.facts.options.log_every,
                           .examples = "tokens",
                           .parts_per_example = gpt_.facts.plan.sequence_length,
                           .hosts = role().hosts,
                           .began = gpt_.began};
  add_settings(settings(), options);
  auto record = std::make_shared<RecordRun>(paths, options);
  record->set_reference_losses(reference_losses(gpt_.baselines));
  return record;
}

void GptSession::record_model(const RunPaths& paths) const {
  if (const auto text = model_json(gpt_.facts.plan.model)) replace_file(paths.folder + "/model.json", *text);
}

History GptSession::train(const Callbacks& callbacks) {
  History history = train_gpt(
      {.strategy = gpt_.strategy,
       .options = gpt_.facts.options,
       .plan = gpt_.facts.plan,
       .data = gpt_.data,
       .callbacks = callbacks,
       .input_times = input_times(),
       .on_start = [this](torch::nn::Module& model, const LoadReport* weights) { on_start(model, weights); },
       .on_sample = [this](const SampleText& sample) { on_sample(sample); },
       .on_routing =
           [this](ExpertLoad load) {
             if (record()) record()->set_expert_load(std::move(load));
           },
       .on_not_finite_router = [this](const std::string& router) { not_finite_router_ = router; },
       .on_pipeline =
           [this](PipelineRecord pipeline) {
             if (record()) record()->set_pipeline(std::move(pipeline));
           }});
  if (!role().is_silent && !is_interrupted()) print_result(history);
  return history;
}

void GptSession::on_start(torch::nn::Module& model, const LoadReport* weights) {
  record_configuration();
  if (role().is_silent) return;
  if (weights != nullptr) print(loaded_weights_text(gpt_.facts.options.init_weights, *weights));
  print(gpt_configuration_text(gpt_.facts) + "\n" + model_summary(model) + "\n");
}

void GptSession::on_sample(const SampleText& sample) {
  if (record()) record()->add_sample(sample);
  const bool is_first = last_printed_ != sample.title;
  last_printed_ = sample.title;
  if (role().is_silent || !is_first) return;
  print("  " + shortened(sample.prompt + sample.text, kLongestPrintedSample) + "\n");
}

void GptSession::print_result(const History& history) const {
  if (history.epochs.empty()) return;
  const auto loss = history.epochs.back().find("validation_loss");
  if (!loss) return;
  const auto& losses = gpt_.baselines;
  std::string text = "test loss " + nats(*loss) + " nats a token";
  if (losses.best) text += ", " + nats(*loss - *losses.best) + " above the entropy";
  if (losses.bigram && losses.five_gram)
    text += "; bigram model " + nats(*losses.bigram) + ", 5-gram model " + nats(*losses.five_gram);
  print(text + "\n");
}

}  // namespace lockstep::apps
