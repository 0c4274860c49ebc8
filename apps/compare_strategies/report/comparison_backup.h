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

/// Returns text that identifies a comparison: one setting per line, then `facts`, which describe what it runs
/// on. Measurements with another identity do not belong to the comparison. The number of rounds is left out,
/// so that you can add rounds later.
std::string comparison_identity(const CompareOptions& options,
                                const std::vector<std::pair<std::string, std::string>>& facts);

/// Keeps every measurement of a comparison on disk, each as a checkpoint of its own in --backup-dir, so that
/// a restarted comparison can reuse it.
class ComparisonBackup {
 public:
  /// Takes ownership of the folder and reads its measurements. Damaged ones are logged and will be measured
  /// again. Throws CheckpointError if another process owns the folder, if its measurements belong to another
  /// comparison (naming the first setting that differs), if they cannot be read but may be whole, if --resume
  /// is never and there are some, and if --resume is a path without any. Throws std::system_error if the
  /// folder cannot be written.
  ComparisonBackup(const CompareOptions& options, std::string identity,
                   std::function<void(const std::string&)> log);

  /// Returns the known result of the strategy with this index in this round, or none.
  std::optional<TrialResult> find(int64_t round, int index) const;
  /// Returns the number of measurements that were already there.
  int64_t num_found() const { return static_cast<int64_t>(found_.size()); }

  /// Blocks until the result is on disk. If it cannot be written, logs that and returns.
  void keep(int64_t round, int index, const TrialResult& result);

 private:
  int64_t number_of(int64_t round, int index) const;
  void read(const std::string& folder);
  void write(int64_t number, const TrialResult& result);

  std::string identity_;
  std::function<void(const std::string&)> log_;
  int64_t num_strategies_;
  std::unique_ptr<CheckpointStore> store_;
  std::map<int64_t, TrialResult> found_;  // by measurement number
};

}  // namespace lockstep::apps
