#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/strategies/input/input_times.h"

namespace lockstep::apps {

/// A stage of making batches.
struct InputStage {
  std::string name;
  double seconds = 0;  ///< added up over threads
  int64_t count = 0;   ///< examples that went through it
  int64_t bytes = 0;   ///< 0: not counted
};

/// The stages of a training's input in this process.
struct InputProfile {
  std::string examples = "examples";  ///< their name, such as "rows"
  int64_t count = 0;                  ///< examples trained on
  double seconds = 0;                 ///< duration of the training
  /// Part of `seconds` spent waiting for batches. None: other processes wait for those of this one.
  std::optional<double> waited{};
  std::vector<InputStage> stages{};  ///< those of the threads that make batches
  std::vector<InputStage> ahead{};   ///< those of the threads that read and decode ahead
  double waited_for_ahead = 0;       ///< seconds for which threads that make batches waited for them
};

/// The steps of a training.
struct TrainedSteps {
  int64_t examples = 0;  ///< over all workers
  double seconds = 0;
  std::optional<double> waited{};  ///< as in InputProfile
};

/// Returns the profile of what `times` measured, without what happens ahead.
InputProfile input_profile(const InputTimes& times, const std::string& examples, const TrainedSteps& steps);

/// Returns the stage that limits the training's speed: "training" if it waits for batches for less than 3 %
/// of its time. Otherwise the stage that takes the threads that make batches longest; if these wait longer
/// for what is read ahead, the stage that takes longest of that. Empty if nothing was measured.
std::string limiting_stage(const InputProfile& profile);

/// Returns a table of the stages with their seconds, examples per second and MB/s, and a sentence that says
/// which one limits the training.
std::string input_profile_text(const InputProfile& profile);

}  // namespace lockstep::apps
