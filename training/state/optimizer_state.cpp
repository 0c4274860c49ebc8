#include "lockstep/training/state/optimizer_state.h"

#include <c10/util/Exception.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <concepts>
#include <map>
#include <memory>
#include <stdexcept>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/training/formats/state_view.h"
#include "lockstep/training/optimizers/fused_adagrad.h"
#include "lockstep/training/optimizers/fused_adam.h"
#include "lockstep/training/optimizers/fused_sgd.h"
#include "lockstep/training/optimizers/sparse_adam.h"
#include "lockstep/training/state/internal/copied_states.h"
#include "lockstep/training/state/internal/sharded_states.h"

namespace lockstep {
namespace {

using torch::optim::Optimizer;
using Betas = std::tuple<double, double>;

double steps_of(const StateView& saved) {
  const double step = saved.at("step").number();
  if (!(step >= 0 && step < 1e15)) saved.at("step").fail("a number of steps");
  return step;
}

/// Optimizers that Python's torch.optim has too; it makes no difference between plain and fused ones.
enum class Family { kAdam, kAdamW, kSgd, kAdagrad, kSparseAdam };

/// An optimizer's types, and the contents of Python's state_dict() for its family.
template <Family kFamily, typename OptimizerOf, typename OptionsOf, typename StateOf>
struct StateKind {
  using Class = OptimizerOf;
  using Options = OptionsOf;
  using State = StateOf;
  static constexpr bool kIsAdam = kFamily == Family::kAdam || kFamily == Family::kAdamW;

  /// Calls `visit(name, option)` for the options that the optimizer has, in the order of Python's groups.
  template <typename Group, typename Visit>
  static void visit_options(Group& options, const Visit& visit) {
    visit("lr", options.lr());
    if constexpr (requires { options.betas(); }) visit("betas", options.betas());
    if constexpr (requires { options.momentum(); }) visit("momentum", options.momentum());
    if constexpr (requires { options.dampening(); }) visit("dampening", options.dampening());
    if constexpr (requires { options.lr_decay(); }) visit("lr_decay", options.lr_decay());
    if constexpr (requires { options.eps(); }) visit("eps", options.eps());
    if constexpr (requires { options.weight_decay(); }) visit("weight_decay", options.weight_decay());
    if constexpr (requires { options.amsgrad(); }) visit("amsgrad", options.amsgrad());
    if constexpr (requires { options.nesterov(); }) visit("nesterov", options.nesterov());
    if constexpr (requires { options.initial_accumulator_value(); })
      visit("initial_accumulator_value", options.initial_accumulator_value());
    if constexpr (requires { options.maximize(); }) visit("maximize", options.maximize());
  }

  /// Adds the remaining entries of Python's group.
  static void add_constants([[maybe_unused]] StateValue::Dict& group) {
    if constexpr (kFamily != Family::kSparseAdam) {
      if (group.find("maximize") == nullptr) group.add("maximize", false);
      group.add("foreach", StateValue());
      if constexpr (kIsAdam) group.add("capturable", false);
      group.add("differentiable", false);
      group.add("fused", StateValue());
      if constexpr (kIsAdam) group.add("decoupled_weight_decay", kFamily == Family::kAdamW);
    }
  }

  /// Python's Adam and AdamW share one state format.
  static void check_constants([[maybe_unused]] const StateView& group) {
    if constexpr (kIsAdam) {
      constexpr bool kIsDecoupled = kFamily == Family::kAdamW;
      const auto is_decoupled = group.find("decoupled_weight_decay");
      if (is_decoupled && is_decoupled->truth() != kIsDecoupled)
        is_decoupled->fail(kIsDecoupled ? "True, as of an AdamW" : "False, as of an Adam");
    }
  }

  /// Returns Python's state of one parameter, empty if there is none yet. `state` may be null.
  static StateValue::Dict save(const State* state, [[maybe_unused]] const Options& options,
                               [[maybe_unused]] const torch::Tensor& parameter) {
    StateValue::Dict saved;
    if constexpr (kFamily == Family::kSgd) {
      if (state != nullptr && state->momentum_buffer().defined())
        saved.add("momentum_buffer", state->momentum_buffer());
    } else if constexpr (kFamily == Family::kAdagrad) {
      // Python's Adagrad has this state from the beginning.
      saved.add("step", torch::tensor(static_cast<float>(state == nullptr ? 0 : state->step())));
      saved.add("sum", state != nullptr && state->sum().defined()
                           ? state->sum()
                           : torch::full_like(parameter.detach(), options.initial_accumulator_value()));
    } else {
      if (state == nullptr || !state->exp_avg().defined()) return saved;
      if constexpr (kIsAdam && std::same_as<std::remove_cvref_t<decltype(state->step())>, int64_t>) {
        saved.add("step", torch::tensor(static_cast<float>(state->step())));
      } else {
        saved.add("step", state->step());
      }
      saved.add("exp_avg", state->exp_avg());
      saved.add("exp_avg_sq", state->exp_avg_sq());
      if (kIsAdam && state->max_exp_avg_sq().defined()) saved.add("max_exp_avg_sq", state->max_exp_avg_sq());
    }
    return saved;
  }

  /// Returns a copy in new memory, on the same device.
  static std::unique_ptr<torch::optim::OptimizerParamState> copy(
      const torch::optim::OptimizerParamState& given) {
    const auto copy_of = [](const torch::Tensor& tensor) {
      return tensor.defined() ? tensor.detach().clone() : tensor;
    };
    auto state = std::make_unique<State>(static_cast<const State&>(given));
    if constexpr (kFamily == Family::kSgd) {
      state->momentum_buffer(copy_of(state->momentum_buffer()));
    } else if constexpr (kFamily == Family::kAdagrad) {
      state->sum(copy_of(state->sum()));
    } else {
      if constexpr (std::same_as<std::remove_cvref_t<decltype(state->step())>, torch::Tensor>)
        state->step(copy_of(state->step()));
      state->exp_avg(copy_of(state->exp_avg()));
      state->exp_avg_sq(copy_of(state->exp_avg_sq()));
      if constexpr (kIsAdam) state->max_exp_avg_sq(copy_of(state->max_exp_avg_sq()));
    }
    return state;
  }

  /// Returns the state of one parameter, or null if none was saved.
  static std::unique_ptr<State> load(const StateView& saved, [[maybe_unused]] const Options& options,
                                     const torch::Tensor& parameter) {
    auto state = std::make_unique<State>();
    if constexpr (kFamily == Family::kSgd) {
      const auto buffer = saved.find("momentum_buffer");
      if (!buffer || buffer->is_none()) return nullptr;
      state->momentum_buffer(values_like(*buffer, parameter));
    } else if constexpr (kFamily == Family::kAdagrad) {
      state->step(static_cast<int64_t>(steps_of(saved)));
      state->sum(values_like(saved.at("sum"), parameter));
    } else {
      const double step = steps_of(saved);
      if constexpr (std::same_as<std::remove_cvref_t<decltype(state->step())>, torch::Tensor>) {
        state->step(torch::full({}, step, torch::TensorOptions(torch::kFloat32).device(parameter.device())));
      } else {
        state->step(static_cast<int64_t>(step));
      }
      state->exp_avg(values_like(saved.at("exp_avg"), parameter));
      state->exp_avg_sq(values_like(saved.at("exp_avg_sq"), parameter));
      if constexpr (kIsAdam) {
        if (options.amsgrad()) state->max_exp_avg_sq(values_like(saved.at("max_exp_avg_sq"), parameter));
      }
    }
    return state;
  }
};

/// Calls `work` with the optimizer's StateKind.
template <typename Work>
auto with_kind(const Optimizer& optimizer, const Work& work) {
  namespace optim = torch::optim;
  const auto is = [&]<typename T>(const T*) { return dynamic_cast<const T*>(&optimizer) != nullptr; };
  if (is(static_cast<FusedAdam*>(nullptr)))
    return work(StateKind<Family::kAdam, FusedAdam, FusedAdamOptions, FusedAdamParamState>());
  if (is(static_cast<FusedAdamW*>(nullptr)))
    return work(StateKind<Family::kAdamW, FusedAdamW, FusedAdamWOptions, FusedAdamParamState>());
  if (is(static_cast<FusedSgd*>(nullptr)))
    return work(StateKind<Family::kSgd, FusedSgd, FusedSgdOptions, FusedSgdParamState>());
  if (is(static_cast<FusedAdagrad*>(nullptr))) {
    return work(StateKind<Family::kAdagrad, FusedAdagrad, FusedAdagradOptions, optim::AdagradParamState>());
  }
  if (is(static_cast<SparseAdam*>(nullptr)))
    return work(StateKind<Family::kSparseAdam, SparseAdam, SparseAdamOptions, optim::AdamParamState>());
  if (is(static_cast<optim::Adam*>(nullptr)))
    return work(StateKind<Family::kAdam, optim::Adam, optim::AdamOptions, optim::AdamParamState>());
  if (is(static_cast<optim::AdamW*>(nullptr)))
    return work(StateKind<Family::kAdamW, optim::AdamW, optim::AdamWOptions, optim::AdamWParamState>());
  if (is(static_cast<optim::SGD*>(nullptr)))
    return work(StateKind<Family::kSgd, optim::SGD, optim::SGDOptions, optim::SGDParamState>());
  if (is(static_cast<optim::Adagrad*>(nullptr))) {
    return work(
        StateKind<Family::kAdagrad, optim::Adagrad, optim::AdagradOptions, optim::AdagradParamState>());
  }
  throw InvalidArgument(
      "[optimizer_state] expected FusedAdam, FusedAdamW, FusedSgd, FusedAdagrad, SparseAdam, or "
      "torch::optim's Adam, AdamW, SGD or Adagrad, but got another optimizer");
}

/// Returns a group's options. Throws if the caller made the group for another optimizer.
template <typename Options>
const Options& options_of(const torch::optim::OptimizerParamGroup& group) {
  const auto* options = dynamic_cast<const Options*>(&group.options());
  if (options == nullptr)
    throw InvalidArgument(
        "[optimizer_state] expected groups with options of their optimizer, but got another's");
  return *options;
}

StateValue value_of_option(const Betas& betas) {
  return StateValue::Tuple{{std::get<0>(betas), std::get<1>(betas)}};
}
StateValue value_of_option(double number) {
  return number;
}
StateValue value_of_option(bool truth) {
  return truth;
}

void read_option(const StateView& view, double& option) {
  option = view.number();
}
void read_option(const StateView& view, bool& option) {
  option = view.truth();
}
void read_option(const StateView& view, Betas& option) {
  const auto betas = view.items();
  if (betas.size() != 2) view.fail("two numbers", std::to_string(betas.size()));
  option = {betas[0].number(), betas[1].number()};
}

/// Returns the state of a parameter, or of a slice of one.
template <typename Kind>
StateValue::Dict save_tensor_as(const Optimizer& optimizer, const torch::optim::OptimizerParamGroup& group,
                                const torch::Tensor& tensor) {
  const auto state = optimizer.state().find(tensor.unsafeGetTensorImpl());
  const auto* held = state == optimizer.state().end()
                         ? nullptr
                         : static_cast<const typename Kind::State*>(state->second.get());
  return Kind::save(held, options_of<typename Kind::Options>(group), tensor);
}

/// `given` has the states of some parameters.
template <typename Kind>
StateValue::Dict save_as(const Optimizer& optimizer, const std::map<int64_t, StateValue::Dict>& given) {
  StateValue::Dict states;
  StateValue::List groups;
  int64_t place = 0;
  for (const auto& group : optimizer.param_groups()) {
    StateValue::Dict saved;
    Kind::visit_options(options_of<typename Kind::Options>(group), [&](const char* name, const auto& option) {
      saved.add(name, value_of_option(option));
    });
    Kind::add_constants(saved);
    StateValue::List places;
    for (const auto& parameter : group.params()) {
      places.emplace_back(place);
      const auto found = given.find(place);
      auto of_parameter =
          found != given.end() ? found->second : save_tensor_as<Kind>(optimizer, group, parameter);
      if (!of_parameter.entries.empty()) states.add(place, std::move(of_parameter));
      ++place;
    }
    saved.add("params", std::move(places));
    groups.emplace_back(std::move(saved));
  }
  StateValue::Dict result;
  result.add("state", std::move(states));
  result.add("param_groups", std::move(groups));
  return result;
}

/// Uses the checks that the optimizer makes when it is constructed.
template <typename Kind>
void check_loaded_options(const typename Kind::Options& options, const StateView& saved) {
  const std::string expected = "options that the optimizer takes";
  try {
    const std::vector<torch::Tensor> parameters{torch::zeros({1})};
    const typename Kind::Class checked(parameters, options);
  } catch (const c10::Error& error) {
    saved.fail(expected, error.what_without_backtrace());
  } catch (const std::invalid_argument& error) {
    saved.fail(expected, error.what());
  }
}

/// Returns a copy of a group's options with the saved values.
template <typename Kind>
std::unique_ptr<torch::optim::OptimizerOptions> load_options(const torch::optim::OptimizerParamGroup& group,
                                                             const StateView& saved) {
  auto options = std::make_unique<typename Kind::Options>(options_of<typename Kind::Options>(group));
  saved.at("lr");
  Kind::check_constants(saved);
  bool can_maximize = false;
  Kind::visit_options(*options, [&](const std::string& name, auto& option) {
    can_maximize = can_maximize || name == "maximize";
    // A state from an older Python lacks options that were added later.
    const auto view = name == "betas" || name == "momentum" ? saved.at(name) : saved.find(name);
    if (view) read_option(*view, option);
  });
  const auto maximize = saved.find("maximize");
  if (!can_maximize && maximize && maximize->truth()) maximize->fail("False, for this optimizer cannot");
  check_loaded_options<Kind>(*options, saved);
  return options;
}

template <typename Kind>
void load_as(Optimizer& optimizer, const StateView& state) {
  auto& groups = optimizer.param_groups();
  const auto saved_groups = state.at("param_groups").items();
  if (saved_groups.size() != groups.size()) {
    state.at("param_groups")
        .fail(std::to_string(groups.size()) + " groups", std::to_string(saved_groups.size()));
  }
  // Reads everything before changing anything.
  std::vector<std::unique_ptr<torch::optim::OptimizerOptions>> options;
  std::map<int64_t, std::pair<torch::Tensor, size_t>> parameters;  // by number in the file, with their group
  for (size_t index = 0; index < groups.size(); ++index) {
    options.push_back(load_options<Kind>(groups[index], saved_groups[index]));
    const auto view = saved_groups[index].at("params");
    const auto numbers = view.items();
    if (numbers.size() != groups[index].params().size()) {
      view.fail(std::to_string(groups[index].params().size()) + " parameters",
                std::to_string(numbers.size()));
    }
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (!parameters.emplace(numbers[i].integer(), std::pair(groups[index].params()[i], index)).second)
        numbers[i].fail("each parameter once", "one twice");
    }
  }
  std::map<void*, std::unique_ptr<torch::optim::OptimizerParamState>> states;
  for (const auto& [key, saved] : state.at("state").entries()) {
    const auto* number = std::get_if<int64_t>(&key);
    const auto parameter = number == nullptr ? parameters.end() : parameters.find(*number);
    if (parameter == parameters.end()) saved.fail("the number of a parameter", "none of them");
    const auto& [tensor, group] = parameter->second;
    auto loaded = Kind::load(saved, static_cast<const typename Kind::Options&>(*options[group]), tensor);
    if (loaded) states[tensor.unsafeGetTensorImpl()] = std::move(loaded);
  }
  for (size_t index = 0; index < groups.size(); ++index) groups[index].set_options(std::move(options[index]));
  optimizer.state().clear();
  for (auto& [parameter, loaded] : states) optimizer.state()[parameter] = std::move(loaded);
}

}  // namespace

StateValue::Dict optimizer_state(const Optimizer& optimizer) {
  return optimizer_state_with(optimizer, {});
}

StateValue::Dict optimizer_state_with(const Optimizer& optimizer,
                                      const std::map<int64_t, StateValue::Dict>& states) {
  return with_kind(optimizer, [&]<typename Kind>(Kind) { return save_as<Kind>(optimizer, states); });
}

StateValue::Dict state_of_tensor(const Optimizer& optimizer, size_t group, const torch::Tensor& tensor) {
  return with_kind(optimizer, [&]<typename Kind>(Kind) {
    return save_tensor_as<Kind>(optimizer, optimizer.param_groups()[group], tensor);
  });
}

CopiedStates copied_states(const Optimizer& optimizer) {
  return with_kind(optimizer, [&]<typename Kind>(Kind) {
    CopiedStates copies;
    for (const auto& [key, state] : optimizer.state()) copies.emplace(key, Kind::copy(*state));
    return copies;
  });
}

void put_back_states(Optimizer& optimizer, const CopiedStates& states) {
  with_kind(optimizer, [&]<typename Kind>(Kind) {
    optimizer.state().clear();
    for (const auto& [key, state] : states) optimizer.state()[key] = Kind::copy(*state);
  });
}

void load_optimizer_state(Optimizer& optimizer, const StateValue& state, const std::string& source) {
  with_kind(optimizer, [&]<typename Kind>(Kind) { load_as<Kind>(optimizer, StateView(state, source)); });
}

}  // namespace lockstep
