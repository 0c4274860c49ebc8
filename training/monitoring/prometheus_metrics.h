#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/training/callbacks/fit_records.h"
#include "lockstep/training/reporting/prometheus/training_metrics.h"
#include "lockstep/training/trainer/callback.h"

namespace lockstep {

struct PrometheusMetricsOptions {
  /// Port of the first worker of a machine. Its next workers take the ports that follow, since each serves
  /// its own metrics. If 0, the system chooses a port for each worker; see PrometheusMetrics::metrics().
  std::optional<int> port{};
  /// As TrainingMetricsOptions::address.
  std::string address = "127.0.0.1";
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
///     auto metrics = std::make_shared<PrometheusMetrics>(PrometheusMetricsOptions{.port = 9400});
///     trainer.fit(batches, {.epochs = 5, .callbacks = {metrics}});
class PrometheusMetrics : public Callback {
 public:
  /// Serves the metrics from the start of the first fit until this object is destroyed. The strategy of that
  /// fit gives the worker's rank and its place on the machine, which is added to the port. fit() throws
  /// InvalidArgument if it cannot listen, see TrainingMetrics. Throws InvalidArgument if the port is not set
  /// or log_every is below 1.
  explicit PrometheusMetrics(const PrometheusMetricsOptions& options);
  /// Fills metrics that the program serves already. Throws InvalidArgument if `metrics` is null, the options
  /// have a port, or log_every is below 1.
  explicit PrometheusMetrics(std::shared_ptr<TrainingMetrics> metrics,
                             const PrometheusMetricsOptions& options = {});

  /// Returns the metrics that are served, for their port() and url(); null before the first fit begins if
  /// this object makes them.
  const std::shared_ptr<TrainingMetrics>& metrics() const { return metrics_; }

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

  std::shared_ptr<TrainingMetrics> metrics_;
  const PrometheusMetricsOptions options_;
  StepRecorder steps_;
  Counted counted_;
  int64_t counted_roll_backs_ = 0;
  bool has_counted_restarts_ = false;
};

}  // namespace lockstep
