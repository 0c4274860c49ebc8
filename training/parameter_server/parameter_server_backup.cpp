#include "lockstep/training/parameter_server/parameter_server_backup.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/runtime/base/internal/error_line.h"
#include "lockstep/training/checkpoints/checkpoint_manifest.h"
#include "lockstep/training/checkpoints/internal/background_writing.h"

namespace lockstep {
namespace {

ParameterServerBackupOptions checked(const ParameterServerStrategy& strategy,
                                     const ParameterServerBackupOptions& options) {
  if (!strategy.is_chief())
    throw InvalidArgument("[ParameterServerBackup] expected to be made by the chief, but a worker did");
  if (options.every.unit == SaveUnit::kEpochs)
    throw InvalidArgument("[ParameterServerBackup] expected steps or minutes between checkpoints, but got " +
                          options.every.str());
  return options;
}

/// Returns the checkpoint that training resumes from, or nothing if it starts from the beginning.
std::optional<std::string> checkpoint_of_servers(const ParameterServerStrategy& strategy,
                                                 const std::string& folder) {
  const auto& counts = strategy.variable_counts();
  if (counts.sources.size() > 1)
    throw CheckpointError(folder +
                          ": expected all servers to resume from one checkpoint, but they resume from " +
                          *counts.sources.begin() + " and " + *counts.sources.rbegin() +
                          ", since files of the other are damaged: set the newer one aside");
  const auto checkpoints = list_checkpoints(folder);
  if (counts.sources.empty()) {
    // The servers still hold the variables of an earlier chief, or nothing was ever saved.
    if (counts.num_new > 0 || checkpoints.empty()) return std::nullopt;
    return checkpoints.front();
  }
  const std::string name = *counts.sources.begin();
  for (const auto& path : checkpoints)
    if (std::filesystem::path(path).filename() == name) return path;
  throw CheckpointError(folder + ": expected the checkpoint " + name +
                        ", from which the servers resume, but it is missing");
}

}  // namespace

ParameterServerBackup::ParameterServerBackup(ParameterServerStrategy& strategy,
                                             const ParameterServerBackupOptions& options)
    : strategy_(strategy),
      options_(checked(strategy, options)),
      store_({.folder = options.folder, .keep_last = options.keep_last}) {
  if (const auto checkpoint = checkpoint_of_servers(strategy, options_.folder)) {
    first_step_ = read_manifest(*checkpoint).step;
    steps_ = begun_steps_ = saved_steps_ = first_step_;
    store_.set_aside_after(first_step_);
    return;
  }
  store_.set_aside_after(-1);
  begin_save(0);
  end_save();
}

bool ParameterServerBackup::is_due(int64_t steps) const {
  if (options_.every.unit == SaveUnit::kSteps)
    return static_cast<double>(steps - begun_steps_) >= options_.every.count;
  const std::chrono::duration<double> since = std::chrono::steady_clock::now() - last_save_;
  return since.count() >= options_.every.count * 60;
}

void ParameterServerBackup::after_step(int64_t step) {
  steps_ = std::max(steps_, step + 1);
  if (saving_.valid()) {
    if (saving_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return;
    end_save_or_say();
  }
  if (!is_due(steps_)) return;
  begin_save(steps_);
  if (strategy_.makes_steps_together()) end_save_or_say();
}

void ParameterServerBackup::finish() {
  if (saving_.valid()) end_save_or_say();
  if (steps_ == saved_steps_) return;
  begin_save(steps_);
  end_save();
}

void ParameterServerBackup::begin_save(int64_t steps) {
  begun_steps_ = steps;
  last_save_ = std::chrono::steady_clock::now();
  saving_ = in_background([this, steps] {
    const std::string begun = store_.begin();
    try {
      CheckpointManifest manifest{.step = steps, .version = LOCKSTEP_VERSION};
      const auto answers = strategy_.save_on_servers(std::filesystem::path(begun).filename());
      for (const auto& answer : answers) {
        const auto part = parse_manifest(answer, "what a parameter server has saved");
        manifest.files.insert(manifest.files.end(), part.files.begin(), part.files.end());
      }
      store_.commit(begun, std::move(manifest));
    } catch (...) {
      CheckpointStore::abandon(begun);
      throw;
    }
  });
}

void ParameterServerBackup::end_save() {
  saving_.get();
  saved_steps_ = begun_steps_;
  ++num_saved_;
}

void ParameterServerBackup::end_save_or_say() {
  try {
    end_save();
  } catch (const std::system_error& error) {
    const auto line = std::string("a checkpoint could not be saved, training continues: ") + error.what();
    options_.on_message ? options_.on_message(line) : write_error_line(line);
  }
}

}  // namespace lockstep
