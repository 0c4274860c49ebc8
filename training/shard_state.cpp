#include "lockstep/training/shard_state.h"

#include <c10/util/StringUtil.h>
#include <torch/types.h>

#include <array>
#include <bit>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/runtime/errors.h"
#include "lockstep/training/checkpoint_error.h"

namespace lockstep {
namespace {

constexpr std::array<const char*, std::variant_size_v<UpdateRule>> kRuleNames{"sgd", "adagrad", "adam"};

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

template <size_t I>
UpdateRule read_rule(const StateView& saved) {
  std::variant_alternative_t<I, UpdateRule> rule;
  visit_named(rule, [&](const char* name, auto& field) {
    if constexpr (std::is_same_v<std::decay_t<decltype(field)>, bool>) {
      field = saved.at(name).truth();
    } else {
      field = saved.at(name).number();
    }
  });
  return rule;
}

/// Two columns: closures and numbers, whose bits an int64 holds.
torch::Tensor tensor_of_pushes(const std::vector<PushId>& pushes) {
  auto tensor = torch::empty({static_cast<int64_t>(pushes.size()), 2}, torch::kLong);
  auto* next = tensor.mutable_data_ptr<int64_t>();
  for (const auto& push : pushes) {
    *next++ = std::bit_cast<int64_t>(push.closure);
    *next++ = std::bit_cast<int64_t>(push.number);
  }
  return tensor;
}

std::vector<PushId> pushes_in(const StateView& saved) {
  const auto& tensor = saved.tensor();
  if (tensor.scalar_type() != torch::kLong || tensor.dim() != 2 || tensor.size(1) != 2)
    saved.fail("pairs of int64", c10::str(tensor.scalar_type(), " ", tensor.sizes()));
  const auto pairs = tensor.contiguous();
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

ParameterShard::Saved shard_in(const StateView& saved) {
  ParameterShard::Saved shard;
  shard.values = saved.at("values").tensor();
  for (const auto& [key, tensor] : saved.at("optimizer").entries()) {
    const auto* name = std::get_if<std::string>(&key);
    if (name == nullptr) tensor.fail("a name");
    shard.optimizer.emplace_back(*name, tensor.tensor());
  }
  shard.version = std::bit_cast<uint64_t>(saved.at("version").count());
  shard.pushes = pushes_in(saved.at("pushes"));
  return shard;
}

StateValue::Dict state_of_rule(const UpdateRule& rule) {
  StateValue::Dict state;
  state.add("name", kRuleNames[rule.index()]);
  std::visit(
      [&](const auto& chosen) {
        visit_named(chosen, [&](const char* name, const auto& field) { state.add(name, field); });
      },
      rule);
  return state;
}

UpdateRule rule_in(const StateView& saved) {
  const auto name = saved.at("name");
  if (name.text() == kRuleNames[0]) return read_rule<0>(saved);
  if (name.text() == kRuleNames[1]) return read_rule<1>(saved);
  if (name.text() == kRuleNames[2]) return read_rule<2>(saved);
  name.fail("sgd, adagrad or adam");
}

}  // namespace lockstep
