#include "lockstep/training/optimizers/sparse_adam.h"

#include <torch/utils.h>

#include <memory>
#include <stdexcept>

#include "lockstep/training/optimizers/internal/fused_call.h"
#include "lockstep/training/optimizers/internal/row_steps.h"

namespace lockstep {
namespace {

using torch::optim::AdamParamState;
using torch::serialize::InputArchive;
using torch::serialize::OutputArchive;

constexpr const char* kSparseAdam = "SparseAdam";

AdamRule rule_of(const SparseAdamOptions& options) {
  return {.beta1 = std::get<0>(options.betas()),
          .beta2 = std::get<1>(options.betas()),
          .eps = options.eps(),
          .maximize = options.maximize()};
}

}  // namespace

void SparseAdamOptions::serialize(OutputArchive& archive) const {
  archive.write("lr", torch::IValue(lr()));
  archive.write("betas", torch::IValue(betas()));
  archive.write("eps", torch::IValue(eps()));
  archive.write("maximize", torch::IValue(maximize()));
}

void SparseAdamOptions::serialize(InputArchive& archive) {
  const auto read = [&archive](const char* key) { return read_option_value(archive, key); };
  lr(read("lr").toDouble());
  const auto betas_read = read("betas").toTuple();
  betas({betas_read->elements().at(0).toDouble(), betas_read->elements().at(1).toDouble()});
  eps(read("eps").toDouble());
  maximize(read("maximize").toBool());
}

SparseAdam::SparseAdam(const std::vector<torch::optim::OptimizerParamGroup>& param_groups,
                       const SparseAdamOptions& defaults)
    : Optimizer(param_groups, std::make_unique<SparseAdamOptions>(defaults)) {
  for (size_t group = 0; group < param_groups_.size(); ++group) {
    const auto& options = fused_options<SparseAdamOptions>(param_groups_, group, kSparseAdam);
    require_option(options.lr() >= 0, kSparseAdam, "lr", "at least 0", options.lr());
    require_option(options.eps() >= 0, kSparseAdam, "eps", "at least 0", options.eps());
    const auto [beta1, beta2] = options.betas();
    require_option(beta1 >= 0 && beta1 < 1, kSparseAdam, "betas[0]", "at least 0 and below 1", beta1);
    require_option(beta2 >= 0 && beta2 < 1, kSparseAdam, "betas[1]", "at least 0 and below 1", beta2);
  }
}

SparseAdam::SparseAdam(std::vector<torch::Tensor> parameters, const SparseAdamOptions& defaults)
    : SparseAdam(std::vector<torch::optim::OptimizerParamGroup>{std::move(parameters)}, defaults) {}

torch::Tensor SparseAdam::step(LossClosure closure) {
  auto loss = evaluate_closure(closure);
  const torch::NoGradGuard no_grad;
  for (size_t group = 0; group < param_groups_.size(); ++group) {
    const auto& options = fused_options<SparseAdamOptions>(param_groups_, group, kSparseAdam);
    const auto rule = rule_of(options);
    const auto& parameters = param_groups_[group].params();
    for (size_t index = 0; index < parameters.size(); ++index) {
      const auto& parameter = parameters[index];
      if (!parameter.grad().defined()) continue;
      const ParameterPosition position{.optimizer = kSparseAdam, .group = group, .index = index};
      const auto gradient = row_gradient(parameter.grad(), kSparseAdam);
      auto& state = fused_state_of<AdamParamState>(state_, parameter);
      const auto moment = [&](const torch::Tensor& held) {
        return held.defined() ? fused_state(held, parameter, position) : torch::zeros_like(parameter);
      };
      state.exp_avg(moment(state.exp_avg()));
      state.exp_avg_sq(moment(state.exp_avg_sq()));
      state.step(state.step() + 1);
      step_rows_by_adam(parameter, {state.exp_avg(), state.exp_avg_sq()}, gradient, rule,
                        rule.maximize ? -options.lr() : options.lr(), state.step());
    }
  }
  return loss;
}

UpdateRule SparseAdam::update_rule(size_t group) const {
  return rule_of(fused_options<SparseAdamOptions>(param_groups_, group, kSparseAdam));
}

void SparseAdam::save(OutputArchive& archive) const {
  torch::optim::serialize<AdamParamState, SparseAdamOptions>(archive, *this);
}

void SparseAdam::load(InputArchive& archive) {
  torch::optim::serialize<AdamParamState, SparseAdamOptions>(archive, *this);
}

}  // namespace lockstep
