#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/apps/train_ctr/ctr_options.h"
#include "lockstep/apps/train_ctr/ctr_report.h"
#include "lockstep/strategies/core/strategy.h"
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
  /// `metrics` may be null. `options` and `strategy` must outlive it.
  CtrMetrics(std::shared_ptr<TrainingMetrics> metrics, const CtrOptions& options, Strategy& strategy)
      : metrics_(std::move(metrics)), options_(options), strategy_(strategy) {}

  /// Leaves out the time and the replicas' waits before, such as those of a test.
  void begin();
  /// Counts a step with its loss; `counts` are those after it.
  void step_done(double loss, const CtrCounts& counts);
  void set_test_scores(const CtrScores& scores);
  bool is_on() const { return metrics_ != nullptr; }

 private:
  void count_workers(const WorkerSeconds& workers);
  void count_replica_waits();

  std::shared_ptr<TrainingMetrics> metrics_;
  const CtrOptions& options_;
  Strategy& strategy_;
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  int64_t rows_ = 0;                   // as counted so far
  double data_wait_seconds_ = 0;       // likewise
  WorkerSeconds workers_;              // likewise
  std::vector<double> replica_waits_;  // likewise, of each local replica
};

}  // namespace lockstep::apps
