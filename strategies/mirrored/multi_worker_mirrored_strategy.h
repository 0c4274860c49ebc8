#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/runtime/cluster/cluster_options.h"
#include "lockstep/runtime/cluster/cluster_resolver.h"
#include "lockstep/runtime/cluster/environment.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"

namespace lockstep {

/// MirroredStrategy over the worker processes of a job: each has local replicas, of which workers may have
/// different numbers, and all replicas of all workers hold the same parameters and step together. Worker 0's
/// replicas come first.
///
/// Its constructor, destructor, those of its optimizers, scope(), mirror(), run(), reduce(), gather(),
/// distribute_dataset() and loops over distributed streams are collectives: every worker calls the same ones
/// in the same order. Initial values are worker 0's. They throw ClusterError where workers do not fit
/// together (cluster, options, model, optimizer, dataset), PeerLost where one is gone; after a failure in any
/// of them the strategy is of no more use. local_results(), metrics' results and batches are of this
/// process's replicas. A process has one such strategy in its life: a second one would meet the first one's
/// traces.
///
/// An evaluator task stands beside the job: its strategy has this process's replicas only, and does all but
/// train.
class MultiWorkerMirroredStrategy : public Strategy {
 public:
  /// `resolver` null: what resolve_cluster() finds in the environment; without a cluster this process is the
  /// sole worker. Devices as for MirroredStrategy; none: this process's share of the machine's GPUs (the one
  /// of its local rank where there is one for each), else one logical CPU.
  ///
  /// Blocks until all workers have joined. Throws as MirroredStrategy, ClusterError, and InvalidArgument for
  /// a ps task.
  explicit MultiWorkerMirroredStrategy(std::shared_ptr<const ClusterResolver> resolver = nullptr,
                                       std::vector<std::string> devices = {}, StrategyOptions options = {},
                                       ClusterOptions cluster = cluster_options(process_environment()));

  const ClusterResolver* cluster_resolver() const override { return resolver_.get(); }
  /// Whether this process is worker 0, which tells the user what there is to tell.
  bool is_chief() const { return !is_evaluator() && resolver_->rank() == 0; }
  bool is_evaluator() const { return resolver_->task_type() == "evaluator"; }

  /// As Strategy's; throws InvalidArgument for an evaluator.
  torch::Tensor apply_gradients(ReplicaContext& replica, torch::optim::Optimizer& optimizer,
                                const ApplyOptions& options) override;

 private:
  /// Never null.
  struct Resolved {
    std::shared_ptr<const ClusterResolver> resolver;
  };
  MultiWorkerMirroredStrategy(Resolved resolver, const std::vector<std::string>& devices,
                              const StrategyOptions& options, const ClusterOptions& cluster);

  std::shared_ptr<const ClusterResolver> resolver_;
};

}  // namespace lockstep
