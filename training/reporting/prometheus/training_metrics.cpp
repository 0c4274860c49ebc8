#include "lockstep/training/reporting/prometheus/training_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/exposer.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <exception>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/mutex.h"
#include "lockstep/runtime/base/net/tcp_listener.h"
#include "lockstep/training/reporting/prometheus/internal/process_metrics.h"

namespace lockstep {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;

/// Below this, a speed would be noise.
constexpr double kSpeedWindowSeconds = 1;

/// Returns the address as the server's options take it.
std::string bind_address(const TrainingMetricsOptions& options) {
  const bool is_ipv6 = options.address.find(':') != std::string::npos;
  return (is_ipv6 ? "[" + options.address + "]" : options.address) + ":" + std::to_string(options.port);
}

std::unique_ptr<prometheus::Exposer> listen(const TrainingMetricsOptions& options) {
  if (options.port < 0 || options.port > 65535) {
    throw InvalidArgument("[TrainingMetrics] expected a port from 0 to 65535, but got " +
                          std::to_string(options.port));
  }
  try {
    // The server below gives no reason if it cannot listen.
    const TcpListener probe(options.address, options.port, "TrainingMetrics");
  } catch (const ClusterError& error) {
    throw InvalidArgument(error.what());
  }
  std::string reason = "the server chose no port";
  try {
    auto exposer = std::make_unique<prometheus::Exposer>(bind_address(options));
    if (!exposer->GetListeningPorts().empty()) return exposer;
  } catch (const std::exception& error) {
    reason = error.what();
  }
  throw InvalidArgument("[TrainingMetrics] expected a free port of this machine, but cannot listen on " +
                        bind_address(options) + ": " + reason);
}

const char* fault_name(TrainingFault fault) {
  switch (fault) {
    case TrainingFault::kNotFinite:
      return "not_finite";
    case TrainingFault::kRestart:
      return "restart";
    case TrainingFault::kBadExample:
      break;
  }
  return "bad_example";
}

}  // namespace

/// The metrics and the server that shows them.
struct TrainingMetrics::Server {
  explicit Server(const TrainingMetricsOptions& options)
      : address(options.address),
        labels{{"rank", std::to_string(options.rank)}},
        process(std::make_shared<ProcessMetrics>(labels)),
        exposer(listen(options)) {
    // A counter that appears with its first fault would hide that fault from rate() and increase().
    for (const auto fault : {TrainingFault::kNotFinite, TrainingFault::kRestart, TrainingFault::kBadExample})
      faults.Add({{"kind", fault_name(fault)}});
    exposer->RegisterCollectable(registry);
    exposer->RegisterCollectable(process);
  }

  int port() const { return exposer->GetListeningPorts().front(); }

  void measure_speed(const StepMeasures& measures) {
    MutexLock lock(mutex);
    window.examples += measures.examples;
    window.seconds += measures.seconds;
    const bool is_enough = window.seconds >= (has_speed ? kSpeedWindowSeconds : 0);
    if (!is_enough || window.seconds <= 0) return;
    speed.Set(static_cast<double>(window.examples) / window.seconds);
    has_speed = true;
    window = {};
  }

  Family<Counter>& counters(const std::string& name, const std::string& help) {
    return prometheus::BuildCounter().Name(name).Help(help).Labels(labels).Register(*registry);
  }
  Family<Gauge>& gauges(const std::string& name, const std::string& help) {
    return prometheus::BuildGauge().Name(name).Help(help).Labels(labels).Register(*registry);
  }

  const std::string address;
  const prometheus::Labels labels;
  const std::shared_ptr<prometheus::Registry> registry = std::make_shared<prometheus::Registry>();
  const std::shared_ptr<ProcessMetrics> process;

  Counter& steps =
      counters("lockstep_steps_total", "Training steps since this process began. Equal on all workers.")
          .Add({});
  Counter& examples =
      counters(
          "lockstep_examples_total",
          "Examples of all workers trained on since this process began. Equal on all workers: do not sum.")
          .Add({});
  Counter& seconds = counters("lockstep_training_seconds_total",
                              "Seconds this worker spent in training steps, waits included.")
                         .Add({});
  Counter& input_wait = counters("lockstep_input_wait_seconds_total",
                                 "Seconds of training steps this worker waited for batches.")
                            .Add({});
  Gauge& speed =
      gauges("lockstep_examples_per_second",
             "Examples per second of all workers in recent training steps. Do not sum over workers.")
          .Add({});
  // These families have no sample before the first value: 0 would be a wrong one.
  Family<Gauge>& epoch = gauges("lockstep_epoch", "Current epoch, counted from 1.");
  Family<Gauge>& planned_epochs = gauges("lockstep_planned_epochs", "Number of the last epoch to train.");
  Family<Gauge>& loss =
      gauges("lockstep_loss",
             "Mean loss of recent training steps, as this worker reports it. Average over workers.");
  Family<Gauge>& learning_rate =
      gauges("lockstep_learning_rate", "Learning rate of the first parameter group.");
  Family<Gauge>& logs =
      gauges("lockstep_log", "Logs of the last finished epoch, such as validation_loss, by name.");
  Family<Gauge>& device_memory =
      gauges("lockstep_device_memory_bytes", "Memory of tensors on a device, allocated by this process.");
  Family<Counter>& replica_wait =
      counters("lockstep_replica_wait_seconds_total",
               "Seconds of training steps that a replica spent waiting for the other replicas, by replica.");
  Family<Counter>& worker_seconds = counters(
      "lockstep_worker_seconds_total",
      "Seconds of parameter servers' workers by state: computing, waiting for batches or servers, or "
      "idle between steps.");
  Family<Counter>& faults =
      counters("lockstep_faults_total",
               "Faults that the training survived by kind: not_finite (undone steps), restart (of the job), "
               "bad_example (left out). All workers count the same ones: do not sum.");

  Mutex mutex;
  struct Window {
    int64_t examples = 0;
    double seconds = 0;
  };
  Window window LOCKSTEP_GUARDED_BY(mutex);  // steps since the speed was last set
  bool has_speed LOCKSTEP_GUARDED_BY(mutex) = false;

  // Last: its threads read all of the above.
  const std::unique_ptr<prometheus::Exposer> exposer;
};

TrainingMetrics::TrainingMetrics(const TrainingMetricsOptions& options)
    : server_(std::make_unique<Server>(options)) {}
TrainingMetrics::~TrainingMetrics() = default;

bool TrainingMetrics::is_available() {
  return true;
}

int TrainingMetrics::port() const {
  return server_->port();
}

std::string TrainingMetrics::url() const {
  return "http://" + bind_address({.port = port(), .address = server_->address}) + "/metrics";
}

void TrainingMetrics::add_steps(const StepMeasures& measures) {
  server_->steps.Increment(static_cast<double>(measures.steps));
  server_->examples.Increment(static_cast<double>(measures.examples));
  server_->seconds.Increment(measures.seconds);
  server_->input_wait.Increment(measures.input_wait_seconds);
  server_->measure_speed(measures);
}

void TrainingMetrics::set_epoch(int64_t epoch) {
  server_->epoch.Add({}).Set(static_cast<double>(epoch));
}

void TrainingMetrics::set_planned_epochs(int64_t epochs) {
  server_->planned_epochs.Add({}).Set(static_cast<double>(epochs));
}

void TrainingMetrics::set_loss(double loss) {
  server_->loss.Add({}).Set(loss);
}

void TrainingMetrics::set_learning_rate(double learning_rate) {
  server_->learning_rate.Add({}).Set(learning_rate);
}

void TrainingMetrics::set_logs(const Logs& logs) {
  for (const auto& [name, value] : logs) server_->logs.Add({{"name", name}}).Set(value);
}

void TrainingMetrics::set_device_memory(const std::string& device, double bytes) {
  server_->device_memory.Add({{"device", device}}).Set(bytes);
}

void TrainingMetrics::add_replica_wait(int replica, double seconds) {
  server_->replica_wait.Add({{"replica", std::to_string(replica)}}).Increment(seconds);
}

void TrainingMetrics::add_worker_seconds(const WorkerSeconds& seconds) {
  server_->worker_seconds.Add({{"state", "computing"}}).Increment(seconds.computing);
  server_->worker_seconds.Add({{"state", "waiting"}}).Increment(seconds.waiting);
  server_->worker_seconds.Add({{"state", "idle"}}).Increment(seconds.idle);
}

void TrainingMetrics::add_faults(TrainingFault fault, int64_t count) {
  server_->faults.Add({{"kind", fault_name(fault)}}).Increment(static_cast<double>(count));
}

}  // namespace lockstep
