/// Templates of Strategy::scope() and Strategy::mirror(). strategy.h includes this header.
#pragma once

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <concepts>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/runtime/replicas/mirror_options.h"
#include "lockstep/runtime/replicas/module_state.h"
#include "lockstep/strategies/core/strategy.h"

namespace lockstep {

template <ScopeFactory Factory>
auto Strategy::scope(const Factory& make, const ScopeOptions& options) {
  using T = std::invoke_result_t<const Factory&, ReplicaContext&>;
  std::vector<T> values;
  values.reserve(static_cast<size_t>(num_local_replicas()));
  run_factories([&](ReplicaContext& replica) { values.push_back(make(replica)); });
  std::shared_ptr<void> attachment;
  if constexpr (ModuleLike<T>) {
    adopt_modules(module_pointers(values), options);
  } else if (options.channels_last) {
    refuse_channels_last();
  } else if constexpr (OptimizerLike<T>) {
    std::vector<torch::optim::Optimizer*> optimizers;
    for (auto& value : values) optimizers.push_back(&optimizer_reference(value));
    attachment = adopt_optimizers(std::move(optimizers));
  } else if constexpr (std::is_same_v<T, torch::Tensor>) {
    adopt_tensors(values);
  }
  return Mirrored<T>(std::move(values), shared_devices(), std::move(attachment), replica_peers());
}

template <ModuleLike T>
Mirrored<T> Strategy::mirror(const T& module, const MirrorOptions& options) {
  std::vector<T> copies;
  for (auto& copy : clone_to_devices(module_pointer(module))) {
    if constexpr (ModuleHolderLike<T>) {
      copies.push_back(T(std::dynamic_pointer_cast<typename T::ContainedType>(copy)));
    } else {
      copies.push_back(std::dynamic_pointer_cast<typename T::element_type>(copy));
    }
  }
  if constexpr (requires(T & m, torch::Tensor x) {
                  { m->forward(x) } -> std::convertible_to<torch::Tensor>;
                }) {
    if (options.probe.defined()) {
      T original = module;
      std::vector<torch::Tensor> outputs{detail::probe(*original, options.probe)};
      for (auto& copy : copies) outputs.push_back(detail::probe(*copy, options.probe));
      compare_probes(outputs);
    }
  } else if (options.probe.defined()) {
    refuse_probe();
  }
  adopt_modules(module_pointers(copies), {.channels_last = options.channels_last});
  return Mirrored<T>(std::move(copies), shared_devices(), nullptr, replica_peers());
}

}  // namespace lockstep
