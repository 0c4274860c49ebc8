#include "lockstep/apps/train_images/image_session.h"

#include <c10/util/StringUtil.h>

#include <optional>
#include <utility>

#include "lockstep/apps/shared/print.h"
#include "lockstep/apps/shared/session/loaded_weights.h"
#include "lockstep/apps/train_images/options/flags.h"
#include "lockstep/apps/train_images/options/train_settings.h"
#include "lockstep/apps/train_images/training/image_record.h"
#include "lockstep/apps/train_images/training/numbers_error.h"
#include "lockstep/apps/train_images/training/training.h"
#include "lockstep/apps/train_images/training/training_callbacks.h"
#include "lockstep/training/reporting/html/learning_rate_plot.h"
#include "lockstep/training/trainer/model_summary.h"

namespace lockstep::apps {

ImageSession::ImageSession(SessionSetting setting, PreparedImages images)
    : TrainingSession(std::move(setting)), images_(std::move(images)) {}

FlagTable ImageSession::flags() const {
  return train_flags(/*strategies=*/{});
}

std::vector<Setting> ImageSession::settings() const {
  return settings_of(images_.resolved.options, images_.origins);
}

std::vector<Setting> ImageSession::resolved_settings() const {
  return apps::resolved_settings(images_.resolved);
}

std::string ImageSession::configuration() const {
  return run_configuration(images_.resolved, images_.origins, LOCKSTEP_VERSION);
}

void ImageSession::set_changed_settings(std::vector<std::string> changes) {
  images_.resolved.changed_settings = std::move(changes);
}

NumbersError ImageSession::not_finite(const NotFinite::Place& place) const {
  return apps::not_finite(place, images_.resolved.options, images_.resolved.plan);
}

Callbacks ImageSession::make_callbacks(const Log& log) {
  const TrainOptions& options = images_.resolved.options;
  return training_callbacks(
      options, images_.resolved.plan,
      role().is_recorded ? std::optional(RunPaths{role().is_chief ? options.run_dir : "."}) : std::nullopt,
      log);
}

std::shared_ptr<RecordRun> ImageSession::make_record(const RunPaths& paths) {
  return apps::make_record(paths, images_.resolved, images_.origins, images_.data, role().hosts,
                           images_.began);
}

History ImageSession::train(const Callbacks& callbacks) {
  return apps::train({.strategy = images_.strategy,
                      .options = images_.resolved.options,
                      .plan = images_.resolved.plan,
                      .data = images_.data,
                      .callbacks = callbacks,
                      .input_times = input_times(),
                      .is_recorded = role().is_recorded,
                      .record = record(),
                      .on_start = [this](torch::nn::Module& model) { on_start(model); },
                      .on_weights =
                          [this](const LoadReport& report) {
                            if (!role().is_silent)
                              print(loaded_weights_text(images_.resolved.options.init_weights, report));
                          },
                      .on_sweep = [this](const LearningRateSweep& sweep) { on_sweep(sweep); },
                      .is_interrupted = [this] { return is_interrupted(); }});
}

void ImageSession::on_start(torch::nn::Module& model) {
  images_.resolved.num_parameters = count_parameters(model);
  record_configuration();
  if (!role().is_silent) print(configuration_text(images_.resolved) + "\n" + model_summary(model) + "\n");
}

void ImageSession::on_sweep(const LearningRateSweep& sweep) {
  if (paths()) write_learning_rate_plot(sweep, paths()->folder + "/learning_rate.html");
  if (role().is_silent) return;
  print(sweep.suggestion ? c10::str("suggested learning rate: ", *sweep.suggestion, "\n")
                         : "no suggestion: the loss fell at no learning rate\n");
}

}  // namespace lockstep::apps
