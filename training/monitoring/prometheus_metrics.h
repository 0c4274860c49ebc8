#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/training/callbacks/fit_records.h"
#include "lockstep/training/reporting/prometheus/training_metrics.h"
#include "lockstep/training/trainer/callback.h"

namespace lockstep {

struct PrometheusMetricsOptions {
  /// Steps between two readings of loss, learning rate and device memory. Reading the loss waits for the
  /// devices.
  int64_t log_every = 10;
};

/// Fills TrainingMetrics during a fit, so that Prometheus can watch it: steps, examples, speed, loss,
/// learning rate, waits for input and for other replicas, memory of GPUs, the logs of each epoch, undone
/// steps and restarts of the job. Every worker serves its own metrics. Pass it after callbacks that add to
/// the logs.
///
/// Example:
///
///     auto metrics = std::make_shared<TrainingMetrics>(TrainingMetricsOptions{.port = 9400});
///     trainer.fit(batches, {.epochs = 5, .callbacks = {std::make_shared<PrometheusMetrics>(metrics)}});
class PrometheusMetrics : public Callback {
 public:
  /// Throws InvalidArgument if `metrics` is null or log_every is below 1.
  explicit PrometheusMetrics(std::shared_ptr<TrainingMetrics> metrics,
                             const PrometheusMetricsOptions& options = {});

  void on_fit_begin(FitState& state) override;
  void on_epoch_begin(FitState& state) override;
  void on_step_end(FitState& state) override;
  void on_epoch_trained(FitState& state) override;
  void on_epoch_end(FitState& state) override;

 private:
  /// Totals that the metrics have counted, of the epoch and, for replica_waits, of the strategy.
  struct Counted {
    int64_t examples = 0;
    double seconds = 0;
    double wait_seconds = 0;
    std::vector<double> replica_waits;  // of each local replica
  };

  static Counted totals_of(const FitState& state);
  void count_roll_backs(const FitState& state);
  void read_devices(const FitState& state);

  const std::shared_ptr<TrainingMetrics> metrics_;
  const PrometheusMetricsOptions options_;
  StepRecorder steps_;
  Counted counted_;
  int64_t counted_roll_backs_ = 0;
  bool has_counted_restarts_ = false;
};

}  // namespace lockstep
