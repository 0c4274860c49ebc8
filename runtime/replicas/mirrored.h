#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/runtime/replicas/module_state.h"
#include "lockstep/runtime/replicas/per_replica.h"
#include "lockstep/runtime/replicas/value_kind.h"

namespace lockstep {

/// One object for each replica, all with the same values, as `Strategy::scope` and `mirror` return them.
/// Replica functions receive their replica's object as `T&`.
///
/// Example:
///
///     Mirrored<SimpleCnn> model = strategy.scope([](ReplicaContext&) { return SimpleCnn(); });
///     strategy.run([](ReplicaContext&, SimpleCnn& net) { net->zero_grad(); }, model);
///     model.eval();
///     const torch::Tensor scores = model.primary()->forward(images);
template <typename T>
class Mirrored : public PerReplica<T> {
 public:
  /// Averages buffers over all replicas, given one module for each local replica.
  using AverageBuffers = std::function<void(const std::vector<ModulePointer>&)>;

  /// `attachment` stays alive as long as the objects; eval() calls `average`.
  Mirrored(std::vector<T> values, typename PerReplica<T>::Devices devices,
           std::shared_ptr<void> attachment = nullptr, AverageBuffers average = {})
      : PerReplica<T>(std::move(values), std::move(devices)),
        attachment_(std::move(attachment)),
        average_(std::move(average)) {}

  /// Returns replica 0's object. The others hold the same values.
  const T& primary() const { return this->local_values().front(); }
  T& primary() { return this->local_values().front(); }

  /// Switches every replica's module to evaluation. First sets the floating-point buffers of all replicas to
  /// their mean (BatchNorm's running statistics, which each replica gathers from its own shards). With
  /// several workers the mean is over the replicas of all, and all workers must call it together.
  void eval() requires ModuleLike<T> {
    const auto modules = module_pointers(this->local_values());
    average_ ? average_(modules) : average_buffers(modules);
    for (const auto& module : modules) module->eval();
  }

  /// Switches every replica's module to training or, with false, to evaluation, without changing buffers.
  void train(bool on = true) requires ModuleLike<T> {
    for (const auto& module : module_pointers(this->local_values())) module->train(on);
  }

 private:
  std::shared_ptr<void> attachment_;
  AverageBuffers average_;
};

}  // namespace lockstep
