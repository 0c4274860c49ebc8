#include "lockstep/training/optimizers/fused_adam.h"

#include <torch/utils.h>

#include <optional>

#include "lockstep/training/optimizers/internal/fused_call.h"

namespace lockstep {
namespace {

using torch::optim::Optimizer;
using torch::serialize::InputArchive;
using torch::serialize::OutputArchive;

constexpr const char* kAdam = "FusedAdam";
constexpr const char* kAdamW = "FusedAdamW";

// The state lists of a FusedCall.
enum AdamList : size_t { kExpAvg, kExpAvgSq, kMaxExpAvgSq, kStep };

template <typename Options>
void check_options(const Optimizer& optimizer, const char* name) {
  for (size_t group = 0; group < optimizer.param_groups().size(); ++group) {
    const auto& options = fused_options<Options>(optimizer.param_groups(), group, name);
    const auto [beta1, beta2] = options.betas();
    require_option(options.lr() >= 0, name, "lr", "at least 0", options.lr());
    require_option(options.eps() >= 0, name, "eps", "at least 0", options.eps());
    require_option(beta1 >= 0 && beta1 < 1, name, "betas[0]", "in [0, 1)", beta1);
    require_option(beta2 >= 0 && beta2 < 1, name, "betas[1]", "in [0, 1)", beta2);
    require_option(options.weight_decay() >= 0, name, "weight_decay", "at least 0", options.weight_decay());
  }
}

template <typename Options>
UpdateRule adam_rule(const Optimizer& optimizer, size_t group, const char* name, bool is_decoupled) {
  const auto& options = fused_options<Options>(optimizer.param_groups(), group, name);
  const auto [beta1, beta2] = options.betas();
  return AdamRule{.beta1 = beta1,
                  .beta2 = beta2,
                  .eps = options.eps(),
                  .weight_decay = options.weight_decay(),
                  .is_decoupled = is_decoupled,
                  .amsgrad = options.amsgrad(),
                  .maximize = options.maximize()};
}

void prepare_state(FusedAdamParamState& state, const torch::Tensor& parameter, bool amsgrad,
                   const ParameterPosition& position) {
  if (!state.step().defined()) {
    state.step(torch::zeros({}, torch::dtype(torch::kFloat32).device(parameter.device())));
    state.exp_avg(torch::zeros_like(parameter));
    state.exp_avg_sq(torch::zeros_like(parameter));
  } else {
    if (state.step().device() != parameter.device()) state.step(state.step().to(parameter.device()));
    state.exp_avg(fused_state(state.exp_avg(), parameter, position));
    state.exp_avg_sq(fused_state(state.exp_avg_sq(), parameter, position));
  }
  if (!amsgrad) return;
  state.max_exp_avg_sq(state.max_exp_avg_sq().defined()
                           ? fused_state(state.max_exp_avg_sq(), parameter, position)
                           : torch::zeros_like(parameter));
}

/// `found_inf`: undefined, or on the call's device.
void count_step(const FusedCall& call, const torch::Tensor& found_inf) {
  if (!call.device.is_cpu()) {
    if (found_inf.defined()) {
      torch::_foreach_add_(call.states[kStep], 1 - found_inf);
    } else {
      torch::_foreach_add_(call.states[kStep], 1);
    }
    return;
  }
  const float steps = found_inf.defined() ? 1 - *found_inf.data_ptr<float>() : 1;
  // A dispatched addition for every scalar would take longer than the update of a small parameter.
  for (const auto& step : call.states[kStep]) *step.data_ptr<float>() += steps;
}

/// `kernel(call, options, rate, found_inf)` updates one list of parameters; the rate is a tensor or a number.
template <typename Options, typename Kernel>
void step_all(Optimizer& optimizer, const char* name, StepRates& rates, const torch::Tensor& found_inf,
              const Kernel& kernel) {
  torch::NoGradGuard no_grad;
  for (size_t group = 0; group < optimizer.param_groups().size(); ++group) {
    const auto& options = fused_options<Options>(optimizer.param_groups(), group, name);
    const auto& parameters = optimizer.param_groups()[group].params();
    std::vector<FusedCall> calls;
    for (size_t index = 0; index < parameters.size(); ++index) {
      const ParameterPosition position{.optimizer = name, .group = group, .index = index};
      const auto& parameter = parameters[index];
      auto gradient = fused_gradient(parameter, position);
      if (!gradient.defined()) continue;
      auto& state = fused_state_of<FusedAdamParamState>(optimizer.state(), parameter);
      prepare_state(state, parameter, options.amsgrad(), position);
      auto& call = fused_call_for(calls, parameter);
      call.parameters.push_back(parameter);
      call.gradients.push_back(std::move(gradient));
      call.states[kExpAvg].push_back(state.exp_avg());
      call.states[kExpAvgSq].push_back(state.exp_avg_sq());
      if (options.amsgrad()) call.states[kMaxExpAvgSq].push_back(state.max_exp_avg_sq());
      call.states[kStep].push_back(state.step());
    }
    for (const auto& call : calls) {
      const auto skips = fused_found_inf(found_inf, call.device);
      count_step(call, skips.value_or(torch::Tensor()));
      if (StepRates::are_tensors_for(call.parameters[0])) {
        kernel(call, options, rates.get(group, call.device, options.lr()), skips);
      } else {
        kernel(call, options, options.lr(), skips);
      }
    }
  }
}

template <typename Options>
void describe(Fingerprint& fingerprint, const Optimizer& optimizer, const StepRates& rates,
              const char* name) {
  describe_fused_step<Options, FusedAdamParamState>(
      fingerprint, optimizer, name,
      [&](const Options& options) {
        const auto [beta1, beta2] = options.betas();
        for (const double value : {beta1, beta2, options.eps(), options.weight_decay()})
          fingerprint.add(value);
        fingerprint.add(options.amsgrad());
        fingerprint.add(options.maximize());
      },
      [&](const FusedAdamParamState& state) {
        fingerprint.add_identity(state.step());
        fingerprint.add_identity(state.exp_avg());
        fingerprint.add_identity(state.exp_avg_sq());
        fingerprint.add_identity(state.max_exp_avg_sq());
      });
  rates.describe(fingerprint);
}

template <typename Options>
void refresh(StepRates& rates, const Optimizer& optimizer, const char* name) {
  rates.refresh(
      [&](size_t group) { return fused_options<Options>(optimizer.param_groups(), group, name).lr(); });
}

// The keys and types are those of torch::optim::AdamOptions, so that archives can be exchanged with it.
template <typename Options>
void write_options(const Options& options, OutputArchive& archive) {
  archive.write("lr", torch::IValue(options.lr()));
  archive.write("betas", torch::IValue(options.betas()));
  archive.write("eps", torch::IValue(options.eps()));
  archive.write("weight_decay", torch::IValue(options.weight_decay()));
  archive.write("amsgrad", torch::IValue(options.amsgrad()));
  archive.write("maximize", torch::IValue(options.maximize()));
}

template <typename Options>
void read_options(Options& options, InputArchive& archive) {
  const auto read = [&archive](const char* key) {
    torch::IValue value;
    archive.read(key, value);
    return value;
  };
  options.lr(read("lr").toDouble());
  options.betas(read("betas").template to<typename Options::Betas>());
  options.eps(read("eps").toDouble());
  options.weight_decay(read("weight_decay").toDouble());
  options.amsgrad(read("amsgrad").toBool());
  torch::IValue maximize;
  options.maximize(archive.try_read("maximize", maximize) && maximize.toBool());
}

}  // namespace

void FusedAdamOptions::serialize(OutputArchive& archive) const {
  write_options(*this, archive);
}
void FusedAdamOptions::serialize(InputArchive& archive) {
  read_options(*this, archive);
}
void FusedAdamWOptions::serialize(OutputArchive& archive) const {
  write_options(*this, archive);
}
void FusedAdamWOptions::serialize(InputArchive& archive) {
  read_options(*this, archive);
}

// torch::optim::AdamParamState counts steps in an int64_t, and the archive does here too.
void FusedAdamParamState::serialize(OutputArchive& archive) const {
  archive.write("step",
                torch::IValue(step().defined() ? static_cast<int64_t>(step().item<float>()) : int64_t{0}));
  if (exp_avg().defined()) archive.write("exp_avg", torch::IValue(exp_avg()));
  if (exp_avg_sq().defined()) archive.write("exp_avg_sq", torch::IValue(exp_avg_sq()));
  if (max_exp_avg_sq().defined()) archive.write("max_exp_avg_sq", torch::IValue(max_exp_avg_sq()));
}

void FusedAdamParamState::serialize(InputArchive& archive) {
  torch::IValue value;
  archive.read("step", value);
  step(torch::tensor(static_cast<float>(value.toInt())));
  archive.read("exp_avg", value);
  exp_avg(value.toTensor());
  archive.read("exp_avg_sq", value);
  exp_avg_sq(value.toTensor());
  max_exp_avg_sq(archive.try_read("max_exp_avg_sq", value) ? value.toTensor() : torch::Tensor());
}

FusedAdam::FusedAdam(const std::vector<torch::optim::OptimizerParamGroup>& param_groups,
                     const FusedAdamOptions& defaults)
    : Optimizer(param_groups, std::make_unique<FusedAdamOptions>(defaults)) {
  check_options<FusedAdamOptions>(*this, kAdam);
}

FusedAdam::FusedAdam(std::vector<torch::Tensor> parameters, const FusedAdamOptions& defaults)
    : FusedAdam(std::vector<torch::optim::OptimizerParamGroup>{std::move(parameters)}, defaults) {}

torch::Tensor FusedAdam::step(LossClosure closure) {
  auto loss = evaluate_closure(closure);
  step_unless(torch::Tensor());
  return loss;
}

void FusedAdam::step_unless(const torch::Tensor& found_inf) {
  step_all<FusedAdamOptions>(
      *this, kAdam, rates_, found_inf,
      [](const FusedCall& call, const FusedAdamOptions& options, const auto& rate,
         const std::optional<torch::Tensor>& skips) {
        const auto [beta1, beta2] = options.betas();
        torch::_fused_adam_(call.parameters, call.gradients, call.states[kExpAvg], call.states[kExpAvgSq],
                            call.states[kMaxExpAvgSq], call.states[kStep], rate, beta1, beta2,
                            options.weight_decay(), options.eps(), options.amsgrad(), options.maximize(),
                            /*grad_scale=*/{}, skips);
      });
}

void FusedAdam::describe_step(Fingerprint& fingerprint) const {
  describe<FusedAdamOptions>(fingerprint, *this, rates_, kAdam);
}

void FusedAdam::refresh_step() {
  refresh<FusedAdamOptions>(rates_, *this, kAdam);
}

UpdateRule FusedAdam::update_rule(size_t group) const {
  return adam_rule<FusedAdamOptions>(*this, group, kAdam, false);
}

void FusedAdam::save(OutputArchive& archive) const {
  torch::optim::serialize<FusedAdamParamState, FusedAdamOptions>(archive, *this);
}

void FusedAdam::load(InputArchive& archive) {
  torch::optim::serialize<FusedAdamParamState, FusedAdamOptions>(archive, *this);
}

FusedAdamW::FusedAdamW(const std::vector<torch::optim::OptimizerParamGroup>& param_groups,
                       const FusedAdamWOptions& defaults)
    : Optimizer(param_groups, std::make_unique<FusedAdamWOptions>(defaults)) {
  check_options<FusedAdamWOptions>(*this, kAdamW);
}

FusedAdamW::FusedAdamW(std::vector<torch::Tensor> parameters, const FusedAdamWOptions& defaults)
    : FusedAdamW(std::vector<torch::optim::OptimizerParamGroup>{std::move(parameters)}, defaults) {}

torch::Tensor FusedAdamW::step(LossClosure closure) {
  auto loss = evaluate_closure(closure);
  step_unless(torch::Tensor());
  return loss;
}

void FusedAdamW::step_unless(const torch::Tensor& found_inf) {
  step_all<FusedAdamWOptions>(
      *this, kAdamW, rates_, found_inf,
      [](const FusedCall& call, const FusedAdamWOptions& options, const auto& rate,
         const std::optional<torch::Tensor>& skips) {
        const auto [beta1, beta2] = options.betas();
        torch::_fused_adamw_(call.parameters, call.gradients, call.states[kExpAvg], call.states[kExpAvgSq],
                             call.states[kMaxExpAvgSq], call.states[kStep], rate, beta1, beta2,
                             options.weight_decay(), options.eps(), options.amsgrad(), options.maximize(),
                             /*grad_scale=*/{}, skips);
      });
}

void FusedAdamW::describe_step(Fingerprint& fingerprint) const {
  describe<FusedAdamWOptions>(fingerprint, *this, rates_, kAdamW);
}

void FusedAdamW::refresh_step() {
  refresh<FusedAdamWOptions>(rates_, *this, kAdamW);
}

UpdateRule FusedAdamW::update_rule(size_t group) const {
  return adam_rule<FusedAdamWOptions>(*this, group, kAdamW, true);
}

void FusedAdamW::save(OutputArchive& archive) const {
  torch::optim::serialize<FusedAdamParamState, FusedAdamWOptions>(archive, *this);
}

void FusedAdamW::load(InputArchive& archive) {
  torch::optim::serialize<FusedAdamParamState, FusedAdamWOptions>(archive, *this);
}

}  // namespace lockstep
