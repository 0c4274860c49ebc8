#include "lockstep/training/optimizers/fused_sgd.h"

#include <torch/optim/serialize.h>

#include <memory>
#include <utility>
#include <variant>

#include "lockstep/training/optimizers/internal/fused_call.h"

namespace lockstep {
namespace {

using torch::serialize::InputArchive;
using torch::serialize::OutputArchive;

constexpr const char* kSgd = "FusedSgd";
constexpr size_t kMomentumBuffer = 0;  // the state list of a FusedCall

}  // namespace

// The keys and types are those of torch::optim::SGDOptions, so that archives can be exchanged with it.
void FusedSgdOptions::serialize(OutputArchive& archive) const {
  archive.write("lr", torch::IValue(lr()));
  archive.write("momentum", torch::IValue(momentum()));
  archive.write("dampening", torch::IValue(dampening()));
  archive.write("weight_decay", torch::IValue(weight_decay()));
  archive.write("nesterov", torch::IValue(nesterov()));
  archive.write("maximize", torch::IValue(maximize()));
}

void FusedSgdOptions::serialize(InputArchive& archive) {
  const auto read = [&archive](const char* key) { return read_option_value(archive, key); };
  lr(read("lr").toDouble());
  momentum(read("momentum").toDouble());
  dampening(read("dampening").toDouble());
  weight_decay(read("weight_decay").toDouble());
  nesterov(read("nesterov").toBool());
  maximize(read_maximize(archive));
}

void FusedSgdParamState::serialize(OutputArchive& archive) const {
  if (momentum_buffer().defined()) archive.write("momentum_buffer", torch::IValue(momentum_buffer()));
}

void FusedSgdParamState::serialize(InputArchive& archive) {
  torch::IValue value;
  momentum_buffer(archive.try_read("momentum_buffer", value) ? value.toTensor() : torch::Tensor());
}

FusedSgd::FusedSgd(const std::vector<torch::optim::OptimizerParamGroup>& param_groups,
                   const FusedSgdOptions& defaults)
    : CapturableFusedOptimizer(kSgd, param_groups, std::make_unique<FusedSgdOptions>(defaults)) {
  for (size_t group = 0; group < param_groups_.size(); ++group) {
    const auto& options = fused_options<FusedSgdOptions>(param_groups_, group, kSgd);
    require_option(options.lr() >= 0, kSgd, "lr", "at least 0", options.lr());
    require_option(options.momentum() >= 0, kSgd, "momentum", "at least 0", options.momentum());
    require_option(options.weight_decay() >= 0, kSgd, "weight_decay", "at least 0", options.weight_decay());
    if (!options.nesterov()) continue;
    require_option(options.momentum() > 0, kSgd, "momentum", "positive with nesterov", options.momentum());
    require_option(options.dampening() == 0, kSgd, "dampening", "0 with nesterov", options.dampening());
  }
}

FusedSgd::FusedSgd(std::vector<torch::Tensor> parameters, const FusedSgdOptions& defaults)
    : FusedSgd(std::vector<torch::optim::OptimizerParamGroup>{std::move(parameters)}, defaults) {}

void FusedSgd::step_groups(const torch::Tensor& found_inf) {
  is_first_step_due_ = false;
  CapturableFusedOptimizer::step_groups(found_inf);
}

void FusedSgd::step_group(size_t group, const torch::Tensor& found_inf) {
  const SgdRule rule = std::get<SgdRule>(update_rule(group));
  const auto add_state = [&](std::vector<FusedCall>& calls, const torch::Tensor& parameter,
                             const ParameterPosition& position) -> FusedCall& {
    if (rule.momentum == 0) return fused_call_for(calls, parameter);
    auto& state = fused_state_of<FusedSgdParamState>(state_, parameter);
    // On a first step the operator writes the buffer before reading it.
    const bool first_step = !state.momentum_buffer().defined();
    torch::Tensor buffer =
        first_step ? torch::empty_like(parameter) : fused_state(state.momentum_buffer(), parameter, position);
    if (!first_step) state.momentum_buffer(buffer);
    auto& call = fused_call_for(calls, parameter, first_step);
    call.states[kMomentumBuffer].push_back(std::move(buffer));
    return call;
  };
  for (const auto& call : fused_calls(param_groups_[group].params(), name(), group, add_state)) {
    const auto skips = fused_found_inf(found_inf, call.device);
    // A skipped first step writes no buffer, and the host must know which step is the first. Waiting for the
    // device until one step is done costs less than special handling of buffers without values.
    if (call.first_step && skips && skips->item<float>() != 0) {
      is_first_step_due_ = true;
      continue;
    }
    with_rate(group, call.parameters[0], [&](const auto& rate) {
      torch::_fused_sgd_(call.parameters, call.gradients, call.states[kMomentumBuffer], rule.weight_decay,
                         rule.momentum, rate, rule.dampening, rule.nesterov, rule.maximize, call.first_step,
                         /*grad_scale=*/{}, skips);
    });
    // First buffers are kept only once written, so that a refused step leaves none without values behind.
    for (size_t i = 0; call.first_step && i < call.parameters.size(); ++i) {
      fused_state_of<FusedSgdParamState>(state_, call.parameters[i])
          .momentum_buffer(call.states[kMomentumBuffer][i]);
    }
  }
}

void FusedSgd::describe_step(Fingerprint& fingerprint) const {
  CapturableFusedOptimizer::describe_step(fingerprint);
  if (is_first_step_due_) fingerprint.add_unsettled();  // the host waits for it
}

void FusedSgd::describe_options(Fingerprint& fingerprint, size_t group) const {
  const SgdRule rule = std::get<SgdRule>(update_rule(group));
  for (const double value : {rule.momentum, rule.dampening, rule.weight_decay}) fingerprint.add(value);
  fingerprint.add(rule.nesterov);
  fingerprint.add(rule.maximize);
}

void FusedSgd::describe_state(Fingerprint& fingerprint,
                              const torch::optim::OptimizerParamState& state) const {
  fingerprint.add_identity(static_cast<const FusedSgdParamState&>(state).momentum_buffer());
}

UpdateRule FusedSgd::update_rule(size_t group) const {
  const auto& options = fused_options<FusedSgdOptions>(param_groups_, group, kSgd);
  return SgdRule{.momentum = options.momentum(),
                 .dampening = options.dampening(),
                 .weight_decay = options.weight_decay(),
                 .nesterov = options.nesterov(),
                 .maximize = options.maximize()};
}

void FusedSgd::save(OutputArchive& archive) const {
  torch::optim::serialize<FusedSgdParamState, FusedSgdOptions>(archive, *this);
}

void FusedSgd::load(InputArchive& archive) {
  torch::optim::serialize<FusedSgdParamState, FusedSgdOptions>(archive, *this);
}

}  // namespace lockstep
