#include "lockstep/apps/inspect_run/run_summary.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "lockstep/apps/inspect_run/run_files.h"
#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/runtime/base/files/internal/regular_file.h"
#include "lockstep/training/reporting/records/run_directory.h"

namespace lockstep::apps {
namespace {

namespace fs = std::filesystem;

/// Walks folders of a run. Counts the entries that it reads: a folder that somebody else made may have any
/// number of them, and a link in it may lead anywhere.
class FolderWalk {
 public:
  explicit FolderWalk(size_t most_entries) : most_entries_(most_entries) {}

  /// Returns the entries of a folder, sorted by name.
  std::vector<RunFile> files_in(const std::string& folder) {
    std::vector<RunFile> files;
    for_each_in(folder, [&](const fs::directory_entry& entry) {
      files.push_back({.name = entry.path().filename().string(), .bytes = bytes_of(entry)});
    });
    return sorted(std::move(files));
  }

  /// Returns TensorBoard's files at any depth, sorted by name.
  std::vector<RunFile> event_files_in(const std::string& folder) {
    std::vector<RunFile> files;
    for_each_below(folder, [&](const fs::directory_entry& entry) {
      if (entry.path().filename().string().find("tfevents") == std::string::npos) return;
      files.push_back({.name = entry.path().lexically_relative(folder).string(), .bytes = own_bytes(entry)});
    });
    return sorted(std::move(files));
  }

  /// Returns whether the folders have more entries than are read.
  bool is_cut() const { return is_cut_; }

 private:
  static std::vector<RunFile> sorted(std::vector<RunFile> files) {
    std::sort(files.begin(), files.end(), [](const RunFile& a, const RunFile& b) { return a.name < b.name; });
    return files;
  }

  static bool is_folder(const fs::path& path) {
    std::error_code error;
    return fs::is_directory(fs::symlink_status(path, error));
  }

  /// Returns the bytes of a file; 0 for anything else, and for one that vanishes meanwhile.
  static uint64_t own_bytes(const fs::directory_entry& entry) {
    std::error_code error;
    if (!fs::is_regular_file(entry.symlink_status(error))) return 0;
    const uint64_t bytes = entry.file_size(error);
    return error ? 0 : bytes;
  }

  /// Returns the bytes of a file, or of all files below a folder.
  uint64_t bytes_of(const fs::directory_entry& entry) {
    uint64_t bytes = own_bytes(entry);
    for_each_below(entry.path(), [&](const fs::directory_entry& file) { bytes += own_bytes(file); });
    return bytes;
  }

  template <typename Iterator, typename Act>
  void walk(const fs::path& folder, const Act& act) {
    if (!is_folder(folder)) return;
    std::error_code error;
    for (Iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
      is_cut_ = is_cut_ || num_entries_ == most_entries_;
      if (is_cut_) return;
      ++num_entries_;
      act(*entry);
    }
  }

  template <typename Act>
  void for_each_in(const fs::path& folder, const Act& act) {
    walk<fs::directory_iterator>(folder, act);
  }

  template <typename Act>
  void for_each_below(const fs::path& folder, const Act& act) {
    walk<fs::recursive_directory_iterator>(folder, act);
  }

  const size_t most_entries_;
  size_t num_entries_ = 0;
  bool is_cut_ = false;
};

/// Opens a file of the run. If that fails, notes the reason in `summary`.
std::optional<RegularFile> open_part(const std::string& path, RunSummary& summary) {
  const std::string name = fs::path(path).filename().string();
  try {
    return RegularFile(path, Links::kRefused);
  } catch (const NotARegularFile& other) {
    summary.damages.push_back(name + std::string(other.what()).substr(path.size()));
  } catch (const std::system_error& refused) {
    if (refused.code() == std::errc::no_such_file_or_directory) {
      summary.missing.push_back(name);
    } else {
      summary.damages.push_back(name + ": cannot open: " + refused.code().message());
    }
  }
  return std::nullopt;
}

/// Calls `read` with the file. Notes an error of the disk as damage.
template <typename Read>
void read_part(const std::string& path, RunSummary& summary, const Read& read) {
  const auto file = open_part(path, summary);
  if (!file) return;
  try {
    read(*file, summary);
  } catch (const std::system_error& refused) {
    summary.damages.push_back(fs::path(path).filename().string() +
                              ": cannot read: " + refused.code().message());
  }
}

void check_run_directory(const RunPaths& paths) {
  std::error_code error;
  if (!fs::is_directory(paths.folder, error)) {
    throw UsageError("DIR: expected the directory of a run, but got '" + paths.folder + "', which is " +
                     (fs::exists(paths.folder, error) ? "not a folder" : "missing"));
  }
  const fs::directory_iterator readable(paths.folder, error);
  if (error) throw RunDirectoryError("[inspect_run] cannot list '" + paths.folder + "': " + error.message());
  for (const auto& part : {paths.config(), paths.metrics_csv(), paths.metrics_jsonl(), paths.tensorboard(),
                           paths.checkpoints(), paths.report()}) {
    if (fs::exists(fs::symlink_status(part, error))) return;
  }
  throw RunDirectoryError("[inspect_run] expected the directory of a run, but '" + paths.folder +
                          "' holds no config.json, metrics.jsonl or other part of one");
}

}  // namespace

RunSummary summarise_run(const std::string& folder, size_t num_epochs, const SummaryLimits& limits) {
  const RunPaths paths{folder};
  check_run_directory(paths);
  RunSummary summary{.folder = folder, .epochs = EpochSummary(num_epochs)};
  // Read first: a run that ends meanwhile writes the end of its metrics before it gives up the directory.
  summary.owner = run_directory_owner(paths);
  read_part(paths.config(), summary, read_run_configuration);
  read_part(paths.metrics_jsonl(), summary, read_run_metrics);
  for (const std::string& part : {paths.checkpoints(), paths.tensorboard()}) {
    std::error_code error;
    if (fs::is_symlink(fs::symlink_status(part, error)))
      summary.damages.push_back(fs::path(part).filename().string() +
                                ": expected a folder, but it is a symbolic link, which is not followed");
  }
  FolderWalk walk(limits.most_entries);
  summary.checkpoints = walk.files_in(paths.checkpoints());
  summary.event_files = walk.event_files_in(paths.tensorboard());
  if (walk.is_cut())
    summary.damages.push_back("expected at most " + std::to_string(limits.most_entries) +
                              " files of checkpoints and TensorBoard, but got more; the rest is not counted");
  std::error_code error;
  if (fs::is_regular_file(fs::symlink_status(paths.report(), error))) {
    const uint64_t bytes = fs::file_size(paths.report(), error);
    if (!error) summary.report_bytes = bytes;
  }
  return summary;
}

void for_each_epoch(const std::string& folder, size_t count, const std::function<void(MetricRow)>& act) {
  RunSummary ignored{.folder = folder};  // summarise_run() has noted the damage
  read_part(RunPaths{folder}.metrics_jsonl(), ignored,
            [&](const RegularFile& file, RunSummary&) { read_epochs(file, count, act); });
}

std::string examples_of(const RunSummary& summary) {
  if (summary.program == "train_ctr") return "rows";
  return summary.program == "train_gpt" ? "tokens" : "images";
}

std::string run_status(const RunSummary& summary) {
  if (summary.end) {
    const MetricValue* status = find_value(*summary.end, "status");
    const auto* text = status == nullptr ? nullptr : std::get_if<std::string>(status);
    return text == nullptr ? "completed" : *text;
  }
  return summary.owner ? "running" : "ended_early";
}

}  // namespace lockstep::apps
