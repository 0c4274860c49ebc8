#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/apps/shared/command_line/origin.h"
#include "lockstep/apps/train_images/options/configuration.h"
#include "lockstep/training/monitoring/mlflow_logger.h"
#include "lockstep/training/reporting/records/run_directory.h"

namespace lockstep::apps {

/// Creates the recorder of a run for MLflow in options.mlflow_dir. The caller ends the run by end_mlflow().
std::shared_ptr<MlflowLogger> make_mlflow(const TrainOptions& options);

/// Returns the run's configuration as MLflow's parameters: names and values of the flags, and the resolved
/// values with the prefix resolved/.
std::vector<std::pair<std::string, std::string>> mlflow_parameters(
    const ResolvedRun& run, const std::map<std::string, Origin>& origins);

/// Ends the run, and adds the configuration and the report of the run directory, if there is one, as
/// artifacts. Logs a failure to do so instead of throwing: the training has ended and may have an error of
/// its own to report. Does nothing if `mlflow` is null or its run has not begun.
void end_mlflow(MlflowLogger* mlflow, const std::optional<RunPaths>& paths, RunStatus status,
                const std::string& reason);

}  // namespace lockstep::apps
