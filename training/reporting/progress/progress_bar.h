#pragma once

#include <cstdint>
#include <string>

#include "lockstep/training/reporting/records/logs.h"

namespace lockstep {

/// How far an epoch's training, or its test, has come.
struct Progress {
  std::string label;  ///< such as `epoch 1/5`
  int64_t step = 0;
  int64_t steps = 0;     ///< 0: only the end will show
  double seconds = 0;    ///< since it began
  int64_t examples = 0;  ///< done in that time
  Logs values{};         ///< such as the loss so far
  std::string unit = "examples";
};

struct BarStyle {
  int width = 80;  ///< columns of the terminal
  bool unicode = true;
  bool color = false;
};

/// One line for a terminal, at most `width` - 1 columns, without a line end:
/// `epoch 1/5  37%|███▊      | 347/938 [00:31<00:53, 412 images/s, loss 0.1234, accuracy 0.9612]`, where the
/// times are those gone by and those to come. What does not fit is left out from the right.
std::string render_bar(const Progress& progress, const BarStyle& style);

/// The same without a bar, for a log: `epoch 1/5  step 347/938  loss 0.1234 ...  412 images/s  00:53 left`.
std::string render_line(const Progress& progress);

}  // namespace lockstep
