#include "lockstep/training/optimizers/fused_optimizer.h"

#include <torch/utils.h>

#include <utility>

#include "lockstep/training/optimizers/internal/fused_call.h"

namespace lockstep {

FusedOptimizer::FusedOptimizer(const char* name,
                               const std::vector<torch::optim::OptimizerParamGroup>& param_groups,
                               std::unique_ptr<torch::optim::OptimizerOptions> defaults)
    : Optimizer(param_groups, std::move(defaults)), name_(name) {}

torch::Tensor FusedOptimizer::step(LossClosure closure) {
  auto loss = evaluate_closure(closure);
  step_groups(torch::Tensor());
  return loss;
}

void FusedOptimizer::step_groups(const torch::Tensor& found_inf) {
  const torch::NoGradGuard no_grad;
  for (size_t group = 0; group < param_groups_.size(); ++group) step_group(group, found_inf);
}

CapturableFusedOptimizer::CapturableFusedOptimizer(
    const char* name, const std::vector<torch::optim::OptimizerParamGroup>& param_groups,
    std::unique_ptr<torch::optim::OptimizerOptions> defaults)
    : FusedOptimizer(name, param_groups, std::move(defaults)) {}

void CapturableFusedOptimizer::step_unless(const torch::Tensor& found_inf) {
  step_groups(found_inf);
}

void CapturableFusedOptimizer::describe_step(Fingerprint& fingerprint) const {
  for (size_t group = 0; group < param_groups_.size(); ++group) {
    describe_options(fingerprint, group);
    const double rate = param_groups_[group].options().get_lr();
    for (const auto& parameter : param_groups_[group].params()) {
      fingerprint.add_identity(parameter);
      // A rate in a tensor may change: refresh_step() writes it.
      if (!StepRates::are_tensors_for(parameter)) fingerprint.add(rate);
      const auto state = state_.find(parameter.unsafeGetTensorImpl());
      if (state != state_.end()) describe_state(fingerprint, *state->second);
    }
  }
  rates_.describe(fingerprint);
}

void CapturableFusedOptimizer::refresh_step() {
  rates_.refresh([this](size_t group) { return param_groups_[group].options().get_lr(); });
}

}  // namespace lockstep
