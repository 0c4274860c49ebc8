#include "lockstep/training/callbacks/early_stopping.h"

#include <c10/util/StringUtil.h>

#include <torch/utils.h>
#include <algorithm>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/replicas/buffer_aggregation.h"
#include "lockstep/strategies/core/strategy.h"
#include "lockstep/training/callbacks/internal/monitor_check.h"
#include "lockstep/training/formats/state_view.h"
#include "lockstep/training/state/internal/replica_states.h"
#include "lockstep/training/state/internal/sharded_states.h"

namespace lockstep {

EarlyStopping::EarlyStopping(const EarlyStoppingOptions& options)
    : options_(options), monitor_("EarlyStopping", options.monitor) {
  if (options.patience < 1) {
    throw InvalidArgument(c10::str("[EarlyStopping] expected a patience of 1 or more epochs, but got ",
                                   options.patience,
                                   "; 1 stops after the first epoch that is not better, as Keras's 0 does"));
  }
}

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
    const torch::NoGradGuard no_grad;
    best_.clear();
    for (const auto& module : state.objects().modules) {
      refuse_shards("EarlyStopping with restore_best", *module);
      auto& copies = best_.emplace_back();
      for (const auto& [name, tensor] : named_state(*module)) copies.push_back(tensor.detach().clone());
    }
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
  std::vector<torch::Tensor> own;
  for (const auto& of_replica : best_) own.insert(own.end(), of_replica.begin(), of_replica.end());
  StateValue::List weights;
  if (options_.restore_best) {
    // The replicas' buffers differ.
    for (auto& tensor : gather_of_replicas(fit.strategy(), own)) weights.emplace_back(std::move(tensor));
  }
  state.add("weights", std::move(weights));
  return state;
}

void EarlyStopping::restore(FitState& fit, const StateView& saved) {
  monitor_.restore(number_in(saved.at("best")));
  best_epoch_ = saved.at("best_epoch").count();
  epochs_without_ = saved.at("epochs_without").count();
  best_.clear();
  const auto weights = saved.at("weights").items();
  if (options_.restore_best && !weights.empty()) {
    const size_t size = named_state(*fit.objects().modules.front()).size();
    const auto replicas = weights.size() / std::max<size_t>(size, 1);
    const bool is_same_number = static_cast<int>(replicas) == fit.strategy().num_ranks();
    if (replicas * size != weights.size()) saved.at("weights").fail("weights of this model", "others");
    const auto rules = buffer_aggregations(*fit.objects().modules.front());
    for (size_t local = 0; local < fit.objects().modules.size(); ++local) {
      const size_t replica = local + static_cast<size_t>(fit.strategy().first_local_replica());
      auto& copies = best_.emplace_back();
      size_t at = 0;
      for (const auto& [name, tensor] : named_state(*fit.objects().modules[local])) {
        if (is_same_number) {
          copies.push_back(weights[replica * size + at++].tensor_like(tensor));
          continue;
        }
        std::vector<torch::Tensor> of_replicas;
        for (size_t other = 0; other < replicas; ++other)
          of_replicas.push_back(weights[other * size + at].tensor_like(tensor));
        ++at;
        const auto rule = rules.find(name);
        if (rule == rules.end()) {  // a parameter, which is equal on all
          copies.push_back(of_replicas.front());
        } else if (rule->second == BufferAggregation::kSum && replica != 0) {
          copies.push_back(torch::zeros_like(tensor));
        } else {
          copies.push_back(aggregate_values(name, rule->second, of_replicas));
        }
      }
    }
  }
  stop_where_due(fit);
}

void EarlyStopping::on_fit_end(FitState& state) {
  if (best_.empty()) return;
  const torch::NoGradGuard no_grad;
  for (size_t replica = 0; replica < best_.size(); ++replica) {
    const auto tensors = named_state(*state.objects().modules[replica]);
    for (size_t i = 0; i < tensors.size(); ++i) tensors[i].second.detach().copy_(best_[replica][i]);
  }
  best_.clear();
}

}  // namespace lockstep
