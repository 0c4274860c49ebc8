#pragma once

#include <optional>
#include <string>

#include "lockstep/training/reporting/records/logs.h"

namespace lockstep {

enum class MonitorMode {
  kAuto,  ///< kMax for accuracy, auc, precision and recall, kMin for anything else
  kMin,
  kMax
};

struct MonitorOptions {
  std::string name = "validation_loss";
  MonitorMode mode = MonitorMode::kAuto;
  double min_delta = 0;  ///< a value counts as better only by more than this
};

/// Watches whether one of an epoch's logs gets better.
class Monitor {
 public:
  /// Throws InvalidArgument for a min_delta below 0; `who` begins the messages.
  Monitor(std::string who, MonitorOptions options);

  const std::string& name() const { return options_.name; }
  /// The best so far.
  std::optional<double> best() const { return best_; }
  /// Takes over the epoch's value, and says whether it is better than all before. NaN never is. Throws
  /// InvalidArgument naming what there is where the logs do not have it.
  bool improves(const Logs& logs);
  /// Goes on from a value that was the best.
  void restore(std::optional<double> best) { best_ = best; }

 private:
  std::string who_;
  MonitorOptions options_;
  bool larger_is_better_;
  std::optional<double> best_;
};

}  // namespace lockstep
