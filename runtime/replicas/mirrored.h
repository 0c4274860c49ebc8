#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "lockstep/runtime/replicas/buffer_aggregation.h"
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
  /// `attachment` stays alive as long as the objects. `peers` are the other processes' replicas of them.
  Mirrored(std::vector<T> values, typename PerReplica<T>::Devices devices,
           std::shared_ptr<void> attachment = nullptr, ReplicaPeers peers = {})
      : PerReplica<T>(std::move(values), std::move(devices)),
        attachment_(std::move(attachment)),
        peers_(std::move(peers)) {}

  /// Returns replica 0's object. The others hold the same values.
  const T& primary() const { return this->local_values().front(); }
  T& primary() { return this->local_values().front(); }

  /// Switches every replica's module to evaluation. First combines the buffers of all replicas: by their mean
  /// (BatchNorm's running statistics, which each replica gathers from its own shards), unless the module
  /// declares something else (see BufferAggregation). With several workers, all must call it together. Throws
  /// InconsistentReplicas if a buffer that is declared the same on all replicas differs.
  void eval() requires ModuleLike<T> {
    const auto modules = module_pointers(this->local_values());
    aggregate_buffers(modules, peers_);
    for (const auto& module : modules) module->eval();
  }

  /// Switches every replica's module to training or, with false, to evaluation, without changing buffers.
  void train(bool on = true) requires ModuleLike<T> {
    for (const auto& module : module_pointers(this->local_values())) module->train(on);
  }

  /// Returns the id of this process's first replica among all replicas.
  int first_replica() const { return peers_.first_replica; }

 private:
  std::shared_ptr<void> attachment_;
  ReplicaPeers peers_;
};

}  // namespace lockstep
