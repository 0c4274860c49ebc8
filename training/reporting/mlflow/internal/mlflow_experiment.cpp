#include "lockstep/training/reporting/mlflow/internal/mlflow_experiment.h"

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include "lockstep/runtime/base/files/internal/sha256.h"
#include "lockstep/runtime/base/files/output_file.h"
#include "lockstep/training/reporting/mlflow/internal/mlflow_meta.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// Folder of deleted experiments, which keep their ids.
constexpr const char* kTrash = ".trash";

std::optional<MlflowExperiment> find_experiment(const std::string& root, const std::string& name) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root, error)) {
    // Hidden: deleted experiments, and those that another process has not finished writing.
    if (entry.path().filename().string().starts_with('.')) continue;
    const std::string folder = entry.path().string();
    const auto meta = read_mlflow_meta(folder);
    const auto found = meta.find("name");
    if (found != meta.end() && text_of_yaml(found->second) == name)
      return MlflowExperiment{.id = entry.path().filename().string(), .folder = folder};
  }
  return std::nullopt;
}

/// Returns an id of 18 digits, as MLflow's own are. It depends on the name alone, so that several processes
/// choose the same.
std::string id_of(const std::string& name, int attempt) {
  const std::string hash = sha256(name + "/" + std::to_string(attempt));
  constexpr uint64_t kLeast = 100'000'000'000'000'000;
  return std::to_string(kLeast + std::stoull(hash.substr(0, 15), nullptr, 16) % (9 * kLeast));
}

}  // namespace

int64_t milliseconds_since_1970() {
  const auto time = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
}

std::string file_uri(const std::string& path) {
  constexpr std::string_view kPlain = "/-._~";
  std::string uri = "file://";
  for (const char c : fs::absolute(path).lexically_normal().string()) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_alphanumeric = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (is_alphanumeric || kPlain.find(c) != std::string_view::npos) {
      uri += c;
      continue;
    }
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    uri += '%';
    uri += kDigits[byte / 16];
    uri += kDigits[byte % 16];
  }
  return uri;
}

MlflowExperiment open_mlflow_experiment(const std::string& root, const std::string& name) {
  std::error_code error;
  fs::create_directories(root, error);
  if (error) throw std::system_error(error, "cannot create '" + root + "'");
  for (int attempt = 0;; ++attempt) {
    if (auto found = find_experiment(root, name)) return *found;
    const std::string id = id_of(name, attempt);
    const std::string folder = fs::path(root) / id;
    // Another experiment's, or a deleted one's.
    if (fs::exists(folder) || fs::exists(fs::path(root) / kTrash / id)) continue;
    // It appears with its meta.yaml, or not at all.
    const std::string partial = name_beside(fs::path(root) / std::string(".").append(id));
    fs::create_directories(partial + "/tags", error);
    if (error) throw std::system_error(error, "cannot create '" + partial + "'");
    const std::string now = std::to_string(milliseconds_since_1970());
    write_mlflow_meta(partial, {{"artifact_location", yaml_text(file_uri(folder))},
                                {"creation_time", now},
                                {"experiment_id", yaml_text(id)},
                                {"last_update_time", now},
                                {"lifecycle_stage", "active"},
                                {"name", yaml_text(name)}});
    // Else MLflow would show it among experiments with language models until a user says otherwise.
    replace_file(partial + "/tags/mlflow.experimentKind", "custom_model_development");
    fs::rename(partial, folder, error);
    if (!error) return {.id = id, .folder = folder};
    // Another process was first: its experiment is found above.
    std::error_code ignored;
    fs::remove_all(partial, ignored);
    if (error != std::errc::directory_not_empty && error != std::errc::file_exists)
      throw std::system_error(error, "cannot create '" + folder + "'");
  }
}

}  // namespace lockstep
