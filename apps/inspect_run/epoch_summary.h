#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/training/reporting/records/metrics_log.h"

namespace lockstep::apps {

/// Returns the entry called `name`, or null.
const MetricValue* find_value(const MetricRow& row, const std::string& name);
/// Returns a number of the row, or none. Also accepts JSON's texts "nan", "inf" and "-inf".
std::optional<double> find_number(const MetricRow& row, const std::string& name);

/// The best epoch, by the first of these metrics that has a number: validation_accuracy, validation_loss,
/// accuracy, loss.
struct BestEpoch {
  size_t index = 0;              ///< among all epochs of the run
  std::optional<double> number;  ///< as the run numbered it
  std::string metric;
  double value = 0;
};

/// The epochs of a run as they are read, in memory that does not grow with their number. Not thread-safe.
class EpochSummary {
 public:
  /// Keeps the rows of the last `num_kept` epochs.
  explicit EpochSummary(size_t num_kept = kFew) : num_kept_(num_kept) {}

  void add(MetricRow row);

  size_t count() const { return count_; }
  /// Returns the rows that were kept, the last epoch's at the end.
  std::vector<MetricRow> last() const;
  std::optional<BestEpoch> best() const;
  /// Returns whether any epoch has a number for a metric of epochs.
  bool has_number(const std::string& metric) const { return metrics_.contains(metric); }

 private:
  static constexpr size_t kFew = 5;

  size_t num_kept_;
  size_t count_ = 0;
  std::vector<MetricRow> kept_;  // a ring: epoch i is at i % num_kept_
  std::array<std::optional<BestEpoch>, 4> best_;
  std::set<std::string> metrics_;
};

}  // namespace lockstep::apps
