#include "lockstep/apps/train_images/training/mlflow_recording.h"

#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <variant>

#include "lockstep/apps/shared/command_line/setting_text.h"
#include "lockstep/apps/shared/print.h"
#include "lockstep/apps/train_images/options/train_settings.h"

namespace lockstep::apps {

std::shared_ptr<MlflowLogger> make_mlflow(const TrainOptions& options) {
  MlflowLoggerOptions logger{
      .run = {.folder = options.mlflow_dir, .experiment = "train_images", .source = "train_images"},
      .log_every = options.log_every};
  if (!options.run_dir.empty()) logger.run.name = std::filesystem::path(options.run_dir).filename().string();
  auto mlflow = std::make_shared<MlflowLogger>(logger);
  mlflow->keep_run();
  return mlflow;
}

std::vector<std::pair<std::string, std::string>> mlflow_parameters(
    const ResolvedRun& run, const std::map<std::string, Origin>& origins) {
  std::vector<std::pair<std::string, std::string>> parameters;
  const auto add = [&](const std::string& prefix, const std::vector<Setting>& settings) {
    for (const auto& setting : settings) {
      if (!std::holds_alternative<std::monostate>(setting.value))
        parameters.emplace_back(prefix + setting.name, setting_text(setting.value));
    }
  };
  add("", settings_of(run.options, origins));
  add("resolved/", resolved_settings(run));
  return parameters;
}

void end_mlflow(MlflowLogger* mlflow, const std::optional<RunPaths>& paths, RunStatus status,
                const std::string& reason) {
  if (mlflow == nullptr || mlflow->run() == nullptr) return;
  try {
    if (paths) {
      for (const auto& path : {paths->config(), paths->report()}) {
        std::ifstream file(path, std::ios::binary);
        if (!file) continue;
        mlflow->run()->set_artifact(std::filesystem::path(path).filename().string(),
                                    {std::istreambuf_iterator<char>(file), {}});
      }
    }
    mlflow->finish(status, reason);
  } catch (const std::exception& error) {
    log_line("train_images", std::string("MLflow's run has no end: ") + error.what());
  }
}

}  // namespace lockstep::apps
