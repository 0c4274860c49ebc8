#include "lockstep/training/parameter_server/internal/shard_file.h"

#include <c10/util/StringUtil.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/files/checkpoint_error.h"

namespace lockstep {
namespace {

constexpr std::array<const char*, std::variant_size_v<UpdateRule>> kRuleNames{"sgd", "adagrad", "adam"};
constexpr std::array<const char*, std::variant_size_v<InitialValues>> kInitialNames{"constant", "uniform",
                                                                                    "normal"};

void visit_named(auto& rule, const auto& visit) requires requires {
  rule.nesterov;
}
{
  visit("momentum", rule.momentum);
  visit("dampening", rule.dampening);
  visit("weight_decay", rule.weight_decay);
  visit("nesterov", rule.nesterov);
  visit("maximize", rule.maximize);
}
void visit_named(auto& rule, const auto& visit) requires requires {
  rule.lr_decay;
}
{
  visit("lr_decay", rule.lr_decay);
  visit("weight_decay", rule.weight_decay);
  visit("initial_accumulator_value", rule.initial_accumulator_value);
  visit("eps", rule.eps);
  visit("maximize", rule.maximize);
}
void visit_named(auto& rule, const auto& visit) requires requires {
  rule.amsgrad;
}
{
  visit("beta1", rule.beta1);
  visit("beta2", rule.beta2);
  visit("eps", rule.eps);
  visit("weight_decay", rule.weight_decay);
  visit("is_decoupled", rule.is_decoupled);
  visit("amsgrad", rule.amsgrad);
  visit("maximize", rule.maximize);
}

void visit_named(auto& constant, const auto& visit) requires requires {
  constant.value;
}
{ visit("value", constant.value); }
void visit_named(auto& uniform, const auto& visit) requires requires {
  uniform.low;
}
{
  visit("low", uniform.low);
  visit("high", uniform.high);
  visit("seed", uniform.seed);
}
void visit_named(auto& normal, const auto& visit) requires requires {
  normal.std;
}
{
  visit("mean", normal.mean);
  visit("std", normal.std);
  visit("seed", normal.seed);
}

/// Returns the alternative's name, and its fields by name.
template <typename Variant>
StateValue::Dict state_of_variant(const Variant& variant,
                                  const std::array<const char*, std::variant_size_v<Variant>>& names) {
  StateValue::Dict state;
  state.add("name", names[variant.index()]);
  const auto add = [&](const char* name, const auto& field) {
    if constexpr (std::is_same_v<std::decay_t<decltype(field)>, uint64_t>) {
      state.add(name, std::bit_cast<int64_t>(field));
    } else {
      state.add(name, field);
    }
  };
  std::visit([&](const auto& chosen) { visit_named(chosen, add); }, variant);
  return state;
}

template <typename Variant>
Variant variant_in(const StateView& saved,
                   const std::array<const char*, std::variant_size_v<Variant>>& names) {
  const auto read = [&](const char* name, auto& field) {
    using Field = std::decay_t<decltype(field)>;
    if constexpr (std::is_same_v<Field, bool>) {
      field = saved.at(name).truth();
    } else if constexpr (std::is_same_v<Field, uint64_t>) {
      field = std::bit_cast<uint64_t>(saved.at(name).integer());
    } else {
      field = saved.at(name).number();
    }
  };
  const auto name = saved.at("name");
  std::optional<Variant> variant;
  [&]<size_t... I>(std::index_sequence<I...>) {
    ((name.text() == names[I] ? visit_named(variant.emplace().template emplace<I>(), read) : void()), ...);
  }
  (std::make_index_sequence<std::variant_size_v<Variant>>());
  if (!variant) name.fail(c10::Join(" or ", names));
  return *variant;
}

/// Two columns, closures and numbers, whose bits an int64 holds.
torch::Tensor tensor_of_pushes(const std::vector<PushId>& pushes) {
  auto tensor = torch::empty({static_cast<int64_t>(pushes.size()), 2}, torch::kLong);
  auto* next = tensor.mutable_data_ptr<int64_t>();
  for (const auto& push : pushes) {
    *next++ = std::bit_cast<int64_t>(push.closure);
    *next++ = std::bit_cast<int64_t>(push.number);
  }
  return tensor;
}

std::vector<PushId> pushes_in(const StateView& saved,
                              const std::function<torch::Tensor(const torch::Tensor&)>& read) {
  const auto& tensor = saved.tensor();
  if (tensor.scalar_type() != torch::kLong || tensor.dim() != 2 || tensor.size(1) != 2)
    saved.fail("pairs of int64", c10::str(tensor.scalar_type(), " ", tensor.sizes()));
  const auto pairs = (read ? read(tensor) : tensor).contiguous();
  const auto* next = pairs.const_data_ptr<int64_t>();
  std::vector<PushId> pushes(static_cast<size_t>(pairs.size(0)));
  for (auto& push : pushes) {
    push.closure = std::bit_cast<uint64_t>(*next++);
    push.number = std::bit_cast<uint64_t>(*next++);
  }
  return pushes;
}

}  // namespace

StateValue::Dict state_of_shard(const ParameterShard::Saved& saved) {
  StateValue::Dict optimizer;
  for (const auto& [name, tensor] : saved.optimizer)
    if (tensor.defined()) optimizer.add(name, tensor);
  StateValue::Dict state;
  state.add("values", saved.values);
  state.add("optimizer", std::move(optimizer));
  state.add("version", std::bit_cast<int64_t>(saved.version));
  state.add("pushes", tensor_of_pushes(saved.pushes));
  return state;
}

ParameterShard::Saved shard_in(const StateView& saved,
                               const std::function<torch::Tensor(const torch::Tensor&)>& read) {
  ParameterShard::Saved shard;
  shard.values = saved.at("values").tensor();
  for (const auto& [key, tensor] : saved.at("optimizer").entries()) {
    const auto* name = std::get_if<std::string>(&key);
    if (name == nullptr) tensor.fail("a name");
    shard.optimizer.emplace_back(*name, tensor.tensor());
  }
  shard.version = std::bit_cast<uint64_t>(saved.at("version").count());
  shard.pushes = pushes_in(saved.at("pushes"), read);
  return shard;
}

StateValue::Dict state_of_rule(const UpdateRule& rule) {
  return state_of_variant(rule, kRuleNames);
}

UpdateRule rule_in(const StateView& saved) {
  return variant_in<UpdateRule>(saved, kRuleNames);
}

StateValue state_of_filter(const std::optional<FilteredRows>& filtered) {
  if (!filtered) return {};
  StateValue::Dict state;
  state.add("min_frequency", filtered->filter.min_frequency);
  state.add("steps_to_live", filtered->filter.steps_to_live);
  state.add("initial", state_of_variant(filtered->initial, kInitialNames));
  return state;
}

std::optional<FilteredRows> filter_in(const StateView& saved, const RowRange& rows) {
  if (saved.is_none()) return std::nullopt;
  return FilteredRows{.filter = {.min_frequency = saved.at("min_frequency").count(),
                                 .steps_to_live = saved.at("steps_to_live").count()},
                      .initial = variant_in<InitialValues>(saved.at("initial"), kInitialNames),
                      .rows = rows};
}

StateValue::Dict state_of_growth(const RowGrowth& growth) {
  StateValue::Dict state;
  state.add("max_bytes", growth.max_bytes);
  state.add("num_bits", growth.num_bits);
  state.add("takes_numbered_rows", growth.takes_numbered_rows);
  return state;
}

std::optional<RowGrowth> growth_in(const StateView& described) {
  for (const auto& [key, growth] : described.entries()) {
    if (const auto* name = std::get_if<std::string>(&key); name == nullptr || *name != "growth") continue;
    const auto num_bits = std::min<int64_t>(growth.at("num_bits").count(), 64);
    return RowGrowth{.max_bytes = growth.at("max_bytes").count(),
                     .num_bits = static_cast<int>(num_bits),
                     .takes_numbered_rows = growth.at("takes_numbered_rows").truth()};
  }
  return std::nullopt;
}

}  // namespace lockstep
