#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

/// An experiment of an MLflow file store: a folder with runs.
struct MlflowExperiment {
  std::string id;
  std::string folder;
};

/// Returns the experiment of this name in the store `root`, and creates it, the store, and its parents if
/// missing. Processes that create the same experiment at the same time get the same one. Throws
/// std::system_error naming the folder that cannot be written.
MlflowExperiment open_mlflow_experiment(const std::string& root, const std::string& name);

/// Returns the milliseconds since 1970, which MLflow's times are.
int64_t milliseconds_since_1970();

/// Returns the absolute path as a URI, in which MLflow finds artifacts: file:///runs/a%20b.
std::string file_uri(const std::string& path);

}  // namespace lockstep
