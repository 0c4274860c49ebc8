#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "lockstep/apps/train_ctr/ctr_model.h"
#include "lockstep/apps/train_ctr/ctr_options.h"
#include "lockstep/strategies/core/strategy.h"

namespace lockstep::apps {

/// What a training under some strategy saves, and goes on from.
class CtrBackup {
 public:
  virtual ~CtrBackup() = default;
  /// Of those that are still to be made.
  virtual int64_t first_step() const = 0;
  /// So many steps are made: saves where that is due.
  virtual void steps_done(int64_t steps) = 0;
  /// The training ends for now after so many steps: saves what is not saved yet, and waits for it.
  virtual void finish(int64_t steps) = 0;
};

/// What the strategies' replicas hold.
struct CtrObjects {
  Mirrored<CtrModel>& model;
  Mirrored<CtrOptimizer>& network_optimizer;
  Mirrored<CtrOptimizer>& table_optimizer;
};

/// Where the options name a folder; else one that saves nothing. In all processes that step together, and of
/// parameter servers in the chief alone. Throws as Backup and ParameterServerBackup.
std::unique_ptr<CtrBackup> make_ctr_backup(Strategy& strategy, const CtrOptions& options,
                                           const CtrObjects& objects,
                                           const std::function<void(const std::string&)>& say);

}  // namespace lockstep::apps
