#include "lockstep/apps/compare_strategies/report/comparison_backup.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/runtime/base/files/part_sink.h"
#include "lockstep/runtime/base/internal/number_text.h"
#include "lockstep/training/checkpoints/checkpoint_manifest.h"

namespace lockstep::apps {
namespace {

constexpr const char* kFile = "measurement";
constexpr const char* kIdentity = "comparison";
constexpr const char* kRun = "run";
constexpr const char* kParameters = "parameters";

std::string text_of(const SettingValue& value) {
  if (const auto* truth = std::get_if<bool>(&value)) return *truth ? "true" : "false";
  if (const auto* number = std::get_if<int64_t>(&value)) return std::to_string(*number);
  if (const auto* number = std::get_if<uint64_t>(&value)) return std::to_string(*number);
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* number = std::get_if<double>(&value)) return exact_number(*number);
  std::string list;
  if (const auto* items = std::get_if<std::vector<std::string>>(&value))
    for (const auto& item : *items) list += (list.empty() ? "" : ",") + item;
  return list.empty() ? "none" : list;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

/// Throws CheckpointError with the first line that differs.
void check_same(const std::string& path, std::string_view expected, std::string_view actual) {
  const auto wanted = lines_of(expected), got = lines_of(actual);
  for (size_t i = 0; i < std::max(wanted.size(), got.size()); ++i) {
    const std::string_view want = i < wanted.size() ? wanted[i] : "nothing";
    const std::string_view have = i < got.size() ? got[i] : "nothing";
    if (want != have)
      throw CheckpointError(path, "measurement", "one of the same comparison, with " + std::string(want),
                            std::string(have));
  }
}

/// Returns the content of each part of the checkpoint by its name.
std::map<std::string, std::string> read_parts(const std::string& checkpoint) {
  std::map<std::string, std::string> parts;
  for (const auto& file : read_manifest(checkpoint).files) {
    const std::string bytes = read_checkpoint_file(checkpoint, file);
    size_t begin = 0;
    for (const auto& part : file.parts) {
      parts[part.name] = bytes.substr(begin, part.size);
      begin += part.size;
    }
  }
  return parts;
}

TrialResult result_of(const std::map<std::string, std::string>& parts, const std::string& checkpoint) {
  const std::string& values = parts.at(kParameters);
  TrialResult result{.run = parse_measured_run(parts.at(kRun), checkpoint),
                     .parameters = std::vector<double>(values.size() / sizeof(double))};
  if (!values.empty())
    std::memcpy(result.parameters.data(), values.data(), result.parameters.size() * sizeof(double));
  return result;
}

}  // namespace

std::string comparison_identity(const CompareOptions& options,
                                const std::vector<std::pair<std::string, std::string>>& facts) {
  std::string text = "steps " + std::to_string(options.steps) + "\nwarmup-steps " +
                     std::to_string(options.warmup_steps) + "\n";
  for (const auto& strategy : options.strategies) {
    text += "strategy " + strategy.label + "\n";
    if (has_servers(strategy)) text += "ps " + std::to_string(strategy.servers) + "\n";
  }
  for (const auto& setting : settings_of(options.work))
    text += setting.name + " " + text_of(setting.value) + "\n";
  for (const auto& [name, value] : facts) text.append(name).append(" ").append(value).append("\n");
  return text;
}

ComparisonBackup::ComparisonBackup(const CompareOptions& options, std::string identity,
                                   std::function<void(const std::string&)> log)
    : identity_(std::move(identity)),
      log_(std::move(log)),
      num_strategies_(static_cast<int64_t>(options.strategies.size())),
      // Keeps every checkpoint.
      store_(std::make_unique<CheckpointStore>(CheckpointStoreOptions{
          .folder = options.backup_dir, .keep_last = std::numeric_limits<int64_t>::max(), .job = {}})) {
  if (options.resume == "never") {
    const auto there = list_checkpoints(options.backup_dir);
    if (there.empty()) return;
    throw CheckpointError("--resume never: expected a --backup-dir without measurements, but " +
                          there.front() + " is there");
  }
  read(options.backup_dir);
  if (options.resume == "auto") return;
  if (list_checkpoints(options.resume).empty())
    throw CheckpointError("--resume " + options.resume +
                          ": expected a folder with measurements, but there are none");
  const auto own = found_;
  read(options.resume);
  for (const auto& [number, result] : found_)
    if (!own.contains(number)) write(number, result);
}

int64_t ComparisonBackup::number_of(int64_t round, int index) const {
  return round * num_strategies_ + index + 1;
}

void ComparisonBackup::read(const std::string& folder) {
  for (const auto& checkpoint : list_checkpoints(folder)) {
    std::map<std::string, std::string> parts;
    int64_t number = 0;
    try {
      number = read_manifest(checkpoint).step;
      parts = read_parts(checkpoint);
    } catch (const CheckpointUnreadable&) {
      throw;  // the checkpoint may be intact
    } catch (const CheckpointError& error) {
      log_(std::string("measured again, as it is damaged: ") + error.what());
      continue;
    }
    for (const char* name : {kIdentity, kRun, kParameters})
      if (!parts.contains(name))
        throw CheckpointError(checkpoint, "files", "a measurement", "none: something else is kept there");
    check_same(checkpoint, identity_, parts.at(kIdentity));
    found_.emplace(number, result_of(parts, checkpoint));
  }
}

std::optional<TrialResult> ComparisonBackup::find(int64_t round, int index) const {
  const auto found = found_.find(number_of(round, index));
  return found == found_.end() ? std::nullopt : std::optional(found->second);
}

void ComparisonBackup::write(int64_t number, const TrialResult& result) {
  store_->save({.step = number, .version = LOCKSTEP_VERSION, .files = {}}, kFile, [&](PartSink& sink) {
    const auto add = [&](const char* name, const void* bytes, size_t size) {
      sink.write(bytes, size);
      sink.end_part(name);
    };
    const std::string run = measured_run_text(result.run);
    add(kIdentity, identity_.data(), identity_.size());
    add(kRun, run.data(), run.size());
    add(kParameters, result.parameters.data(), result.parameters.size() * sizeof(double));
  });
}

void ComparisonBackup::keep(int64_t round, int index, const TrialResult& result) {
  try {
    write(number_of(round, index), result);
  } catch (const std::system_error& error) {
    log_(std::string("a measurement could not be kept, the comparison continues: ") + error.what());
  }
}

}  // namespace lockstep::apps
