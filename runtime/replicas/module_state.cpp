#include "lockstep/runtime/replicas/module_state.h"

#include <c10/util/StringUtil.h>

#include <map>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/devices/internal/random_state.h"
#include "lockstep/runtime/replicas/buffer_aggregation.h"
#include "lockstep/runtime/replicas/sharded_parameter.h"

namespace lockstep {
namespace {

std::string shape_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  // The ranks' parts may differ in length.
  if (const auto* shard = sharded_parameter_of(tensor))
    return c10::str("a part of ", c10::toString(tensor.scalar_type()), " ", at::IntArrayRef(shard->sizes));
  return c10::str(c10::toString(tensor.scalar_type()), " ", tensor.sizes());
}

/// Unlike named_parameters(), this visits a tensor again under each name that it is registered under.
void visit_state(const torch::nn::Module& module, const std::string& prefix,
                 std::vector<std::pair<std::string, at::Tensor>>& result, bool parameters) {
  const auto own =
      parameters ? module.named_parameters(/*recurse=*/false) : module.named_buffers(/*recurse=*/false);
  for (const auto& item : own) result.emplace_back(prefix + item.key(), item.value());
  for (const auto& child : module.named_children())
    visit_state(*child.value(), prefix + child.key() + ".", result, parameters);
}

/// For each tensor of the list, the position of its first appearance.
std::vector<size_t> first_appearances(const std::vector<std::pair<std::string, at::Tensor>>& state) {
  std::map<const void*, size_t> seen;
  std::vector<size_t> first;
  for (size_t i = 0; i < state.size(); ++i) {
    const auto* tensor = state[i].second.unsafeGetTensorImpl();
    first.push_back(seen.emplace(tensor, i).first->second);
  }
  return first;
}

}  // namespace

std::vector<std::pair<std::string, at::Tensor>> named_state(const torch::nn::Module& module) {
  std::vector<std::pair<std::string, at::Tensor>> state;
  visit_state(module, "", state, true);
  visit_state(module, "", state, false);
  return state;
}

bool stands_for_table(const at::Tensor& tensor) {
  return tensor.defined() && tensor.requires_grad() && tensor.dim() > 0 && tensor.layout() == at::kStrided &&
         tensor.stride(0) == 0 && tensor.size(0) > 1;
}

void check_same_structure(const std::vector<ModulePointer>& replicas, const std::string& who,
                          int first_replica) {
  const auto expected = named_state(*replicas[0]);
  const auto expected_first = first_appearances(expected);
  for (size_t local = 1; local < replicas.size(); ++local) {
    const int replica = first_replica + static_cast<int>(local);
    const auto given = named_state(*replicas[local]);
    const auto given_first = first_appearances(given);
    for (size_t i = 0; i < std::max(expected.size(), given.size()); ++i) {
      if (i >= expected.size() || i >= given.size() || expected[i].first != given[i].first) {
        throw InvalidArgument(c10::str(
            "[", who, "] expected the same registered tensors on every replica, but replica ", replica,
            " has ", i < given.size() ? "'" + given[i].first + "'" : "none", " where replica ", first_replica,
            " has ", i < expected.size() ? "'" + expected[i].first + "'" : "none"));
      }
      const at::Tensor& a = expected[i].second;
      const at::Tensor& b = given[i].second;
      if (shape_of(a) != shape_of(b)) {
        throw InvalidArgument(c10::str("[", who, "] expected '", expected[i].first, "' to be ", shape_of(a),
                                       " as on replica ", first_replica, ", but it is ", shape_of(b),
                                       " on replica ", replica));
      }
      if (a.defined() && a.requires_grad() != b.requires_grad()) {
        throw InvalidArgument(c10::str("[", who, "] '", expected[i].first,
                                       "' requires a gradient on one of the replicas ", first_replica,
                                       " and ", replica, " only"));
      }
      if (a.defined() && expected_first[i] != given_first[i]) {
        throw InvalidArgument(c10::str("[", who, "] '", expected[i].first,
                                       "' is shared with another name on one of the replicas ", first_replica,
                                       " and ", replica, " only"));
      }
      if (a.defined() && a.numel() > 0 && a.is_alias_of(b)) {
        throw InvalidArgument(c10::str("[", who, "] '", expected[i].first,
                                       "' is the same memory on replicas ", first_replica, " and ", replica,
                                       ": each replica needs a tensor of its own"));
      }
    }
  }
}

void copy_module_state(const std::vector<ModulePointer>& replicas, size_t source) {
  const at::NoGradGuard no_grad;
  const auto from = named_state(*replicas[source]);
  const auto sums = summed_buffers(*replicas[source]);
  for (size_t replica = 0; replica < replicas.size(); ++replica) {
    if (replica == source) continue;
    const auto to = named_state(*replicas[replica]);
    for (size_t i = 0; i < from.size(); ++i) {
      at::Tensor target = to[i].second;
      const bool has_own_values =
          stands_for_table(target) || sums.contains(from[i].first) || is_shard(target);
      if (target.defined() && !has_own_values) target.copy_(from[i].second);
    }
  }
}

std::vector<bool> training_flags(const torch::nn::Module& module) {
  std::vector<bool> flags{module.is_training()};
  for (const auto& child : module.children()) {
    const auto below = training_flags(*child);
    flags.insert(flags.end(), below.begin(), below.end());
  }
  return flags;
}

void set_training_flags(torch::nn::Module& module, const std::vector<bool>& flags) {
  size_t next = 0;
  // train() sets a whole subtree. Parents come first here, so that each module ends with its own flag.
  const std::function<void(torch::nn::Module&)> visit = [&](torch::nn::Module& current) {
    current.train(flags.at(next++));
    for (const auto& child : current.children()) visit(*child);
  };
  visit(module);
}

ModulePointer clone_module(const ModulePointer& module, torch::Device device) {
  const RandomStateGuard random_state(device);  // clone() initialises the copy before it copies
  ModulePointer copy;
  try {
    copy = module->clone(device);
  } catch (const c10::Error& error) {
    throw InvalidArgument(
        c10::str("[mirror] expected a module derived from torch::nn::Cloneable that registers its tensors in "
                 "reset(), but '",
                 module->name(), "' cannot be cloned: ", error.what_without_backtrace(),
                 "; make it in strategy.scope() instead"));
  }
  const auto from = named_state(*module);
  auto to = named_state(*copy);
  for (size_t i = 0; i < std::min(from.size(), to.size()); ++i) {
    if (!from[i].second.defined() || !to[i].second.defined()) continue;
    if (to[i].second.is_leaf()) to[i].second.set_requires_grad(from[i].second.requires_grad());
  }
  check_same_structure({module, copy}, "mirror");
  set_training_flags(*copy, training_flags(*module));
  return copy;
}

}  // namespace lockstep
