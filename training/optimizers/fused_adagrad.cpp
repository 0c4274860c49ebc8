#include "lockstep/training/optimizers/fused_adagrad.h"

#include <torch/optim/serialize.h>

#include <memory>
#include <stdexcept>
#include <utility>

#include "lockstep/training/optimizers/internal/fused_call.h"
#include "lockstep/training/optimizers/internal/row_steps.h"

namespace lockstep {
namespace {

using torch::optim::AdagradParamState;
using torch::serialize::InputArchive;
using torch::serialize::OutputArchive;

constexpr const char* kAdagrad = "FusedAdagrad";

void step_dense(const torch::Tensor& parameter, torch::Tensor gradient, const AdagradParamState& state,
                const FusedAdagradOptions& options, double rate) {
  if (parameter.is_cpu()) {
    const auto step = torch::full({}, static_cast<double>(state.step()), torch::kFloat);
    torch::_fused_adagrad_({parameter}, {gradient}, {state.sum()}, {step}, options.lr(), options.lr_decay(),
                           options.weight_decay(), options.eps(), options.maximize());
    return;
  }
  if (options.maximize()) gradient = -gradient;
  if (options.weight_decay() != 0) gradient = gradient.add(parameter, options.weight_decay());
  state.sum().addcmul_(gradient, gradient);
  torch::Tensor stepped = parameter;
  stepped.addcdiv_(gradient, state.sum().sqrt().add_(options.eps()), -rate);
}

}  // namespace

// The keys and types are those of torch::optim::AdagradOptions, so that archives can be exchanged with it.
void FusedAdagradOptions::serialize(OutputArchive& archive) const {
  archive.write("lr", torch::IValue(lr()));
  archive.write("lr_decay", torch::IValue(lr_decay()));
  archive.write("weight_decay", torch::IValue(weight_decay()));
  archive.write("initial_accumulator_value", torch::IValue(initial_accumulator_value()));
  archive.write("eps", torch::IValue(eps()));
  archive.write("maximize", torch::IValue(maximize()));
}

void FusedAdagradOptions::serialize(InputArchive& archive) {
  const auto read = [&archive](const char* key) { return read_option_value(archive, key); };
  lr(read("lr").toDouble());
  lr_decay(read("lr_decay").toDouble());
  weight_decay(read("weight_decay").toDouble());
  initial_accumulator_value(read("initial_accumulator_value").toDouble());
  eps(read("eps").toDouble());
  maximize(read_maximize(archive));
}

FusedAdagrad::FusedAdagrad(const std::vector<torch::optim::OptimizerParamGroup>& param_groups,
                           const FusedAdagradOptions& defaults)
    : FusedOptimizer(kAdagrad, param_groups, std::make_unique<FusedAdagradOptions>(defaults)) {
  for (size_t group = 0; group < param_groups_.size(); ++group) {
    const auto& options = fused_options<FusedAdagradOptions>(param_groups_, group, kAdagrad);
    const auto require = [](const char* option, double value) {
      require_option(value >= 0, kAdagrad, option, "at least 0", value);
    };
    require("lr", options.lr());
    require("lr_decay", options.lr_decay());
    require("weight_decay", options.weight_decay());
    require("initial_accumulator_value", options.initial_accumulator_value());
    require("eps", options.eps());
  }
}

FusedAdagrad::FusedAdagrad(std::vector<torch::Tensor> parameters, const FusedAdagradOptions& defaults)
    : FusedAdagrad(std::vector<torch::optim::OptimizerParamGroup>{std::move(parameters)}, defaults) {}

// Never skips a step: Adagrad is not a SkippableStep.
void FusedAdagrad::step_group(size_t group, const torch::Tensor& /*found_inf*/) {
  const auto& options = fused_options<FusedAdagradOptions>(param_groups_, group, kAdagrad);
  const auto& parameters = param_groups_[group].params();
  for (size_t index = 0; index < parameters.size(); ++index) {
    const auto& parameter = parameters[index];
    const auto& given = parameter.grad();
    if (!given.defined()) continue;
    const ParameterPosition position{.optimizer = kAdagrad, .group = group, .index = index};
    torch::Tensor dense;
    RowGradient rows;
    if (!given.is_sparse()) {
      dense = fused_gradient(parameter, position);
    } else if (options.weight_decay() != 0) {
      throw std::invalid_argument(
          "[FusedAdagrad] expected no weight_decay with sparse gradients, as it would change all rows");
    } else {
      rows = row_gradient(given, kAdagrad);
    }
    auto& state = fused_state_of<AdagradParamState>(state_, parameter);
    state.sum(state.sum().defined() ? fused_state(state.sum(), parameter, position)
                                    : torch::full_like(parameter, options.initial_accumulator_value()));
    const double rate = options.lr() / (1 + static_cast<double>(state.step()) * options.lr_decay());
    state.step(state.step() + 1);
    if (dense.defined()) {
      step_dense(parameter, dense, state, options, rate);
    } else {
      step_rows_by_adagrad(parameter, state.sum(), rows, options.maximize() ? -rate : rate, options.eps());
    }
  }
}

UpdateRule FusedAdagrad::update_rule(size_t group) const {
  const auto& options = fused_options<FusedAdagradOptions>(param_groups_, group, kAdagrad);
  return AdagradRule{.lr_decay = options.lr_decay(),
                     .weight_decay = options.weight_decay(),
                     .initial_accumulator_value = options.initial_accumulator_value(),
                     .eps = options.eps(),
                     .maximize = options.maximize()};
}

void FusedAdagrad::save(OutputArchive& archive) const {
  torch::optim::serialize<AdagradParamState, FusedAdagradOptions>(archive, *this);
}

void FusedAdagrad::load(InputArchive& archive) {
  torch::optim::serialize<AdagradParamState, FusedAdagradOptions>(archive, *this);
}

}  // namespace lockstep
