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
      {"Run", "mlflow-dir", "DIR",
       "Record the run for MLflow in a folder that many runs share, for `mlflow ui --backend-store-uri DIR`",
       "", FlagRole::kProcess},
      {"Run", "profile-input", "",
       "Say at the end how fast each stage of the input is, and which stage limits the speed", "",
       FlagRole::kOperation},
  };
}

void read_metrics(const Arguments& given, MetricsChoice& choice) {
  choice.metrics_port = given.integer("metrics-port", kPorts, choice.metrics_port);
  choice.metrics_address = given.text("metrics-address", choice.metrics_address);
  if (choice.metrics_address.empty()) given.refuse("metrics-address", "an address of this machine");
  choice.mlflow_dir = given.text("mlflow-dir", "");
  if (given.has("mlflow-dir") && choice.mlflow_dir.empty()) given.refuse("mlflow-dir", "a folder");
  choice.profile_input = given.is_on("profile-input");
}

settings::NamedValues metrics_values(const MetricsChoice& choice) {
  const bool is_served = choice.metrics_port >= 0;
  return {{"metrics-port", settings::where(is_served, choice.metrics_port)},
          {"metrics-address", settings::where(is_served, choice.metrics_address)},
          {"mlflow-dir", settings::text(choice.mlflow_dir)},
          {"profile-input", choice.profile_input}};
}

}  // namespace lockstep::apps
