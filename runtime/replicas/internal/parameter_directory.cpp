#include "lockstep/runtime/replicas/internal/parameter_directory.h"

#include <c10/util/StringUtil.h>

namespace lockstep {

void ParameterDirectory::add(const std::vector<std::shared_ptr<torch::nn::Module>>& replicas) {
  std::erase_if(modules_, [](const auto& set) { return set[0].expired(); });
  modules_.emplace_back(replicas.begin(), replicas.end());
}

std::optional<ParameterDirectory::Entry> ParameterDirectory::find(const at::Tensor& parameter) const {
  for (const auto& set : modules_) {
    for (size_t replica = 0; replica < set.size(); ++replica) {
      const auto module = set[replica].lock();
      if (!module) continue;
      for (const auto& item : module->named_parameters()) {
        if (item.value().is_same(parameter)) return Entry{item.key(), static_cast<int>(replica)};
      }
    }
  }
  return std::nullopt;
}

std::shared_ptr<const torch::nn::Module> ParameterDirectory::owner(const at::Tensor& parameter) const {
  for (const auto& set : modules_) {
    for (const auto& replica : set) {
      const auto root = replica.lock();
      if (!root) continue;
      for (const auto& module : root->modules()) {
        for (const auto& own : module->parameters(/*recurse=*/false))
          if (own.is_same(parameter)) return module;
      }
    }
  }
  return nullptr;
}

std::string ParameterDirectory::describe(const at::Tensor& parameter, size_t position) const {
  if (const auto entry = find(parameter)) return "'" + entry->name + "'";
  return c10::str("parameter ", position, " of shape ", parameter.sizes(),
                  ", which no module of this strategy's scope holds");
}

}  // namespace lockstep
