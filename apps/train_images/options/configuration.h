#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/apps/train_images/options/train_options.h"

namespace lockstep::apps {

/// Values that were resolved from the options, for the log.
struct ResolvedRun {
  TrainOptions options;
  TrainPlan plan;
  std::string data;  ///< which images, and why
  std::string hint;  ///< lines printed after `data`; may be empty
  int64_t num_train = 0;
  int64_t num_test = 0;
  std::vector<std::string> skipped;  ///< one message for each image that was left out
  int64_t num_classes = 0;
  int64_t channels = 0;
  std::string strategy;  ///< its name, and why it was chosen
  std::string replicas;  ///< how the strategy runs
  int num_replicas = 1;
  int threads = 0;  ///< threads per replica
  int64_t num_parameters = 0;
  std::vector<std::string> changed_settings;  ///< since the checkpoint that this process resumes from
};

/// The file in the run directory that lists ResolvedRun::skipped.
inline constexpr const char* kSkippedImagesFile = "skipped_images.txt";

/// Returns every value of the run, one per line, ending with a newline.
std::string configuration_text(const ResolvedRun& run);

}  // namespace lockstep::apps
