#include "lockstep/training/optimizers/fused_adam.h"

#include <torch/optim/serialize.h>
#include <torch/utils.h>

#include <utility>
#include <variant>

#include "lockstep/training/optimizers/internal/fused_call.h"

namespace lockstep {
namespace {

using torch::optim::OptimizerParamGroup;
using torch::serialize::InputArchive;
using torch::serialize::OutputArchive;

constexpr const char* kAdam = "FusedAdam";
constexpr const char* kAdamW = "FusedAdamW";

// The state lists of a FusedCall.
enum AdamList : size_t { kExpAvg, kExpAvgSq, kMaxExpAvgSq, kStep };

template <typename Options>
void check_options(const std::vector<OptimizerParamGroup>& param_groups, const char* name) {
  for (size_t group = 0; group < param_groups.size(); ++group) {
    const auto& options = fused_options<Options>(param_groups, group, name);
    const auto [beta1, beta2] = options.betas();
    require_option(options.lr() >= 0, name, "lr", "at least 0", options.lr());
    require_option(options.eps() >= 0, name, "eps", "at least 0", options.eps());
    require_option(beta1 >= 0 && beta1 < 1, name, "betas[0]", "in [0, 1)", beta1);
    require_option(beta2 >= 0 && beta2 < 1, name, "betas[1]", "in [0, 1)", beta2);
    require_option(options.weight_decay() >= 0, name, "weight_decay", "at least 0", options.weight_decay());
  }
}

template <typename Options>
AdamRule adam_rule(const Options& options, bool is_decoupled) {
  const auto [beta1, beta2] = options.betas();
  return {.beta1 = beta1,
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

/// `found_inf` is undefined or on the call's device.
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
  // A dispatched addition for every scalar would take longer than updating a small parameter.
  for (const auto& step : call.states[kStep]) *step.data_ptr<float>() += steps;
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
  const auto read = [&archive](const char* key) { return read_option_value(archive, key); };
  options.lr(read("lr").toDouble());
  options.betas(read("betas").template to<typename Options::Betas>());
  options.eps(read("eps").toDouble());
  options.weight_decay(read("weight_decay").toDouble());
  options.amsgrad(read("amsgrad").toBool());
  options.maximize(read_maximize(archive));
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

// The archive counts steps in an int64_t, as torch::optim::AdamParamState does.
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

FusedAdamBase::FusedAdamBase(const char* name, const std::vector<OptimizerParamGroup>& param_groups,
                             std::unique_ptr<torch::optim::OptimizerOptions> defaults)
    : CapturableFusedOptimizer(name, param_groups, std::move(defaults)) {}

void FusedAdamBase::step_group(size_t group, const torch::Tensor& found_inf) {
  const AdamRule rule = std::get<AdamRule>(update_rule(group));
  const auto add_state = [&](std::vector<FusedCall>& calls, const torch::Tensor& parameter,
                             const ParameterPosition& position) -> FusedCall& {
    auto& state = fused_state_of<FusedAdamParamState>(state_, parameter);
    prepare_state(state, parameter, rule.amsgrad, position);
    auto& call = fused_call_for(calls, parameter);
    call.states[kExpAvg].push_back(state.exp_avg());
    call.states[kExpAvgSq].push_back(state.exp_avg_sq());
    if (rule.amsgrad) call.states[kMaxExpAvgSq].push_back(state.max_exp_avg_sq());
    call.states[kStep].push_back(state.step());
    return call;
  };
  for (const auto& call : fused_calls(param_groups_[group].params(), name(), group, add_state)) {
    const auto skips = fused_found_inf(found_inf, call.device);
    count_step(call, skips.value_or(torch::Tensor()));
    with_rate(group, call.parameters[0], [&](const auto& rate) {
      if (rule.is_decoupled) {
        torch::_fused_adamw_(call.parameters, call.gradients, call.states[kExpAvg], call.states[kExpAvgSq],
                             call.states[kMaxExpAvgSq], call.states[kStep], rate, rule.beta1, rule.beta2,
                             rule.weight_decay, rule.eps, rule.amsgrad, rule.maximize, /*grad_scale=*/{},
                             skips);
      } else {
        torch::_fused_adam_(call.parameters, call.gradients, call.states[kExpAvg], call.states[kExpAvgSq],
                            call.states[kMaxExpAvgSq], call.states[kStep], rate, rule.beta1, rule.beta2,
                            rule.weight_decay, rule.eps, rule.amsgrad, rule.maximize, /*grad_scale=*/{},
                            skips);
      }
    });
  }
}

void FusedAdamBase::describe_options(Fingerprint& fingerprint, size_t group) const {
  const AdamRule rule = std::get<AdamRule>(update_rule(group));
  for (const double value : {rule.beta1, rule.beta2, rule.eps, rule.weight_decay}) fingerprint.add(value);
  fingerprint.add(rule.amsgrad);
  fingerprint.add(rule.maximize);
}

void FusedAdamBase::describe_state(Fingerprint& fingerprint,
                                   const torch::optim::OptimizerParamState& state) const {
  const auto& moments = static_cast<const FusedAdamParamState&>(state);
  fingerprint.add_identity(moments.step());
  fingerprint.add_identity(moments.exp_avg());
  fingerprint.add_identity(moments.exp_avg_sq());
  fingerprint.add_identity(moments.max_exp_avg_sq());
}

FusedAdam::FusedAdam(const std::vector<OptimizerParamGroup>& param_groups, const FusedAdamOptions& defaults)
    : FusedAdamBase(kAdam, param_groups, std::make_unique<FusedAdamOptions>(defaults)) {
  check_options<FusedAdamOptions>(param_groups_, kAdam);
}

FusedAdam::FusedAdam(std::vector<torch::Tensor> parameters, const FusedAdamOptions& defaults)
    : FusedAdam(std::vector<OptimizerParamGroup>{std::move(parameters)}, defaults) {}

UpdateRule FusedAdam::update_rule(size_t group) const {
  return adam_rule(fused_options<FusedAdamOptions>(param_groups_, group, kAdam), /*is_decoupled=*/false);
}

void FusedAdam::save(OutputArchive& archive) const {
  torch::optim::serialize<FusedAdamParamState, FusedAdamOptions>(archive, *this);
}

void FusedAdam::load(InputArchive& archive) {
  torch::optim::serialize<FusedAdamParamState, FusedAdamOptions>(archive, *this);
}

FusedAdamW::FusedAdamW(const std::vector<OptimizerParamGroup>& param_groups,
                       const FusedAdamWOptions& defaults)
    : FusedAdamBase(kAdamW, param_groups, std::make_unique<FusedAdamWOptions>(defaults)) {
  check_options<FusedAdamWOptions>(param_groups_, kAdamW);
}

FusedAdamW::FusedAdamW(std::vector<torch::Tensor> parameters, const FusedAdamWOptions& defaults)
    : FusedAdamW(std::vector<OptimizerParamGroup>{std::move(parameters)}, defaults) {}

UpdateRule FusedAdamW::update_rule(size_t group) const {
  return adam_rule(fused_options<FusedAdamWOptions>(param_groups_, group, kAdamW), /*is_decoupled=*/true);
}

void FusedAdamW::save(OutputArchive& archive) const {
  torch::optim::serialize<FusedAdamParamState, FusedAdamWOptions>(archive, *this);
}

void FusedAdamW::load(InputArchive& archive) {
  torch::optim::serialize<FusedAdamParamState, FusedAdamWOptions>(archive, *this);
}

}  // namespace lockstep
