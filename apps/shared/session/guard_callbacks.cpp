#include "lockstep/apps/shared/session/guard_callbacks.h"

#include <memory>
#include <utility>

#include "lockstep/training/callbacks/divergence_check.h"
#include "lockstep/training/callbacks/early_stopping.h"
#include "lockstep/training/callbacks/model_checkpoint.h"
#include "lockstep/training/callbacks/nan_guard.h"
#include "lockstep/training/callbacks/profiler.h"

namespace lockstep::apps {
namespace {

/// Often enough that a long epoch is not wasted, and rarely enough that waiting for a GPU costs nothing.
constexpr int64_t kStepsBetweenNanChecks = 100;

}  // namespace

Callbacks guard_callbacks(const RunChoice& choice, std::function<void(const std::string&)> log) {
  Callbacks callbacks{std::make_shared<NanGuard>(NanGuardOptions{
      .every_steps = kStepsBetweenNanChecks, .action = choice.on_not_finite, .on_message = std::move(log)})};
  if (choice.check_replicas > 0) {
    callbacks.push_back(
        std::make_shared<DivergenceCheck>(DivergenceCheckOptions{.every_steps = choice.check_replicas}));
  }
  return callbacks;
}

void add_outcome_callbacks(const RunChoice& choice, int64_t patience, const std::optional<RunPaths>& paths,
                           Callbacks& callbacks) {
  if (patience > 0)
    callbacks.push_back(std::make_shared<EarlyStopping>(EarlyStoppingOptions{.patience = patience}));
  if (!paths) return;
  callbacks.push_back(
      std::make_shared<ModelCheckpoint>(ModelCheckpointOptions{.folder = paths->checkpoints()}));
  if (choice.profile > 0) {
    callbacks.push_back(std::make_shared<Profiler>(
        ProfilerOptions{.path = paths->folder + "/profile.json", .steps = choice.profile}));
  }
}

}  // namespace lockstep::apps
