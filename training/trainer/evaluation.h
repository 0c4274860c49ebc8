#pragma once

#include <torch/types.h>

#include <string>
#include <utility>
#include <vector>

#include "lockstep/training/reporting/records/logs.h"

namespace lockstep {

/// Results of a pass over a dataset.
struct Evaluation {
  Logs logs;                                                     ///< Loss and all metrics that are numbers.
  std::vector<std::pair<std::string, torch::Tensor>> tensors{};  ///< The others, such as a confusion matrix.
  int64_t examples = 0;  ///< Number of examples over all workers, each counted once.
};

}  // namespace lockstep
