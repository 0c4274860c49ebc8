#pragma once

#include <torch/types.h>

#include <string>
#include <utility>
#include <vector>

#include "lockstep/training/reporting/records/logs.h"

namespace lockstep {

/// What a pass over a dataset came to.
struct Evaluation {
  Logs logs;                                                     ///< loss, and the metrics that are numbers
  std::vector<std::pair<std::string, torch::Tensor>> tensors{};  ///< the others, such as a confusion matrix
  int64_t examples = 0;                                          ///< each counted once, over all workers
};

}  // namespace lockstep
