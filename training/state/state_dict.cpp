#include "lockstep/training/state/state_dict.h"

#include <c10/util/StringUtil.h>

#include <map>
#include <set>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/runtime/base/internal/text_excerpt.h"
#include "lockstep/runtime/replicas/buffer_aggregation.h"
#include "lockstep/runtime/replicas/sharded_parameter.h"

namespace lockstep {
namespace {

constexpr size_t kMostDescribed = 50;

void visit_in_order_of_python(const torch::nn::Module& module, const std::string& prefix,
                              NamedTensors& result) {
  for (const auto& own :
       {module.named_parameters(/*recurse=*/false), module.named_buffers(/*recurse=*/false)}) {
    for (const auto& item : own)
      if (item.value().defined()) result.emplace_back(prefix + item.key(), item.value().detach());
  }
  for (const auto& child : module.named_children())
    visit_in_order_of_python(*child.value(), prefix + child.key() + ".", result);
}

std::string kind_of(const torch::Tensor& tensor) {
  return c10::str(c10::toString(tensor.scalar_type()), " ", whole_sizes(tensor));
}

bool can_load(const torch::Tensor& target, const torch::Tensor& given) {
  return whole_sizes(target) == given.sizes() && (target.scalar_type() == given.scalar_type() ||
                                                  (target.is_floating_point() && given.is_floating_point()));
}

void load_values(torch::Tensor& target, const torch::Tensor& values) {
  const auto* shard = sharded_parameter_of(target);
  target.copy_(shard != nullptr ? part_of_values(values, *shard) : values);
}

std::map<std::string, torch::Tensor> by_name(const NamedTensors& tensors, const std::string& source) {
  std::map<std::string, torch::Tensor> result;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined() || !result.emplace(name, tensor).second) {
      throw CheckpointError(source, "tensor " + quoted_excerpt(name), "one tensor of this name",
                            tensor.defined() ? "two" : "an undefined one");
    }
  }
  return result;
}

/// Compares without loading; throws on a mismatch if `strict`.
LoadReport compare(const NamedTensors& targets, const std::map<std::string, torch::Tensor>& given,
                   const NamedTensors& given_in_order, const LoadStateOptions& options) {
  LoadReport report;
  const auto refuse = [&](const std::string& name, const std::string& expected, const std::string& actual) {
    if (options.strict)
      throw CheckpointError(options.source, "tensor " + quoted_excerpt(name), expected, actual);
  };
  std::set<std::string> names;
  for (const auto& [name, target] : targets) {
    names.insert(name);
    const auto found = given.find(name);
    if (found == given.end()) {
      refuse(name, kind_of(target), "no such tensor");
      report.missing.push_back(name);
    } else if (!can_load(target, found->second)) {
      refuse(name, kind_of(target), kind_of(found->second));
      report.differing.push_back({name, kind_of(target), kind_of(found->second)});
    } else {
      report.loaded.push_back(name);
    }
  }
  for (const auto& [name, tensor] : given_in_order) {
    if (names.contains(name)) continue;
    refuse(name, "no such tensor in this model", kind_of(tensor));
    report.unexpected.push_back(name);
  }
  return report;
}

}  // namespace

NamedTensors state_dict(const torch::nn::Module& module) {
  NamedTensors result;
  visit_in_order_of_python(module, "", result);
  return result;
}

std::vector<std::string> LoadReport::describe() const {
  std::vector<std::string> lines;
  const auto add = [&](const std::string& name, const std::string& words) {
    if (lines.size() < kMostDescribed) lines.push_back(excerpt(name) + ": " + words);
  };
  for (const auto& name : missing) add(name, "not in the file");
  for (const auto& difference : differing)
    add(difference.name, "expected " + difference.expected + ", but got " + difference.actual);
  for (const auto& name : unexpected) add(name, "not in the model");
  const size_t num_all = missing.size() + differing.size() + unexpected.size();
  if (num_all > lines.size()) lines.push_back("and " + std::to_string(num_all - lines.size()) + " more");
  return lines;
}

LoadReport load_state_dict(const std::vector<ModulePointer>& replicas, int first_replica,
                           const NamedTensors& tensors, const LoadStateOptions& options) {
  if (replicas.empty()) throw InvalidArgument("[load_state_dict] expected a module, but got none");
  const auto given = by_name(tensors, options.source);
  LoadReport report = compare(state_dict(*replicas[0]), given, tensors, options);
  const torch::NoGradGuard no_grad;
  const std::set<std::string> loaded(report.loaded.begin(), report.loaded.end());
  for (const auto& replica : replicas) {
    for (auto& [name, target] : state_dict(*replica))
      if (loaded.contains(name)) load_values(target, given.at(name));
  }
  keep_sums_once(replicas, first_replica);
  return report;
}

LoadReport load_state_dict(torch::nn::Module& module, const NamedTensors& tensors,
                           const LoadStateOptions& options) {
  // A pointer without ownership: the caller may not hold the module by a shared_ptr.
  return load_state_dict(std::vector<ModulePointer>{ModulePointer(&module, [](torch::nn::Module*) {})},
                         /*first_replica=*/0, tensors, options);
}

}  // namespace lockstep
