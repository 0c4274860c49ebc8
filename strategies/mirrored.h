#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "lockstep/runtime/module_state.h"
#include "lockstep/runtime/per_replica.h"
#include "lockstep/strategies/value_kind.h"

namespace lockstep {

/// One object a replica, all with the same values: what `Strategy::scope` and `mirror` return. In replica
/// functions it arrives as that replica's `T&`.
template <typename T>
class Mirrored : public PerReplica<T> {
 public:
  /// `attachment` is what the strategy keeps alive together with the objects.
  Mirrored(std::vector<T> values, typename PerReplica<T>::Devices devices,
           std::shared_ptr<void> attachment = nullptr)
      : PerReplica<T>(std::move(values), std::move(devices)), attachment_(std::move(attachment)) {}

  /// Replica 0's object; the others hold the same values.
  const T& primary() const { return this->local_values().front(); }
  T& primary() { return this->local_values().front(); }

  /// Switches every replica's module to evaluation, after writing the mean over the replicas of the
  /// floating-point buffers (BatchNorm's running statistics, which each replica gathers from its own shards)
  /// into all of them.
  void eval() requires ModuleLike<T> {
    const auto modules = module_pointers(this->local_values());
    average_buffers(modules);
    for (const auto& module : modules) module->eval();
  }

  /// Switches every replica's module to training (or, with false, to evaluation, without touching buffers).
  void train(bool on = true) requires ModuleLike<T> {
    for (const auto& module : module_pointers(this->local_values())) module->train(on);
  }

 private:
  std::shared_ptr<void> attachment_;
};

}  // namespace lockstep
