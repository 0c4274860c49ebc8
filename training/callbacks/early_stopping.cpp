#include "lockstep/training/callbacks/early_stopping.h"

#include <c10/util/StringUtil.h>

#include <torch/types.h>

#include <algorithm>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/replicas/module_state.h"
#include "lockstep/training/callbacks/internal/monitor_check.h"
#include "lockstep/training/formats/state_view.h"
#include "lockstep/training/state/internal/model_copies.h"

namespace lockstep {
namespace {

/// Returns weights as save_copies() does. Earlier versions saved a list of all tensors of each replica.
StateValue weights_by_name(const StateView& saved, const torch::nn::Module& module) {
  if (saved.value().get_if<StateValue::List>() == nullptr) return saved.value();
  const auto items = saved.items();
  if (items.empty()) return {};
  const auto names = named_state(module);
  const size_t size = std::max<size_t>(names.size(), 1);
  if (items.size() % size != 0) saved.fail("weights of this model", "others");
  const size_t num_parameters = module.named_parameters().size();
  StateValue::Dict parameters;
  StateValue::Dict buffers;
  for (size_t i = 0; i < size; ++i) {
    std::vector<torch::Tensor> of_replicas;
    for (size_t at = i; at < items.size(); at += size) of_replicas.push_back(items[at].tensor());
    if (i < num_parameters) {
      parameters.add(names[i].first, of_replicas.front());
    } else {
      buffers.add(names[i].first, torch::stack(of_replicas));
    }
  }
  StateValue::Dict weights;
  weights.add("parameters", std::move(parameters));
  weights.add("buffers", std::move(buffers));
  return weights;
}

}  // namespace

EarlyStopping::EarlyStopping(const EarlyStoppingOptions& options)
    : options_(options), monitor_("EarlyStopping", options.monitor) {
  if (options.patience < 1) {
    throw InvalidArgument(c10::str("[EarlyStopping] expected a patience of 1 or more epochs, but got ",
                                   options.patience,
                                   "; 1 stops after the first epoch that is not better, as Keras's 0 does"));
  }
}

EarlyStopping::~EarlyStopping() = default;

void EarlyStopping::on_fit_begin(FitState& state) {
  check_monitor(monitor_, state);
  if (state.global_step > 0) return;  // a resumed run
  monitor_ = Monitor("EarlyStopping", options_.monitor);
  best_epoch_ = epochs_without_ = 0;
  best_.clear();
}

void EarlyStopping::on_epoch_end(FitState& state) {
  if (monitor_.improves(state.logs)) {
    best_epoch_ = state.epoch;
    epochs_without_ = 0;
    if (!options_.restore_best) return;
    best_.clear();  // first, since memory may not hold two copies
    best_ = copies_of_model(state.strategy(), state.objects().modules);
  } else {
    ++epochs_without_;
    stop_where_due(state);
  }
}

void EarlyStopping::stop_where_due(FitState& state) const {
  if (epochs_without_ < options_.patience) return;
  state.stop(c10::str(monitor_.name(), " is not better than in epoch ", best_epoch_, " since ",
                      options_.patience, options_.patience == 1 ? " epoch" : " epochs"));
}

StateValue EarlyStopping::state(FitState& fit) {
  StateValue::Dict state;
  state.add("best", saved_number(monitor_.best()));
  state.add("best_epoch", best_epoch_);
  state.add("epochs_without", epochs_without_);
  state.add("weights",
            best_.empty() ? StateValue() : save_copies(fit.strategy(), fit.objects().modules, best_));
  return state;
}

void EarlyStopping::restore(FitState& fit, const StateView& saved) {
  monitor_.restore(number_in(saved.at("best")));
  best_epoch_ = saved.at("best_epoch").count();
  epochs_without_ = saved.at("epochs_without").count();
  best_.clear();
  const StateView weights = saved.at("weights");
  if (options_.restore_best && !weights.is_none()) {
    const auto& modules = fit.objects().modules;
    const StateValue by_name = weights_by_name(weights, *modules.front());
    if (by_name.get_if<StateValue::Dict>() != nullptr)
      best_ = load_copies(fit.strategy(), modules, StateView(by_name, "EarlyStopping", "['weights']"));
  }
  stop_where_due(fit);
}

void EarlyStopping::on_fit_end(FitState& state) {
  if (best_.empty()) return;
  put_back_copies(state.strategy(), state.objects().modules, best_);
  best_.clear();
}

}  // namespace lockstep
