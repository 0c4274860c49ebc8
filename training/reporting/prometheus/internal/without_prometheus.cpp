#include "lockstep/runtime/base/errors.h"
#include "lockstep/training/reporting/prometheus/training_metrics.h"

namespace lockstep {

/// Does not exist in this build.
struct TrainingMetrics::Server {};

TrainingMetrics::TrainingMetrics(const TrainingMetricsOptions&) {
  throw InvalidArgument(
      "[TrainingMetrics] expected a Lockstep that was built with prometheus-cpp, but this one was built "
      "without it: install Debian's prometheus-cpp-dev and build Lockstep again");
}
TrainingMetrics::~TrainingMetrics() = default;

bool TrainingMetrics::is_available() {
  return false;
}

// No object exists that these could be called on.
int TrainingMetrics::port() const {
  return 0;
}
std::string TrainingMetrics::url() const {
  return {};
}
void TrainingMetrics::add_steps(const StepMeasures&) {}
void TrainingMetrics::set_epoch(int64_t) {}
void TrainingMetrics::set_planned_epochs(int64_t) {}
void TrainingMetrics::set_loss(double) {}
void TrainingMetrics::set_learning_rate(double) {}
void TrainingMetrics::set_logs(const Logs&) {}
void TrainingMetrics::set_device_memory(const std::string&, double) {}
void TrainingMetrics::add_replica_wait(int, double) {}
void TrainingMetrics::add_worker_seconds(const WorkerSeconds&) {}
void TrainingMetrics::add_faults(TrainingFault, int64_t) {}

}  // namespace lockstep
