// serve_metrics: serves the metrics of a made-up training with every kind of value, prints the URL, and ends
// when its input does. training_metrics_test.py scrapes it. Exits with 77 if the build has no prometheus-cpp.

#include <iostream>
#include <limits>
#include <string>

#include "lockstep/training/reporting/prometheus/training_metrics.h"

int main() {
  using namespace lockstep;
  if (!TrainingMetrics::is_available()) return 77;
  TrainingMetrics metrics({.rank = 1});
  metrics.set_planned_epochs(5);
  metrics.set_epoch(2);
  metrics.add_steps({.examples = 64, .seconds = 0.5, .input_wait_seconds = 0.125});
  metrics.add_steps({.steps = 9, .examples = 576, .seconds = 4.5});
  metrics.set_loss(0.25);
  metrics.set_learning_rate(1e-3);
  Logs logs;
  logs.set("validation_loss", std::numeric_limits<double>::quiet_NaN());
  logs.set("accuracy", 0.75);
  logs.set("a \"name\" with \\ and\nlines", std::numeric_limits<double>::infinity());
  metrics.set_logs(logs);
  metrics.set_device_memory("gpu:0", 1048576);
  metrics.add_replica_wait(2, 0.25);
  metrics.add_replica_wait(3, 0);
  metrics.add_replica_wait(2, 0.5);
  metrics.add_worker_seconds({.computing = 3, .waiting = 2, .idle = 1});
  metrics.add_faults(TrainingFault::kBadExample, 2);
  std::cout << metrics.url() << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) {
  }
  return 0;
}
