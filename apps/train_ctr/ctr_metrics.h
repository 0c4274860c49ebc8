#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "lockstep/apps/train_ctr/ctr_options.h"
#include "lockstep/apps/train_ctr/ctr_report.h"
#include "lockstep/training/reporting/prometheus/training_metrics.h"

namespace lockstep::apps {

/// Counts of a training that its metrics show.
struct CtrCounts {
  int64_t rows = 0;  ///< trained on so far
  double data_wait_seconds = 0;
  std::optional<WorkerSeconds> workers{};  ///< of parameter servers
};

/// Fills the metrics of a training of clicks as it proceeds. Does nothing without metrics.
class CtrMetrics {
 public:
  /// `metrics` may be null.
  CtrMetrics(std::shared_ptr<TrainingMetrics> metrics, const CtrOptions& options)
      : metrics_(std::move(metrics)), options_(options) {}

  /// Leaves out the time before, such as that of a test.
  void begin();
  /// Counts a step with its loss; `counts` are those after it.
  void step_done(double loss, const CtrCounts& counts);
  void set_test_scores(const CtrScores& scores);
  bool is_on() const { return metrics_ != nullptr; }

 private:
  std::shared_ptr<TrainingMetrics> metrics_;
  const CtrOptions& options_;
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  int64_t rows_ = 0;              // as counted so far
  double data_wait_seconds_ = 0;  // likewise
  WorkerSeconds workers_;         // likewise
};

}  // namespace lockstep::apps
