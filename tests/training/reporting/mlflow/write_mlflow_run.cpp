// write_mlflow_run FOLDER: writes runs into a file store, which mlflow_run_test.py reads by MLflow itself.
// Prints their ids.

#include <cmath>
#include <iostream>
#include <string>

#include "lockstep/training/reporting/mlflow/mlflow_run.h"

namespace lockstep {
namespace {

constexpr const char* kExperiment = "digits: \"all\" #1";

void write_runs(const std::string& folder) {
  MlflowRun finished(
      {.folder = folder, .experiment = kExperiment, .name = "first", .source = "train_images"});
  finished.set_parameter("learning-rate", "0.001");
  finished.set_parameter("data", "/data/bücher & co\nline 2");
  finished.set_parameter("long", std::string(7000, 'x'));
  for (int step = 1; step <= 3; ++step)
    finished.add_metric("step/loss", 1.0 / step, {.step = 10 * step, .milliseconds = 1700000000000 + step});
  finished.add_metric("odd", std::nan(""), {.step = 1});
  finished.add_metric("odd", INFINITY, {.step = 2});
  finished.add_metric("loss@5", 0.1, {.step = int64_t{1} << 40});
  finished.set_tag("stop_reason", "good enough");
  finished.set_artifact("report.html", "<h1>report</h1>");
  finished.end(MlflowStatus::kFinished);
  std::cout << finished.id() << '\n';

  MlflowRun killed({.folder = folder, .experiment = kExperiment, .name = "second"});
  killed.add_metric("loss", 1, {.step = 1, .milliseconds = 1});
  killed.add_metric("loss", 0.5, {.step = 2, .milliseconds = 2});
  killed.end(MlflowStatus::kKilled);
  std::cout << killed.id() << '\n';

  MlflowRun continued({.folder = folder, .experiment = kExperiment, .id = killed.id()});
  continued.remove_metrics_after(1);
  continued.add_metric("loss", 0.25, {.step = 2, .milliseconds = 3});

  MlflowRun failed({.folder = folder});
  failed.end(MlflowStatus::kFailed);
  std::cout << failed.id() << '\n';

  const MlflowRun open({.folder = folder});
  std::cout << open.id() << '\n';

  // As two processes of the same run, the second of which resumes nothing.
  std::string id;
  for (const int first_step : {3, 1}) {
    MlflowRun appended({.folder = folder, .id = id});
    id = appended.id();
    for (int step = first_step; step < first_step + 3; ++step)
      appended.add_metric("loss", 1.0 / (10 * first_step + step),
                          {.step = step, .milliseconds = 1000 + step});
    appended.end(MlflowStatus::kFinished);
  }
  std::cout << id << std::endl;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: write_mlflow_run FOLDER" << std::endl;
    return 2;
  }
  lockstep::write_runs(argv[1]);
  return 0;
}
