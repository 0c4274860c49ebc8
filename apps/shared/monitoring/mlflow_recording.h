#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/apps/shared/command_line/setting.h"
#include "lockstep/apps/shared/monitoring/metrics_choice.h"
#include "lockstep/training/monitoring/mlflow_logger.h"
#include "lockstep/training/reporting/records/run_directory.h"

namespace lockstep::apps {

/// Creates the recorder of a run for MLflow in the folder that the user chose, in an experiment with the
/// program's name. The run has the name of the run directory, if there is one. The caller ends the run by
/// end_mlflow().
std::shared_ptr<MlflowLogger> make_mlflow(const std::string& program, const MetricsChoice& choice,
                                          const std::string& run_dir, int64_t log_every);

/// Returns a run's configuration as MLflow's parameters: names and values of the flags, and the resolved
/// values with the prefix resolved/.
std::vector<std::pair<std::string, std::string>> mlflow_parameters(const std::vector<Setting>& settings,
                                                                   const std::vector<Setting>& resolved);

/// Ends the run, and adds the configuration and the report of the run directory, if there is one, as
/// artifacts. Logs a failure to do so in the name of `program` instead of throwing: the training has ended
/// and may have an error of its own to report. Does nothing if `mlflow` is null or its run has not begun.
void end_mlflow(const std::string& program, MlflowLogger* mlflow, const std::optional<RunPaths>& paths,
                RunStatus status, const std::string& reason);

}  // namespace lockstep::apps
