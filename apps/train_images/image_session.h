#pragma once

#include <torch/nn/module.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/origin.h"
#include "lockstep/apps/shared/session/training_session.h"
#include "lockstep/apps/train_images/data/image_data.h"
#include "lockstep/apps/train_images/options/configuration.h"
#include "lockstep/strategies/core/strategy.h"
#include "lockstep/training/reporting/records/learning_rate_sweep.h"

namespace lockstep::apps {

/// A training of images whose data is loaded and whose values are resolved. The references must outlive the
/// session.
struct PreparedImages {
  Strategy& strategy;
  const ImageData& data;
  const std::map<std::string, Origin>& origins;
  std::chrono::steady_clock::time_point began;  ///< when the program began
  ResolvedRun resolved;
};

/// Trains an image classifier.
class ImageSession : public TrainingSession {
 public:
  ImageSession(SessionSetting setting, PreparedImages images);

 private:
  const RunChoice& choice() const override { return images_.resolved.options; }
  int64_t epochs() const override { return images_.resolved.options.epochs; }
  std::string name_of_examples() const override { return "images"; }
  FlagTable flags() const override;
  std::vector<Setting> settings() const override;
  std::vector<Setting> resolved_settings() const override;
  std::string configuration() const override;
  void set_changed_settings(std::vector<std::string> changes) override;
  NumbersError not_finite(const NotFinite::Place& place) const override;
  Callbacks make_callbacks(const Log& log) override;
  std::shared_ptr<RecordRun> make_record(const RunPaths& paths) override;
  History train(const Callbacks& callbacks) override;

  /// Writes and prints the values of the run once the model exists.
  void on_start(torch::nn::Module& model);
  /// Prints the result of --find-learning-rate, and draws it in the run directory.
  void on_sweep(const LearningRateSweep& sweep);

  PreparedImages images_;
};

}  // namespace lockstep::apps
