#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/apps/compare_strategies/options/compare_options.h"
#include "lockstep/apps/compare_strategies/trials/trial.h"
#include "lockstep/training/checkpoints/checkpoint_store.h"

namespace lockstep::apps {

/// What a comparison measures, a setting a line, and then `facts`, which say on what: measurements of another
/// one are no part of it. Rounds are not in it, as more may be added.
std::string comparison_identity(const CompareOptions& options,
                                const std::vector<std::pair<std::string, std::string>>& facts);

/// Keeps every measurement of a comparison over the end of its process, as a checkpoint of its own in
/// --backup-dir.
class ComparisonBackup {
 public:
  /// Takes the folder, and reads what is to be gone on from: what is damaged is told and measured again.
  /// Throws CheckpointError where another process owns the folder, where its measurements are of another
  /// comparison, naming the first setting that differs, where they cannot be read though they may be whole,
  /// where --resume is never and there are some, and where it is a path without any; std::system_error where
  /// the folder cannot be written.
  ComparisonBackup(const CompareOptions& options, std::string identity,
                   std::function<void(const std::string&)> say);

  /// What the strategy of this index did in this round, if it is known.
  std::optional<TrialResult> find(int64_t round, int index) const;
  /// How many measurements were there already.
  int64_t num_found() const { return static_cast<int64_t>(found_.size()); }

  /// Waits until it is on the disk. Where it cannot be written, that is told, and the comparison goes on.
  void keep(int64_t round, int index, const TrialResult& result);

 private:
  int64_t number_of(int64_t round, int index) const;
  void read(const std::string& folder);
  void write(int64_t number, const TrialResult& result);

  std::string identity_;
  std::function<void(const std::string&)> say_;
  int64_t num_strategies_;
  std::unique_ptr<CheckpointStore> store_;
  std::map<int64_t, TrialResult> found_;  // by number
};

}  // namespace lockstep::apps
