#include "lockstep/training/optimizers/fused_sgd.h"

#include <torch/utils.h>

#include <stdexcept>

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
  const auto read = [&archive](const char* key) {
    torch::IValue value;
    archive.read(key, value);
    return value;
  };
  lr(read("lr").toDouble());
  momentum(read("momentum").toDouble());
  dampening(read("dampening").toDouble());
  weight_decay(read("weight_decay").toDouble());
  nesterov(read("nesterov").toBool());
  torch::IValue value;
  maximize(archive.try_read("maximize", value) && value.toBool());
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
    : Optimizer(param_groups, std::make_unique<FusedSgdOptions>(defaults)) {
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

torch::Tensor FusedSgd::step(LossClosure closure) {
  auto loss = evaluate_closure(closure);
  step_unless(torch::Tensor());
  return loss;
}

void FusedSgd::step_unless(const torch::Tensor& found_inf) {
  torch::NoGradGuard no_grad;
  is_first_step_due_ = false;
  for (size_t group = 0; group < param_groups_.size(); ++group) {
    const auto& options = fused_options<FusedSgdOptions>(param_groups_, group, kSgd);
    const auto& parameters = param_groups_[group].params();
    std::vector<FusedCall> calls;
    for (size_t index = 0; index < parameters.size(); ++index) {
      const ParameterPosition position{.optimizer = kSgd, .group = group, .index = index};
      const auto& parameter = parameters[index];
      auto gradient = fused_gradient(parameter, position);
      if (!gradient.defined()) continue;
      torch::Tensor buffer;
      bool first_step = false;
      if (options.momentum() != 0) {
        auto& state = fused_state_of<FusedSgdParamState>(state_, parameter);
        // The operator writes a first step's buffer before it reads one.
        first_step = !state.momentum_buffer().defined();
        buffer = first_step ? torch::empty_like(parameter)
                            : fused_state(state.momentum_buffer(), parameter, position);
        if (!first_step) state.momentum_buffer(buffer);
      }
      auto& call = fused_call_for(calls, parameter, first_step);
      call.parameters.push_back(parameter);
      call.gradients.push_back(std::move(gradient));
      if (buffer.defined()) call.states[kMomentumBuffer].push_back(std::move(buffer));
    }
    for (const auto& call : calls) {
      const auto skips = fused_found_inf(found_inf, call.device);
      // A skipped first step writes no buffer, and the host has to know which step is the first. Waiting for
      // the device until one step is done costs less than a rule of its own for buffers without values.
      if (call.first_step && skips && skips->item<float>() != 0) {
        is_first_step_due_ = true;
        continue;
      }
      const auto update = [&](const auto& rate) {
        torch::_fused_sgd_(call.parameters, call.gradients, call.states[kMomentumBuffer],
                           options.weight_decay(), options.momentum(), rate, options.dampening(),
                           options.nesterov(), options.maximize(), call.first_step, /*grad_scale=*/{}, skips);
      };
      if (StepRates::are_tensors_for(call.parameters[0])) {
        update(rates_.get(group, call.device, options.lr()));
      } else {
        update(options.lr());
      }
      // A first buffer is kept only now that it is written: a refused step leaves none without values behind.
      for (size_t i = 0; call.first_step && i < call.parameters.size(); ++i) {
        fused_state_of<FusedSgdParamState>(state_, call.parameters[i])
            .momentum_buffer(call.states[kMomentumBuffer][i]);
      }
    }
  }
}

void FusedSgd::describe_step(Fingerprint& fingerprint) const {
  describe_fused_step<FusedSgdOptions, FusedSgdParamState>(
      fingerprint, *this, kSgd,
      [&](const FusedSgdOptions& options) {
        for (const double value : {options.momentum(), options.dampening(), options.weight_decay()})
          fingerprint.add(value);
        fingerprint.add(options.nesterov());
        fingerprint.add(options.maximize());
      },
      [&](const FusedSgdParamState& state) { fingerprint.add_identity(state.momentum_buffer()); });
  rates_.describe(fingerprint);
  if (is_first_step_due_) fingerprint.add_unsettled();  // the host waits for it
}

void FusedSgd::refresh_step() {
  rates_.refresh(
      [this](size_t group) { return fused_options<FusedSgdOptions>(param_groups_, group, kSgd).lr(); });
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
