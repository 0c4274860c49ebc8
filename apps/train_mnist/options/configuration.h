#pragma once

#include <cstdint>
#include <string>

#include "lockstep/apps/train_mnist/options/train_options.h"

namespace lockstep::apps {

/// What came out of the options, for the reader of a log.
struct ResolvedRun {
  TrainOptions options;
  TrainPlan plan;
  std::string data;  ///< which images, and why
  std::string hint;  ///< lines to follow it; may be empty
  int64_t num_train = 0;
  int64_t num_test = 0;
  int64_t num_skipped = 0;
  int64_t num_classes = 0;
  int64_t channels = 0;
  std::string strategy;  ///< name: why
  std::string replicas;  ///< how it runs
  int num_replicas = 1;
  int threads = 0;  ///< of each replica
  int64_t num_parameters = 0;
};

/// Every value of the run, one a line, with a line end after the last.
std::string configuration_text(const ResolvedRun& run);

}  // namespace lockstep::apps
