#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/training/reporting/records/logs.h"

namespace lockstep {

/// How the numbers of epochs are put into words.
struct FitTextOptions {
  std::string unit = "examples";          ///< of speeds
  std::string validation = "validation";  ///< what the data of validation_ numbers are called
  /// Which of the logs are shown, in this order, where they are there; empty: all.
  std::vector<std::string> names{};
};

/// `epoch 1/5  loss 0.1234  accuracy 0.9612  validation accuracy 0.9745  412 examples/s`
std::string epoch_line(int64_t epoch, int64_t epochs, const Logs& logs, const FitTextOptions& options = {});

/// What all epochs came to, as a table with a line for each, of which the ones in the middle are left out
/// beyond 20, and the best validation accuracy or loss below it. Plain text, with a line end after the last
/// line; empty for no epoch.
std::string fit_table(int64_t first_epoch, const std::vector<Logs>& epochs,
                      const FitTextOptions& options = {});

}  // namespace lockstep
