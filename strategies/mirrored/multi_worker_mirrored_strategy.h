#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/runtime/cluster/cluster_options.h"
#include "lockstep/runtime/cluster/cluster_resolver.h"
#include "lockstep/runtime/cluster/environment.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"

namespace lockstep {

/// A MirroredStrategy over the worker processes of a job. Each worker has local replicas, and their numbers
/// may differ. All replicas of all workers hold the same parameters and step together. Worker 0's replicas
/// come first.
///
/// These are collectives, which every worker must call in the same order: the constructor and destructor, the
/// destructors of its optimizers, scope(), mirror(), run(), reduce(), gather(), distribute_dataset() and
/// loops over distributed streams. They throw ClusterError if the workers do not fit together (cluster,
/// options, model, optimizer, dataset) and PeerLost if a worker is gone. After a failure in any of them, the
/// strategy is unusable.
///
/// Initial values are worker 0's. local_results(), metrics' results and batches cover this process's
/// replicas. A process can make only one such strategy in its life: a second one would find traces of the
/// first.
///
/// An evaluator task is not part of the job: its strategy has only this process's replicas, and does
/// everything but train.
///
/// Example:
///
///     MultiWorkerMirroredStrategy strategy;  // TF_CONFIG or a launcher names the workers
///     auto model = strategy.scope([](ReplicaContext&) { return SimpleCnn(); });
///     if (strategy.is_chief()) std::cout << strategy.describe() << "\n";
class MultiWorkerMirroredStrategy : public Strategy {
 public:
  /// A null `resolver` uses the cluster that resolve_cluster() finds in the environment; without a cluster,
  /// this process is the only worker. Devices are spelled as for MirroredStrategy. If none are given, this
  /// process takes its share of the machine's accelerators, or one logical CPU if there is none. With several
  /// local workers, it is the device of the local rank, or the only one that a launcher shows to the process.
  ///
  /// Blocks until all workers have joined. Throws as MirroredStrategy, ClusterError, and InvalidArgument for
  /// a ps task and for several workers without a secret (ClusterOptions::token) that are not on loopback.
  explicit MultiWorkerMirroredStrategy(std::shared_ptr<const ClusterResolver> resolver = nullptr,
                                       std::vector<std::string> devices = {}, StrategyOptions options = {},
                                       ClusterOptions cluster = cluster_options(process_environment()));

  const ClusterResolver* cluster_resolver() const override { return resolver_.get(); }
  /// Returns whether this process is worker 0, which should print everything that the user needs to see.
  bool is_chief() const { return !is_evaluator() && resolver_->rank() == 0; }
  bool is_evaluator() const { return resolver_->task_type() == "evaluator"; }

  /// The same as Strategy's. Throws InvalidArgument on an evaluator.
  torch::Tensor apply_gradients(ReplicaContext& replica, torch::optim::Optimizer& optimizer,
                                const ApplyOptions& options) override;

 protected:
  /// For strategies with another name and other devices. `resolver` must not be null.
  MultiWorkerMirroredStrategy(const char* name, std::shared_ptr<const ClusterResolver> resolver,
                              const std::vector<std::string>& devices, const StrategyOptions& options,
                              const ClusterOptions& cluster);

  /// Returns `resolver`, or the environment's cluster if it is null, or else a cluster of this process alone.
  static std::shared_ptr<const ClusterResolver> resolved(std::shared_ptr<const ClusterResolver> resolver);
  /// Returns the devices of these names. Without names, returns this worker's share of those that the process
  /// sees; see the constructor. Errors begin with [name].
  static Devices devices_of_worker(const char* name, const ClusterResolver& resolver,
                                   const std::vector<std::string>& names, const Devices& seen);

 private:
  std::shared_ptr<const ClusterResolver> resolver_;
};

}  // namespace lockstep
