#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/training/reporting/records/logs.h"

namespace lockstep {

/// Options for showing the numbers of epochs as text.
struct FitTextOptions {
  std::string unit = "examples";          ///< unit of speeds, without the `/s`
  int64_t units_per_example = 1;          ///< such as the tokens of a sequence
  std::string validation = "validation";  ///< word shown for the validation_ prefix
  /// Names of the logs to show, in this order, if present; empty: all.
  std::vector<std::string> names{};
};

/// Returns one line, such as
///
///     epoch 1/5  loss 0.1234  accuracy 0.9612  validation accuracy 0.9745  412 examples/s
std::string epoch_line(int64_t epoch, int64_t epochs, const Logs& logs, const FitTextOptions& options = {});

/// Returns a table with a line for each epoch, followed by the best validation accuracy or loss. If there are
/// more than 20 epochs, the middle ones are left out. Plain text with a final line end; empty if there are no
/// epochs.
std::string fit_table(int64_t first_epoch, const std::vector<Logs>& epochs,
                      const FitTextOptions& options = {});

}  // namespace lockstep
