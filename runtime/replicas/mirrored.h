#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/runtime/replicas/module_state.h"
#include "lockstep/runtime/replicas/per_replica.h"
#include "lockstep/runtime/replicas/value_kind.h"

namespace lockstep {

/// One object a replica, all with the same values: what `Strategy::scope` and `mirror` return. In replica
/// functions it arrives as that replica's `T&`.
template <typename T>
class Mirrored : public PerReplica<T> {
 public:
  /// Averages the buffers of one module for each local replica over all replicas.
  using AverageBuffers = std::function<void(const std::vector<ModulePointer>&)>;

  /// `attachment` is what the strategy keeps alive together with the objects; `average` serves eval().
  Mirrored(std::vector<T> values, typename PerReplica<T>::Devices devices,
           std::shared_ptr<void> attachment = nullptr, AverageBuffers average = {})
      : PerReplica<T>(std::move(values), std::move(devices)),
        attachment_(std::move(attachment)),
        average_(std::move(average)) {}

  /// Replica 0's object; the others hold the same values.
  const T& primary() const { return this->local_values().front(); }
  T& primary() { return this->local_values().front(); }

  /// Switches every replica's module to evaluation, after writing the mean over the replicas of the
  /// floating-point buffers (BatchNorm's running statistics, which each replica gathers from its own shards)
  /// into all of them: over those of all workers, too, which call it together.
  void eval() requires ModuleLike<T> {
    const auto modules = module_pointers(this->local_values());
    average_ ? average_(modules) : average_buffers(modules);
    for (const auto& module : modules) module->eval();
  }

  /// Switches every replica's module to training (or, with false, to evaluation, without touching buffers).
  void train(bool on = true) requires ModuleLike<T> {
    for (const auto& module : module_pointers(this->local_values())) module->train(on);
  }

 private:
  std::shared_ptr<void> attachment_;
  AverageBuffers average_;
};

}  // namespace lockstep
