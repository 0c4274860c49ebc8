#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/training/reporting/records/logs.h"

namespace lockstep {

enum class MonitorMode {
  kAuto,  ///< kMax if the name contains accuracy, auc, precision or recall, else kMin
  kMin,
  kMax
};

struct MonitorOptions {
  std::string name = "validation_loss";
  MonitorMode mode = MonitorMode::kAuto;
  double min_delta = 0;  ///< a value must be better by more than this
};

/// Tracks whether one of an epoch's logs improves.
///
/// Example:
///
///     Monitor monitor("MyCallback", {.name = "validation_accuracy"});
///     if (monitor.improves(state.logs)) best_epoch = state.epoch;
class Monitor {
 public:
  /// `who` starts the error messages. Throws InvalidArgument if min_delta is negative.
  Monitor(std::string who, MonitorOptions options);

  const std::string& who() const { return who_; }
  const std::string& name() const { return options_.name; }
  /// Returns whether the monitored name is in `names`, the logs that are known before the first epoch. Throws
  /// InvalidArgument if it belongs to a validation that does not take place, or is spelled as in Keras:
  /// val_loss for validation_loss. Other names may still be added by a callback.
  bool is_known(const std::vector<std::string>& names) const;
  /// Returns the best value so far.
  std::optional<double> best() const { return best_; }
  /// Returns whether the epoch's value is better than all before, and remembers it if so. NaN is never
  /// better. Throws InvalidArgument listing the available names if the logs lack the monitored one.
  bool improves(const Logs& logs);
  /// Sets the best value so far.
  void restore(std::optional<double> best) { best_ = best; }

 private:
  [[noreturn]] void refuse(const std::vector<std::string>& names) const;

  std::string who_;
  MonitorOptions options_;
  bool larger_is_better_;
  std::optional<double> best_;
};

}  // namespace lockstep
