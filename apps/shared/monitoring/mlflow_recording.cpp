#include "lockstep/apps/shared/monitoring/mlflow_recording.h"

#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <variant>

#include "lockstep/apps/shared/command_line/setting_text.h"
#include "lockstep/apps/shared/print.h"

namespace lockstep::apps {

std::shared_ptr<MlflowLogger> make_mlflow(const std::string& program, const MetricsChoice& choice,
                                          const std::string& run_dir, int64_t log_every) {
  MlflowLoggerOptions logger{.run = {.folder = choice.mlflow_dir, .experiment = program, .source = program},
                             .log_every = log_every};
  if (!run_dir.empty()) logger.run.name = std::filesystem::path(run_dir).filename().string();
  auto mlflow = std::make_shared<MlflowLogger>(logger);
  mlflow->keep_run();
  return mlflow;
}

std::vector<std::pair<std::string, std::string>> mlflow_parameters(const std::vector<Setting>& settings,
                                                                   const std::vector<Setting>& resolved) {
  std::vector<std::pair<std::string, std::string>> parameters;
  const auto add = [&](const std::string& prefix, const std::vector<Setting>& all) {
    for (const auto& setting : all) {
      if (!std::holds_alternative<std::monostate>(setting.value))
        parameters.emplace_back(prefix + setting.name, setting_text(setting.value));
    }
  };
  add("", settings);
  add("resolved/", resolved);
  return parameters;
}

void end_mlflow(const std::string& program, MlflowLogger* mlflow, const std::optional<RunPaths>& paths,
                RunStatus status, const std::string& reason) {
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
    log_line(program, std::string("MLflow's run has no end: ") + error.what());
  }
}

}  // namespace lockstep::apps
