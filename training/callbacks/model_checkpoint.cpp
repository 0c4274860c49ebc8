#include "lockstep/training/callbacks/model_checkpoint.h"

#include <c10/util/StringUtil.h>

#include <filesystem>
#include <functional>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/training/callbacks/internal/monitor_check.h"
#include "lockstep/training/checkpoints/internal/divided_weights.h"
#include "lockstep/training/formats/internal/state_archive.h"
#include "lockstep/training/formats/state_view.h"
#include "lockstep/training/state/internal/whole_tensors.h"

namespace lockstep {

ModelCheckpoint::ModelCheckpoint(const ModelCheckpointOptions& options) : options_(options) {
  if (options.folder.empty()) throw InvalidArgument("[ModelCheckpoint] expected a folder, but got none");
  if (options.every_epochs < 1) {
    throw InvalidArgument(
        c10::str("[ModelCheckpoint] expected every_epochs of 1 or more, but got ", options.every_epochs));
  }
}

void ModelCheckpoint::on_fit_begin(FitState& state) {
  if (options_.save_best && options_.monitor) check_monitor(Monitor(name(), *options_.monitor), state);
  if (state.is_chief()) std::filesystem::create_directories(options_.folder);
  if (state.global_step == 0) {  // else the run is resumed
    monitor_.reset();
    resumed_best_.reset();
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
  std::vector<std::string> names;
  if (options_.save_best && monitor(state.logs).improves(state.logs)) {
    names.emplace_back("best");
    best_epoch_ = state.epoch;
  }
  if (options_.save_last && state.epoch % options_.every_epochs == 0) {
    names.emplace_back("last");
    last_epoch_ = state.epoch;
  }
  if (!names.empty()) save(state, names);
}

Monitor& ModelCheckpoint::monitor(const Logs& logs) {
  if (!monitor_) {
    const std::string usual = logs.find("validation_loss") ? "validation_loss" : "loss";
    monitor_.emplace("ModelCheckpoint", options_.monitor.value_or(MonitorOptions{.name = usual}));
    monitor_->restore(resumed_best_ ? resumed_best_ : options_.best);
  }
  return *monitor_;
}

StateValue ModelCheckpoint::state(FitState&) {
  StateValue::Dict state;
  state.add("best", saved_number(monitor_        ? monitor_->best()
                                 : resumed_best_ ? resumed_best_
                                                 : options_.best));
  state.add("best_epoch", best_epoch_);
  state.add("last_epoch", last_epoch_);
  state.add("ended_epoch", ended_epoch_);
  return state;
}

void ModelCheckpoint::restore(FitState&, const StateView& saved) {
  resumed_best_ = number_in(saved.at("best"));
  monitor_.reset();
  best_epoch_ = saved.at("best_epoch").count();
  last_epoch_ = saved.at("last_epoch").count();
  ended_epoch_ = saved.at("ended_epoch").count();
}

void ModelCheckpoint::on_fit_end(FitState& state) {
  // An epoch that was cut short is not saved: the file would claim that it was finished.
  if (options_.save_last && last_epoch_ != ended_epoch_ && state.epoch == ended_epoch_) save(state, {"last"});
  state.strategy().extended().gather_tensors({});  // all workers find the files when fit() returns
}

void ModelCheckpoint::save(FitState& state, const std::vector<std::string>& names) {
  TrainingProgress progress = state.progress();
  progress.epoch = state.epoch;  // the epoch at whose end this is saved
  const auto collected = training_->collect(progress);
  const NamedTensors weights = divided_weights(collected);
  for (const auto& name : names) {
    const std::string path = options_.folder + "/" + name;
    std::function<void(WholeTensors&)> write;
    if (state.is_chief())
      write = [&](WholeTensors& whole) { save_state_archive(path + ".pt", collected.own, std::ref(whole)); };
    write_whole_tensors(state.strategy(), collected.shared, collected.own, write);
    save_divided_weights(path + ".safetensors", state.strategy(), weights);
  }
}

}  // namespace lockstep
