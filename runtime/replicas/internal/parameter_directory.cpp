#include "lockstep/runtime/replicas/internal/parameter_directory.h"

#include <c10/util/StringUtil.h>

#include <unordered_map>

namespace lockstep {
namespace {

/// The positions of each tensor, which may be there several times.
std::unordered_multimap<const at::TensorImpl*, size_t> positions_of(const std::vector<at::Tensor>& tensors) {
  std::unordered_multimap<const at::TensorImpl*, size_t> positions;
  for (size_t i = 0; i < tensors.size(); ++i) positions.emplace(tensors[i].unsafeGetTensorImpl(), i);
  return positions;
}

}  // namespace

void ParameterDirectory::add(const std::vector<std::shared_ptr<torch::nn::Module>>& replicas) {
  std::erase_if(modules_, [](const auto& set) { return set[0].expired(); });
  modules_.emplace_back(replicas.begin(), replicas.end());
}

std::vector<std::optional<ParameterDirectory::Entry>> ParameterDirectory::find_all(
    const std::vector<at::Tensor>& parameters) const {
  const auto positions = positions_of(parameters);
  std::vector<std::optional<Entry>> entries(parameters.size());
  for (const auto& set : modules_) {
    for (size_t replica = 0; replica < set.size(); ++replica) {
      const auto module = set[replica].lock();
      if (!module) continue;
      for (const auto& item : module->named_parameters()) {
        const auto [begin, end] = positions.equal_range(item.value().unsafeGetTensorImpl());
        for (auto found = begin; found != end; ++found) {
          auto& entry = entries[found->second];
          if (!entry) entry = Entry{item.key(), static_cast<int>(replica)};
        }
      }
    }
  }
  return entries;
}

std::vector<std::shared_ptr<const torch::nn::Module>> ParameterDirectory::owners(
    const std::vector<at::Tensor>& parameters) const {
  const auto positions = positions_of(parameters);
  std::vector<std::shared_ptr<const torch::nn::Module>> owners(parameters.size());
  for (const auto& set : modules_) {
    for (const auto& replica : set) {
      const auto root = replica.lock();
      if (!root) continue;
      for (const auto& module : root->modules()) {
        for (const auto& own : module->parameters(/*recurse=*/false)) {
          const auto [begin, end] = positions.equal_range(own.unsafeGetTensorImpl());
          for (auto found = begin; found != end; ++found)
            if (!owners[found->second]) owners[found->second] = module;
        }
      }
    }
  }
  return owners;
}

std::optional<ParameterDirectory::Entry> ParameterDirectory::find(const at::Tensor& parameter) const {
  return find_all({parameter})[0];
}

std::string ParameterDirectory::describe(const at::Tensor& parameter, size_t position) const {
  if (const auto entry = find(parameter)) return "'" + entry->name + "'";
  return c10::str("parameter ", position, " of shape ", parameter.sizes(),
                  ", which no module of this strategy's scope holds");
}

}  // namespace lockstep
