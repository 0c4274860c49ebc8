#include "lockstep/training/model_checkpoint.h"

#include <c10/util/StringUtil.h>

#include <filesystem>

#include "lockstep/runtime/errors.h"
#include "lockstep/training/average_buffers.h"
#include "lockstep/training/weights_file.h"

namespace lockstep {

ModelCheckpoint::ModelCheckpoint(const ModelCheckpointOptions& options) : options_(options) {
  if (options.folder.empty()) throw InvalidArgument("[ModelCheckpoint] expected a folder, but got none");
  if (options.every_epochs < 1) {
    throw InvalidArgument(
        c10::str("[ModelCheckpoint] expected every_epochs of 1 or more, but got ", options.every_epochs));
  }
}

void ModelCheckpoint::on_fit_begin(FitState& state) {
  if (state.is_chief()) std::filesystem::create_directories(options_.folder);
  if (state.global_step == 0) {  // else the run goes on
    monitor_.reset();
    best_epoch_ = 0;
  }
  last_epoch_ = ended_epoch_ = 0;
  training_.emplace(state.strategy());
  training_->add_model(state.objects().modules);
  training_->add_optimizer("optimizer", state.objects().optimizers);
  training_->add_scaler(state.objects().scalers);
}

void ModelCheckpoint::on_epoch_end(FitState& state) {
  ended_epoch_ = state.epoch;
  if (options_.save_best) {
    if (!monitor_) {
      const std::string usual = state.logs.find("validation_loss") ? "validation_loss" : "loss";
      monitor_.emplace("ModelCheckpoint", options_.monitor.value_or(MonitorOptions{.name = usual}));
      if (options_.best) monitor_->restore(*options_.best);
    }
    if (monitor_->improves(state.logs)) {
      save(state, "best");
      best_epoch_ = state.epoch;
    }
  }
  if (options_.save_last && state.epoch % options_.every_epochs == 0) {
    save(state, "last");
    last_epoch_ = state.epoch;
  }
}

void ModelCheckpoint::on_fit_end(FitState& state) {
  // Of an epoch that was cut short nothing is saved: the file would say that it was finished.
  if (options_.save_last && last_epoch_ != ended_epoch_ && state.epoch == ended_epoch_) save(state, "last");
}

void ModelCheckpoint::save(FitState& state, const std::string& name) {
  const std::string path = options_.folder + "/" + name;
  const DatasetPosition position = state.position();
  TrainingProgress progress{.epoch = state.epoch,
                            .step = state.global_step,
                            .dataset_epoch = position.epoch,
                            .position = position.step};
  for (const auto& [metric, value] : state.logs) progress.metrics[metric] = value;
  training_->save(path + ".pt", progress);
  const auto weights = averaged_state_dict(state.strategy(), state.objects().modules);
  if (state.is_chief()) save_weights(path + ".safetensors", weights);
}

}  // namespace lockstep
