#include "lockstep/apps/train_ctr/ctr_backup.h"

#include <cstddef>
#include <system_error>

#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/runtime/base/files/internal/regular_file.h"
#include "lockstep/runtime/base/files/output_file.h"
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

/// The file next to the checkpoints that says how their run was configured, as the servers, which write the
/// checkpoints, do not know.
constexpr const char* kConfigurationNote = "configuration.json";
constexpr size_t kLongestNote = size_t{1} << 20;

/// Returns nothing if there is no such file, as earlier versions wrote none.
std::string text_of_note(const std::string& path) {
  try {
    return RegularFile(path).read_start(kLongestNote);
  } catch (const NotARegularFile& other) {
    throw CheckpointError(other.what());
  } catch (const std::system_error&) {
    return "";
  }
}

class ServersBackup : public CtrBackup {
 public:
  ServersBackup(ParameterServerStrategy& strategy, const CtrOptions& options, const CtrBackupNotes& notes)
      : backup_(strategy, {.folder = options.backup_dir,
                           .every = SaveInterval::parse(options.save_every),
                           .on_message = notes.log}) {
    const std::string path = options.backup_dir + "/" + kConfigurationNote;
    if (first_step() > 0) notes.on_resume(text_of_note(path));
    replace_file(path, notes.configuration);
  }
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
    return std::make_unique<ServersBackup>(*served, options, notes);
  return std::make_unique<ReplicasBackup>(strategy, options, objects, notes);
}

}  // namespace lockstep::apps
