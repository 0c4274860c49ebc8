#include "lockstep/training/reporting/mlflow/mlflow_run.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <random>
#include <system_error>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/files/internal/regular_file.h"
#include "lockstep/runtime/base/files/output_file.h"
#include "lockstep/runtime/base/internal/number_text.h"
#include "lockstep/training/reporting/mlflow/internal/mlflow_experiment.h"
#include "lockstep/training/reporting/mlflow/internal/mlflow_meta.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// Longer values are cut off, as MLflow's client does.
constexpr size_t kLongestParameter = 6000;
constexpr size_t kLongestTag = 8000;

bool is_alphanumeric(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/// Returns a random id of 32 hexadecimal digits. It takes nothing from LibTorch's random streams, which would
/// change the training.
std::string random_id() {
  std::random_device device;
  std::uniform_int_distribution<size_t> digit(0, 15);
  std::string id;
  for (int i = 0; i < 32; ++i) id += "0123456789abcdef"[digit(device)];
  return id;
}

/// Returns a name that MLflow accepts and that is a path below a folder.
std::string accepted_name(const std::string& name) {
  std::string accepted;
  for (const char c : name) {
    const bool is_part = c != '\0' && std::string("_-. /").find(c) != std::string::npos;
    accepted += is_alphanumeric(c) || is_part ? c : '_';
  }
  // A path that MLflow would read as another one, such as a//b or ../a.
  const auto parts = fs::path(accepted);
  const bool is_plain = !accepted.empty() && parts.is_relative() && accepted.back() != '/' &&
                        parts.lexically_normal().string() == accepted && *parts.begin() != "..";
  if (is_plain && accepted != ".") return accepted;
  std::replace(accepted.begin(), accepted.end(), '/', '_');
  return accepted.find_first_not_of('.') == std::string::npos ? "_" + accepted : accepted;
}

void make_folders(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw std::system_error(error, "cannot create '" + folder.string() + "'");
}

/// Returns the path for a value of this name, whose folder exists then.
std::string place_of(const std::string& folder, const std::string& name) {
  const fs::path path = fs::path(folder) / accepted_name(name);
  make_folders(path.parent_path());
  return path.string();
}

/// Writes a file in one piece. MLflow would read a temporary file next to it as one more value.
void write_value(const std::string& path, const std::string& bytes, std::ios::openmode mode) {
  std::ofstream file(path, std::ios::binary | mode);
  file << bytes << std::flush;
  if (!file) throw std::system_error(errno, std::generic_category(), "cannot write '" + path + "'");
}

/// MLflow numbers them so.
int number_of(MlflowStatus status) {
  switch (status) {
    case MlflowStatus::kRunning:
      return 1;
    case MlflowStatus::kFinished:
      return 3;
    case MlflowStatus::kFailed:
      return 4;
    case MlflowStatus::kKilled:
      break;
  }
  return 5;
}

/// Returns the step of a metric's line, `<milliseconds> <value> <step>`; 0 if it has none.
int64_t step_of(const std::string& line) {
  int64_t step = 0;
  const size_t end_of_value = line.find(' ', line.find(' ') + 1);
  if (end_of_value != std::string::npos)
    std::from_chars(line.data() + end_of_value + 1, line.data() + line.size(), step);
  return step;
}

/// Calls `act` with each line of a metric up to a step. Returns whether there are other lines: later ones, or
/// one without its end, as a process that was killed may have left it.
template <typename Act>
bool for_each_kept(const RegularFile& file, int64_t step, const Act& act) {
  constexpr size_t kLongestLine = 256;  // three numbers
  bool is_any_dropped = false;
  LineReader lines(file, kLongestLine);
  while (lines.next()) {
    if (!lines.is_whole() || lines.is_cut() || step_of(lines.line()) > step) {
      is_any_dropped = true;
    } else {
      act(lines.line());
    }
  }
  return is_any_dropped;
}

/// Appends the kept lines in large pieces.
void copy_kept(const RegularFile& file, int64_t step, OutputFile& copy) {
  constexpr size_t kAtOnce = size_t{1} << 16;
  std::string piece;
  for_each_kept(file, step, [&](const std::string& line) {
    piece.append(line).append("\n");
    if (piece.size() < kAtOnce) return;
    copy.append(piece);
    piece.clear();
  });
  copy.append(piece);
}

struct KeptLines {
  int64_t count = 0;
  bool is_any_dropped = false;
};

KeptLines lines_up_to(const RegularFile& file, int64_t step) {
  KeptLines kept;
  kept.is_any_dropped = for_each_kept(file, step, [&](const std::string&) { ++kept.count; });
  return kept;
}

}  // namespace

MlflowRun::MlflowRun(const MlflowRunOptions& options) : id_(options.id) {
  if (options.folder.empty()) throw InvalidArgument("[MlflowRun] expected a folder, but got none");
  if (options.experiment.empty()) throw InvalidArgument("[MlflowRun] expected an experiment, but got ''");
  if (!std::all_of(id_.begin(), id_.end(), is_alphanumeric))
    throw InvalidArgument("[MlflowRun] expected an id of letters and digits, but got '" + id_ + "'");
  if (id_.empty()) id_ = random_id();
  const auto experiment = open_mlflow_experiment(options.folder, options.experiment);
  experiment_id_ = experiment.id;
  folder_ = experiment.folder + "/" + id_;
  for (const char* part : {"metrics", "params", "tags", "artifacts"}) make_folders(fs::path(folder_) / part);

  const auto earlier = read_mlflow_meta(folder_);
  const auto start = earlier.find("start_time"), name = earlier.find("run_name");
  start_milliseconds_ =
      start != earlier.end() ? std::strtoll(start->second.c_str(), nullptr, 10) : milliseconds_since_1970();
  name_ = !options.name.empty()   ? options.name
          : name != earlier.end() ? text_of_yaml(name->second)
                                  : "run-" + id_.substr(0, 8);
  // The run appears with its meta.yaml.
  set_tag("mlflow.runName", name_);
  set_tag("mlflow.source.name", options.source);
  set_tag("mlflow.source.type", "LOCAL");
  write_meta(MlflowStatus::kRunning);
}

void MlflowRun::write_meta(MlflowStatus status) {
  const bool is_running = status == MlflowStatus::kRunning;
  constexpr int kLocalSource = 4;
  write_mlflow_meta(folder_, {{"artifact_uri", yaml_text(file_uri(folder_ + "/artifacts"))},
                              {"deleted_time", "null"},
                              {"end_time", is_running ? "null" : std::to_string(milliseconds_since_1970())},
                              {"entry_point_name", yaml_text("")},
                              {"experiment_id", yaml_text(experiment_id_)},
                              {"lifecycle_stage", "active"},
                              {"run_id", yaml_text(id_)},
                              {"run_name", yaml_text(name_)},
                              {"run_uuid", yaml_text(id_)},
                              {"source_name", yaml_text("")},
                              {"source_type", std::to_string(kLocalSource)},
                              {"source_version", yaml_text("")},
                              {"start_time", std::to_string(start_milliseconds_)},
                              {"status", std::to_string(number_of(status))},
                              {"tags", "[]"},
                              {"user_id", yaml_text("")}});
}

void MlflowRun::set_parameter(const std::string& name, const std::string& value) {
  write_value(place_of(folder_ + "/params", name), value.substr(0, kLongestParameter), std::ios::trunc);
}

void MlflowRun::set_tag(const std::string& name, const std::string& value) {
  write_value(place_of(folder_ + "/tags", name), value.substr(0, kLongestTag), std::ios::trunc);
}

void MlflowRun::remove_tag(const std::string& name) {
  std::error_code error;
  const fs::path path = fs::path(folder_) / "tags" / accepted_name(name);
  fs::remove(path, error);
  if (error) throw std::system_error(error, "cannot remove '" + path.string() + "'");
}

void MlflowRun::add_metric(const std::string& name, double value, const Point& point) {
  const int64_t time = point.milliseconds != 0 ? point.milliseconds : milliseconds_since_1970();
  auto place = metric_paths_.find(name);
  if (place == metric_paths_.end())
    place = metric_paths_.emplace(name, place_of(folder_ + "/metrics", name)).first;
  write_value(place->second,
              std::to_string(time) + " " + exact_number(value) + " " + std::to_string(point.step) + "\n",
              std::ios::app);
}

void MlflowRun::remove_metrics_after(int64_t step) {
  const std::string folder = folder_ + "/metrics";
  // Somebody may have replaced the folder by a link into another one, whose files are none of this run's.
  if (!fs::is_directory(fs::symlink_status(folder))) return;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_symlink() || !entry.is_regular_file()) continue;
    const RegularFile file(entry.path().string(), Links::kRefused);
    const KeptLines kept = lines_up_to(file, step);
    if (!kept.is_any_dropped) continue;
    if (kept.count == 0) {
      fs::remove(entry.path());  // MLflow takes an empty file for a damaged one
    } else {
      OutputFile replacement(name_beside(folder));
      copy_kept(file, step, replacement);
      replacement.move_to(entry.path().string());
    }
  }
}

void MlflowRun::set_artifact(const std::string& name, const std::string& bytes) {
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos)
    throw InvalidArgument("[MlflowRun] expected an artifact's file name, but got '" + name + "'");
  replace_file(folder_ + "/artifacts/" + name, bytes);
}

void MlflowRun::end(MlflowStatus status) {
  write_meta(status);
}

}  // namespace lockstep
