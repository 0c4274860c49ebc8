#pragma once

#include <cstdint>
#include <string>

#include "lockstep/training/reporting/records/logs.h"

namespace lockstep {

/// Progress of an epoch's training or validation.
struct Progress {
  std::string label;  ///< such as `epoch 1/5`
  int64_t step = 0;
  int64_t steps = 0;     ///< 0: not known until the end
  double seconds = 0;    ///< since the training or validation began
  int64_t examples = 0;  ///< examples done in that time
  Logs values{};         ///< values to show, such as the loss so far
  std::string unit = "examples";
};

struct BarStyle {
  int width = 80;  ///< columns of the terminal
  bool unicode = true;
  bool color = false;
};

/// Returns one line for a terminal, at most `width` - 1 columns and without a line end, such as
///
///     epoch 1/5  37%|███▊      | 347/938 [00:31<00:53, 412 images/s, loss 0.1234, accuracy 0.9612]
///
/// The two times are the elapsed and the remaining time. Values that do not fit are left out, from the right.
std::string render_bar(const Progress& progress, const BarStyle& style);

/// Returns the same without a bar, for a log, such as
///
///     epoch 1/5  step 347/938  loss 0.1234  412 images/s  00:53 left
std::string render_line(const Progress& progress);

}  // namespace lockstep
