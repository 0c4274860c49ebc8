#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/training/reporting/records/logs.h"

namespace lockstep {

struct TrainingMetricsOptions {
  /// Port to listen on. If 0, the system chooses one, which port() returns.
  int port = 0;
  /// Address or host name to listen on. Only this machine can reach the default. 0.0.0.0 accepts connections
  /// from everywhere, without a password or encryption.
  std::string address = "127.0.0.1";
  int rank = 0;  ///< the worker's rank, which every sample has as a label
};

/// Measures of one or more training steps.
struct StepMeasures {
  int64_t steps = 1;
  int64_t examples = 0;           ///< of all workers together
  double seconds = 0;             ///< duration of the steps, waits included
  double input_wait_seconds = 0;  ///< part of `seconds` spent waiting for batches
};

/// Time of parameter servers' workers, summed over the workers. See WorkerTimes.
struct WorkerSeconds {
  double computing = 0;
  double waiting = 0;
  double idle = 0;
};

/// A fault that a training survives.
enum class TrainingFault {
  kNotFinite,   ///< a loss or a state that was not finite, whose steps were undone
  kRestart,     ///< a restart of the job by its launcher
  kBadExample,  ///< an example left out because it cannot be decoded
};

/// Serves the metrics of a training to Prometheus: `http://address:port/metrics` answers in Prometheus's
/// text format. The names begin with lockstep_, and process_ for the process's memory and time; each has a
/// help text. docs/monitoring/grafana_dashboard.json shows them.
///
/// Every worker serves metrics of its own, with its rank as a label. Steps, examples, their speed, the epoch
/// and the learning rate are those of the whole training, and equal on all workers: take their maximum, not
/// their sum. Faults are those of the job: take their maximum, too. Times and memory are the worker's own.
///
/// The calls do not block and do not wait for a scrape. Thread-safe.
///
/// Example:
///
///     TrainingMetrics metrics({.port = 9400, .rank = rank});
///     for (const auto& batch : batches) {
///       const auto begin = std::chrono::steady_clock::now();
///       const auto losses = strategy.run(train_step, model, optimizer, batch);
///       metrics.set_loss(strategy.reduce(ReduceOp::kSum, losses).item<double>());
///       const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
///       metrics.add_steps({.examples = batch.batch_sizes()->global, .seconds = took.count()});
///     }
class TrainingMetrics {
 public:
  /// Listens from now on, with threads of its own. Throws InvalidArgument naming address and port if the port
  /// is in use or out of range, if the address is not one of this machine, or if Lockstep was built without
  /// prometheus-cpp.
  explicit TrainingMetrics(const TrainingMetricsOptions& options = {});
  /// Stops listening.
  ~TrainingMetrics();
  TrainingMetrics(const TrainingMetrics&) = delete;
  TrainingMetrics& operator=(const TrainingMetrics&) = delete;

  /// Returns whether Lockstep was built with prometheus-cpp.
  static bool is_available();

  int port() const;
  /// Returns the URL that Prometheus scrapes.
  std::string url() const;

  /// Adds steps to lockstep_steps_total, lockstep_examples_total, lockstep_training_seconds_total and
  /// lockstep_input_wait_seconds_total. Sets lockstep_examples_per_second to the speed over the last second
  /// of steps, or over the last call if it is longer.
  void add_steps(const StepMeasures& measures);
  /// Sets lockstep_epoch, which counts from 1.
  void set_epoch(int64_t epoch);
  /// Sets lockstep_planned_epochs.
  void set_planned_epochs(int64_t epochs);
  /// Sets lockstep_loss, the mean loss of recent steps: of the global batches, or of this worker's replicas
  /// only, as PrometheusMetrics does, which spares a reduction. The mean over the workers is then the loss.
  void set_loss(double loss);
  void set_learning_rate(double learning_rate);
  /// Sets a value of lockstep_log for each of the logs, with its name as a label.
  void set_logs(const Logs& logs);
  /// Sets lockstep_device_memory_bytes of a device such as cuda:0.
  void set_device_memory(const std::string& device, double bytes);
  /// Adds to lockstep_replica_wait_seconds_total of a replica, by its id among all replicas, the time that it
  /// waited for the other replicas.
  void add_replica_wait(int replica, double seconds);
  /// Adds to lockstep_worker_seconds_total.
  void add_worker_seconds(const WorkerSeconds& seconds);
  /// Adds to lockstep_faults_total.
  void add_faults(TrainingFault fault, int64_t count = 1);

 private:
  struct Server;
  std::unique_ptr<Server> server_;
};

}  // namespace lockstep
