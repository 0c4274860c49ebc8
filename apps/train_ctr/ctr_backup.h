#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "lockstep/apps/train_ctr/ctr_model.h"
#include "lockstep/apps/train_ctr/ctr_options.h"
#include "lockstep/strategies/core/strategy.h"

namespace lockstep::apps {

/// Saves a training under any strategy and resumes it.
class CtrBackup {
 public:
  virtual ~CtrBackup() = default;
  /// Returns the first step that is still to be made.
  virtual int64_t first_step() const = 0;
  /// Call after `steps` steps in total. Saves if a save is due.
  virtual void steps_done(int64_t steps) = 0;
  /// Call when the training ends for now, after `steps` steps in total. Saves what is not saved yet and
  /// blocks until it is written.
  virtual void finish(int64_t steps) = 0;
};

/// Objects of the strategy's replicas that are saved.
struct CtrObjects {
  Mirrored<CtrModel>& model;
  Mirrored<CtrOptimizer>& network_optimizer;
  Mirrored<CtrOptimizer>& table_optimizer;
};

/// The text that a backup keeps in each checkpoint, and the receivers of its events.
struct CtrBackupNotes {
  std::string configuration;  ///< BackupOptions::configuration
  std::function<void(const std::string&)> log;
  /// BackupOptions::on_resume. If there are parameter servers, whose checkpoints have no configuration, a
  /// file beside them holds it.
  std::function<void(const std::string& configuration)> on_resume;
};

/// Creates a backup in the folder that the options name; without a folder, one that saves nothing. Call it in
/// all processes that step together; for parameter servers, only in the chief. Throws as Backup and
/// ParameterServerBackup do.
std::unique_ptr<CtrBackup> make_ctr_backup(Strategy& strategy, const CtrOptions& options,
                                           const CtrObjects& objects, const CtrBackupNotes& notes);

}  // namespace lockstep::apps
