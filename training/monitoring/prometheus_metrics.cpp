#include "lockstep/training/monitoring/prometheus_metrics.h"

#include <c10/util/StringUtil.h>

#include <optional>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/cluster/cluster_resolver.h"
#include "lockstep/runtime/devices/internal/allocated_memory.h"
#include "lockstep/strategies/core/strategy.h"

namespace lockstep {
namespace {

void check_log_every(const PrometheusMetricsOptions& options) {
  if (options.log_every < 1) {
    throw InvalidArgument(
        c10::str("[PrometheusMetrics] expected log_every of 1 or more steps, but got ", options.log_every));
  }
}

/// Returns the options of a worker's own server. All workers of a machine have the same options otherwise.
TrainingMetricsOptions options_of_worker(const PrometheusMetricsOptions& options, const Strategy& strategy) {
  TrainingMetricsOptions of_worker{.port = *options.port, .address = options.address};
  if (const ClusterResolver* cluster = strategy.cluster_resolver()) {
    of_worker.rank = cluster->rank();
    if (of_worker.port != 0) of_worker.port += cluster->local_rank();
  }
  return of_worker;
}

}  // namespace

PrometheusMetrics::PrometheusMetrics(const PrometheusMetricsOptions& options) : options_(options) {
  if (!options.port) {
    throw InvalidArgument(
        "[PrometheusMetrics] expected a port in PrometheusMetricsOptions, such as .port = 9400, or "
        "TrainingMetrics, but got neither");
  }
  check_log_every(options);
}

PrometheusMetrics::PrometheusMetrics(std::shared_ptr<TrainingMetrics> metrics,
                                     const PrometheusMetricsOptions& options)
    : metrics_(std::move(metrics)), options_(options) {
  if (!metrics_) throw InvalidArgument("[PrometheusMetrics] expected TrainingMetrics, but got null");
  if (options.port) {
    throw InvalidArgument(
        c10::str("[PrometheusMetrics] expected a port or TrainingMetrics, which have a port already, but got "
                 "both, with port ",
                 *options.port));
  }
  check_log_every(options);
}

void PrometheusMetrics::on_fit_begin(FitState& state) {
  if (!metrics_) metrics_ = std::make_shared<TrainingMetrics>(options_of_worker(options_, state.strategy()));
  metrics_->set_planned_epochs(state.epochs);
  const ClusterResolver* cluster = state.strategy().cluster_resolver();
  if (cluster != nullptr && !std::exchange(has_counted_restarts_, true))
    metrics_->add_faults(TrainingFault::kRestart, cluster->restart_count());
  counted_roll_backs_ = 0;
}

void PrometheusMetrics::on_epoch_begin(FitState& state) {
  metrics_->set_epoch(state.epoch);
  metrics_->set_learning_rate(state.learning_rate());
  steps_.begin_epoch(state);
  // An epoch that was resumed midway begins with the totals of the earlier process. Waits since the last
  // epoch, such as those of its validation, are not a part of training steps.
  counted_ = totals_of(state);
}

PrometheusMetrics::Counted PrometheusMetrics::totals_of(const FitState& state) {
  return {.examples = state.examples,
          .seconds = state.seconds,
          .wait_seconds = state.wait_seconds,
          .replica_waits = state.strategy().extended().seconds_waited()};
}

void PrometheusMetrics::on_step_end(FitState& state) {
  Counted totals = totals_of(state);
  metrics_->add_steps({.examples = totals.examples - counted_.examples,
                       .seconds = totals.seconds - counted_.seconds,
                       .input_wait_seconds = totals.wait_seconds - counted_.wait_seconds});
  for (size_t local = 0; local < totals.replica_waits.size(); ++local) {
    metrics_->add_replica_wait(state.strategy().first_local_replica() + static_cast<int>(local),
                               totals.replica_waits[local] - counted_.replica_waits[local]);
  }
  counted_ = std::move(totals);
  count_roll_backs(state);
  if (state.global_step % options_.log_every == 0) read_devices(state);
}

void PrometheusMetrics::count_roll_backs(const FitState& state) {
  if (state.num_roll_backs == counted_roll_backs_) return;
  metrics_->add_faults(TrainingFault::kNotFinite, state.num_roll_backs - counted_roll_backs_);
  counted_roll_backs_ = state.num_roll_backs;
}

void PrometheusMetrics::read_devices(const FitState& state) {
  const StepRecord step = steps_.next(state);
  if (step.loss) metrics_->set_loss(*step.loss);
  metrics_->set_learning_rate(state.learning_rate());
  for (const auto& device : state.strategy().devices()) {
    if (const auto bytes = allocated_on(device.torch_device()))
      metrics_->set_device_memory(device.str(), static_cast<double>(bytes->now));
  }
}

void PrometheusMetrics::on_epoch_trained(FitState& state) {
  count_roll_backs(state);
}

void PrometheusMetrics::on_epoch_end(FitState& state) {
  metrics_->set_logs(state.logs);
}

}  // namespace lockstep
