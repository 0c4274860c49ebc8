#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <concepts>
#include <memory>
#include <type_traits>
#include <vector>

namespace lockstep {

/// A module holder made by TORCH_MODULE.
template <typename T>
concept ModuleHolderLike = requires(const T& holder) {
  typename T::ContainedType;
  { holder.ptr() } -> std::convertible_to<std::shared_ptr<torch::nn::Module>>;
};

/// A module holder, or a shared_ptr to a module.
template <typename T>
concept ModuleLike = ModuleHolderLike<T> || std::convertible_to<T, std::shared_ptr<torch::nn::Module>>;

/// An optimizer by value, or a unique_ptr or shared_ptr to one.
template <typename T>
concept OptimizerLike = std::derived_from<T, torch::optim::Optimizer> || requires(const T& pointer) {
  requires std::derived_from<std::remove_reference_t<decltype(*pointer)>, torch::optim::Optimizer>;
};

/// A value that replicas must not share: `run` accepts it only within Mirrored.
template <typename T>
concept StatefulTorchObject = ModuleLike<T> || OptimizerLike<T> || std::derived_from<T, torch::nn::Module>;

/// Returns null for an empty holder or pointer.
template <ModuleLike T>
std::shared_ptr<torch::nn::Module> module_pointer(const T& module) {
  if constexpr (ModuleHolderLike<T>) {
    return module.is_empty() ? nullptr : module.ptr();
  } else {
    return module;
  }
}

template <ModuleLike T>
std::vector<std::shared_ptr<torch::nn::Module>> module_pointers(const std::vector<T>& modules) {
  std::vector<std::shared_ptr<torch::nn::Module>> pointers;
  for (const auto& module : modules) pointers.push_back(module_pointer(module));
  return pointers;
}

template <OptimizerLike T>
torch::optim::Optimizer& optimizer_reference(T& optimizer) {
  if constexpr (std::derived_from<T, torch::optim::Optimizer>) {
    return optimizer;
  } else {
    return *optimizer;
  }
}

}  // namespace lockstep
