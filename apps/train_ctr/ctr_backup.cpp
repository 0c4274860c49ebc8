#include "lockstep/apps/train_ctr/ctr_backup.h"

#include "lockstep/runtime/base/save_interval.h"
#include "lockstep/strategies/parameter_server/parameter_server_strategy.h"
#include "lockstep/training/checkpoints/backup.h"
#include "lockstep/training/parameter_server/parameter_server_backup.h"

namespace lockstep::apps {
namespace {

class NoBackup : public CtrBackup {
 public:
  int64_t first_step() const override { return 0; }
  void steps_done(int64_t) override {}
  void finish(int64_t) override {}
};

/// Backs up replicas that step together.
class ReplicasBackup : public CtrBackup {
 public:
  ReplicasBackup(Strategy& strategy, const CtrOptions& options, const CtrObjects& objects,
                 const CtrBackupNotes& notes)
      : seed_(static_cast<int64_t>(options.seed)),
        backup_(strategy, {.folder = options.backup_dir,
                           .save_every = SaveInterval::parse(options.save_every),
                           .resume = options.resume,
                           .configuration = notes.configuration,
                           .on_resume = notes.on_resume,
                           .on_message = notes.log}) {
    backup_.state().add_model(objects.model);
    backup_.state().add_optimizer("network", objects.network_optimizer);
    backup_.state().add_optimizer("tables", objects.table_optimizer);
    if (const auto restored = backup_.restore()) first_step_ = restored->progress.step;
  }
  int64_t first_step() const override { return first_step_; }
  void steps_done(int64_t steps) override { backup_.step_done(progress(steps)); }
  void finish(int64_t steps) override { backup_.finish(progress(steps)); }

 private:
  /// Steps are numbered over all epochs, so their batches need no other position.
  TrainingProgress progress(int64_t steps) const {
    return {.step = steps, .position = steps, .shuffle_seed = seed_};
  }

  const int64_t seed_;
  Backup backup_;
  int64_t first_step_ = 0;
};

class ServersBackup : public CtrBackup {
 public:
  ServersBackup(ParameterServerStrategy& strategy, const CtrOptions& options,
                const std::function<void(const std::string&)>& log)
      : backup_(strategy, {.folder = options.backup_dir,
                           .every = SaveInterval::parse(options.save_every),
                           .on_message = log}) {}
  int64_t first_step() const override { return backup_.first_step(); }
  void steps_done(int64_t steps) override { backup_.after_step(steps - 1); }
  void finish(int64_t) override { backup_.finish(); }

 private:
  ParameterServerBackup backup_;
};

}  // namespace

std::unique_ptr<CtrBackup> make_ctr_backup(Strategy& strategy, const CtrOptions& options,
                                           const CtrObjects& objects, const CtrBackupNotes& notes) {
  if (options.backup_dir.empty()) return std::make_unique<NoBackup>();
  if (auto* served = dynamic_cast<ParameterServerStrategy*>(&strategy))
    return std::make_unique<ServersBackup>(*served, options, notes.log);
  return std::make_unique<ReplicasBackup>(strategy, options, objects, notes);
}

}  // namespace lockstep::apps
