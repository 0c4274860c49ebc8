#include "lockstep/apps/train_images/training/run_recording.h"

#include <c10/util/StringUtil.h>

#include <exception>
#include <filesystem>
#include <system_error>
#include <type_traits>
#include <variant>
#include <vector>

#include "lockstep/apps/shared/print.h"
#include "lockstep/apps/shared/stopped.h"
#include "lockstep/apps/train_images/options/train_settings.h"
#include "lockstep/runtime/base/files/output_file.h"
#include "lockstep/training/checkpoints/checkpoint_store.h"

namespace lockstep::apps {
namespace {

std::string value_text(const SettingValue& value) {
  return std::visit(
      [](const auto& given) -> std::string {
        using T = std::remove_cvref_t<decltype(given)>;
        if constexpr (std::is_same_v<T, std::monostate>) {
          return "";
        } else if constexpr (std::is_same_v<T, bool>) {
          return given ? "true" : "false";
        } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
          return c10::Join(",", given);
        } else {
          return c10::str(given);
        }
      },
      value);
}

HyperparameterValue hyperparameter(const SettingValue& value) {
  if (const auto* on = std::get_if<bool>(&value)) return *on;
  if (const auto* number = std::get_if<int64_t>(&value)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<uint64_t>(&value)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<double>(&value)) return *number;
  return value_text(value);
}

/// Writes the lines, if there are any.
void write_lines(const std::string& path, const std::vector<std::string>& lines) {
  if (!lines.empty()) replace_file(path, c10::Join("\n", lines) + "\n");
}

}  // namespace

std::string record_folder(const TrainOptions& options) {
  const bool goes_on = !options.backup_dir.empty() && options.resume != "never" &&
                       (options.resume != "auto" || !list_checkpoints(options.backup_dir).empty());
  std::string folder = options.run_dir;
  const auto is_used = [&] {
    std::error_code error;
    return !std::filesystem::is_empty(folder, error) && !error;
  };
  for (int number = 2; goes_on && is_used(); ++number) folder = c10::str(options.run_dir, "-", number);
  return folder;
}

std::shared_ptr<RecordRun> make_record(const RunPaths& paths, const ResolvedRun& run,
                                       const std::map<std::string, Origin>& origins, const ImageData& data) {
  RecordRunOptions options{.title = c10::str("train_images: ", model_name(run.options.model), " by ",
                                             run.replicas.substr(0, run.replicas.find(','))),
                           .log_every = run.options.log_every};
  for (const auto& [name, value, origin] : settings_of(run.options, origins)) {
    if (std::holds_alternative<std::monostate>(value)) continue;
    const std::string from = origin_name(origin.kind) + (origin.name.empty() ? "" : " " + origin.name);
    options.configuration.push_back({name, value_text(value), from});
    options.hyperparameters.push_back({name, hyperparameter(value)});
  }
  write_lines(paths.folder + "/" + kSkippedImagesFile, run.skipped);
  for (int64_t i = 0; i < run.num_classes; ++i) options.class_names.push_back(class_name(data, i));
  return std::make_shared<RecordRun>(paths, options);
}

void finish_record(RecordRun* record, const History& history, int signal) {
  if (record == nullptr) return;
  if (signal != 0) {
    record->finish(RunStatus::kInterrupted, signal_name(signal));
  } else if (!history.stop_reason.empty()) {
    record->finish(RunStatus::kStoppedEarly, history.stop_reason);
  } else {
    record->finish(RunStatus::kCompleted);
  }
}

void fail_record(RecordRun* record, RunStatus status, const std::string& reason) {
  if (record == nullptr) return;
  try {
    record->finish(status, reason);
  } catch (const std::exception& error) {
    log_line("train_images", std::string("the record has no end: ") + error.what());
  }
}

}  // namespace lockstep::apps
