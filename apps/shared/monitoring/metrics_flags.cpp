#include "lockstep/apps/shared/monitoring/metrics_flags.h"

namespace lockstep::apps {
namespace {

constexpr IntegerRange kPorts{.least = 0, .most = 65535};

}  // namespace

std::vector<Flag> metrics_flags() {
  const MetricsChoice defaults;
  return {
      {"Run", "metrics-port", "N",
       "Serve metrics to Prometheus at http://ADDRESS:N/metrics; 0 takes a free port and prints it. Further "
       "workers on the same machine take N + 1, N + 2, ... (default: none)",
       "", FlagRole::kProcess},
      {"Run", "metrics-address", "ADDRESS",
       "Address to serve them on; 0.0.0.0 lets every machine read them, without a password",
       defaults.metrics_address, FlagRole::kProcess},
  };
}

void read_metrics(const Arguments& given, MetricsChoice& choice) {
  choice.metrics_port = given.integer("metrics-port", kPorts, choice.metrics_port);
  given.require_together("metrics-address", "metrics-port");
  choice.metrics_address = given.text("metrics-address", choice.metrics_address);
  if (choice.metrics_address.empty()) given.refuse("metrics-address", "an address of this machine");
}

}  // namespace lockstep::apps
