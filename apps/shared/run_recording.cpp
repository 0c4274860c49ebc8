#include "lockstep/apps/shared/run_recording.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <filesystem>
#include <system_error>
#include <utility>
#include <variant>

#include "lockstep/apps/shared/command_line/setting_text.h"
#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/apps/shared/print.h"
#include "lockstep/apps/shared/stopped.h"
#include "lockstep/runtime/base/files/folder_lock.h"
#include "lockstep/runtime/cluster/cluster_resolver.h"

namespace lockstep::apps {
namespace {

HyperparameterValue hyperparameter(const SettingValue& value) {
  if (const auto* on = std::get_if<bool>(&value)) return *on;
  if (const auto* number = std::get_if<int64_t>(&value)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<uint64_t>(&value)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<double>(&value)) return *number;
  return setting_text(value);
}

}  // namespace

bool is_chief_of(const Strategy& strategy) {
  const ClusterResolver* cluster = strategy.cluster_resolver();
  return cluster == nullptr || cluster->rank() == 0;
}

std::string record_title(const std::string& program, const std::string& model, const std::string& replicas) {
  return program + ": " + model + " by " + replicas.substr(0, replicas.find(','));
}

bool is_given_to_chief(Strategy& strategy, const std::string& flag, const std::string& folder,
                       bool is_chief) {
  const auto sum_over_workers = [&](bool here) {
    return strategy.reduce(ReduceOp::kSum, strategy.distribute_values_from_function(
                                               [&](const ValueContext&) { return here ? 1 : 0; }));
  };
  const bool by_chief = sum_over_workers(is_chief && !folder.empty()) > 0;
  if (!by_chief && sum_over_workers(!folder.empty()) > 0)
    throw UsageError(flag + ": expected it for worker 0, which writes there, but got it for others only");
  return by_chief;
}

std::vector<std::string> hosts_of_workers(Strategy& strategy) {
  constexpr int64_t kLongest = 256;  // Linux allows 64
  const std::string own = FolderOwner::here().host.substr(0, kLongest - 1);
  const auto text = torch::zeros({1, kLongest}, torch::kUInt8);
  std::memcpy(text.mutable_data_ptr<uint8_t>(), own.data(), own.size());
  const auto all =
      strategy.gather(strategy.run([&](ReplicaContext& replica) { return text.to(replica.device()); }))
          .to(torch::kCPU)
          .contiguous();
  std::vector<std::string> hosts;
  for (int64_t i = 0; i < all.size(0); ++i) {
    const std::string host = reinterpret_cast<const char*>(all.const_data_ptr<uint8_t>() + i * kLongest);
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end()) hosts.push_back(host);
  }
  return hosts;
}

std::string record_folder(const RecordedFolders& folders) {
  // Whether or not there is a checkpoint yet: the earlier start may have ended before its first one.
  const bool may_resume = !folders.backup_dir.empty() && folders.resume != "never";
  const bool is_continued = may_resume || folders.restart_count > 0;
  std::string folder = folders.run_dir;
  const auto is_used = [&] {
    std::error_code error;
    return !std::filesystem::is_empty(folder, error) && !error;
  };
  for (int number = 2; is_continued && is_used(); ++number) folder = c10::str(folders.run_dir, "-", number);
  return folder;
}

std::optional<RunDirectory> make_run_directory(const Strategy& strategy, bool is_recorded,
                                               RecordedFolders folders, std::string& run_dir) {
  if (!is_recorded || !is_chief_of(strategy)) return std::nullopt;
  if (const ClusterResolver* cluster = strategy.cluster_resolver())
    folders.restart_count = cluster->restart_count();
  run_dir = record_folder(folders);
  return std::optional<RunDirectory>(std::in_place, run_dir);
}

void add_settings(const std::vector<Setting>& settings, RecordRunOptions& options) {
  for (const auto& [name, value, origin] : settings) {
    if (std::holds_alternative<std::monostate>(value)) continue;
    const std::string from = origin_name(origin.kind) + (origin.name.empty() ? "" : " " + origin.name);
    options.configuration.push_back({name, setting_text(value), from});
    options.hyperparameters.push_back({name, hyperparameter(value)});
  }
}

void finish_record(RecordRun* record, const std::string& stop_reason, int signal) {
  if (record == nullptr) return;
  if (signal != 0) {
    record->finish(RunStatus::kInterrupted, signal_name(signal));
  } else if (!stop_reason.empty()) {
    record->finish(RunStatus::kStoppedEarly, stop_reason);
  } else {
    record->finish(RunStatus::kCompleted);
  }
}

void fail_record(const std::string& program, RecordRun* record, RunStatus status, const std::string& reason) {
  if (record == nullptr) return;
  try {
    record->finish(status, reason);
  } catch (const std::exception& error) {
    log_line(program, std::string("the record has no end: ") + error.what());
  }
}

}  // namespace lockstep::apps
