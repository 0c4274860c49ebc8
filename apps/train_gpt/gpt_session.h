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
#include "lockstep/apps/train_gpt/data/baselines.h"
#include "lockstep/apps/train_gpt/data/gpt_data.h"
#include "lockstep/apps/train_gpt/options/gpt_facts.h"
#include "lockstep/apps/train_gpt/training/gpt_logs.h"
#include "lockstep/strategies/core/strategy.h"
#include "lockstep/training/state/state_dict.h"

namespace lockstep::apps {

/// A training of a language model whose data is open and whose values are resolved. The references must
/// outlive the session.
struct PreparedGpt {
  Strategy& strategy;
  const GptData& data;
  const Baselines& baselines;
  GptScale scale;
  const std::map<std::string, Origin>& origins;
  std::chrono::steady_clock::time_point began;  ///< when the program began
  GptFacts facts;
};

/// Trains a language model.
class GptSession : public TrainingSession {
 public:
  GptSession(SessionSetting setting, PreparedGpt gpt);

 private:
  const RunChoice& choice() const override { return gpt_.facts.options; }
  int64_t epochs() const override { return gpt_.facts.plan.epochs; }
  std::string flag_of_length() const override { return "--steps"; }
  std::string name_of_examples() const override { return "sequences"; }
  FlagTable flags() const override;
  std::vector<Setting> settings() const override;
  std::vector<Setting> resolved_settings() const override;
  std::string configuration() const override;
  void set_changed_settings(std::vector<std::string> changes) override;
  NumbersError not_finite(const NotFinite::Place& place) const override;
  Callbacks make_callbacks(const Log& log) override;
  std::shared_ptr<RecordRun> make_record(const RunPaths& paths) override;
  History train(const Callbacks& callbacks) override;

  /// Writes what export_weights needs besides the weights.
  void record_model(const RunPaths& paths) const;
  /// Writes and prints the values of the run once the model exists.
  void on_start(torch::nn::Module& model, const LoadReport* weights);
  void on_sample(const SampleText& sample);
  void print_result(const History& history) const;

  PreparedGpt gpt_;
  std::string last_printed_;       // title of the last sample
  std::string not_finite_router_;  // the first one whose numbers were NaN or infinite
};

}  // namespace lockstep::apps
