#pragma once

#include <torch/optim/optimizer.h>

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/runtime/collectives/collective_channel.h"
#include "lockstep/runtime/gradients/gradient_reducer.h"
#include "lockstep/runtime/replicas/internal/parameter_directory.h"
#include "lockstep/runtime/replicas/internal/replica_threads.h"

namespace lockstep {

/// One optimizer, as every local replica has it: the reducer that sums its gradients, and how many steps each
/// replica has finished. It lives as long as the Mirrored value that `scope` returned.
class OptimizerGroup {
 public:
  struct Options {
    int64_t id = 0;         ///< that no other optimizer of the strategy ever has
    int first_replica = 0;  ///< the first local replica's id among all, from which errors number them
    /// What the replica functions' own collectives go through, which gradients may rest on, too; null:
    /// nothing does. It outlives the group.
    const CollectiveChannel* collectives = nullptr;
    BucketOptions buckets;
    std::function<bool(int replica)> is_accumulating;
    /// Throws a replica's error, in the strategy's words where it is its device's.
    std::function<void(int replica, const std::exception_ptr& error)> rethrow;
  };

  /// Throws InvalidArgument naming the parameter if an optimizer holds another replica's parameter, holds one
  /// twice, shares a tensor with another replica's, or has other parameters than replica 0's. With `channel`
  /// null (one replica) nothing is summed and no hook installed.
  OptimizerGroup(std::vector<torch::optim::Optimizer*> optimizers, std::unique_ptr<CollectiveChannel> channel,
                 ReplicaThreads& threads, std::shared_ptr<const ParameterDirectory> directory,
                 Options options);
  OptimizerGroup(const OptimizerGroup&) = delete;  // the reducers refer to it
  OptimizerGroup& operator=(const OptimizerGroup&) = delete;

  int64_t id() const { return id_; }
  bool holds(const torch::optim::Optimizer& optimizer) const;
  /// Null with one replica.
  CollectiveChannel* channel() const { return channel_.get(); }
  GradientReducer* reducer(int replica) const {
    return reducers_.empty() ? nullptr : reducers_[static_cast<size_t>(replica)].get();
  }

  /// Throws InvalidArgument naming a parameter that the optimizer has gained, lost or exchanged since scope
  /// made it.
  void check_parameters(int replica) const;
  /// The replica has stepped, by sums that it has joined before. Called by its thread.
  void count_step(int replica);
  /// After a failed run, once the channel was aborted: finds out which replicas have stepped by sums that
  /// were cut off.
  void check_steps();
  /// Replica `replica` steps with a GradScaler.
  void note_scaler(int replica) { has_scaler_[static_cast<size_t>(replica)] = 1; }
  /// Whether any replica ever did.
  bool has_scaler() const;
  const std::vector<int64_t>& finished_steps() const { return finished_steps_; }
  /// Whether all replicas have finished equally many steps, all by whole sums.
  bool is_consistent() const;
  /// The finished steps of each replica, and whose last used a sum that was cut off, as text.
  std::string describe_steps() const;
  /// Whether the replica's last step used a sum that was cut off.
  bool was_cut_off(size_t replica) const { return was_cut_off_[replica] != 0; }
  /// Copies the state of replica `source`'s optimizer to the others, and its count of steps.
  void copy_state_from(size_t source);

 private:
  /// How many collectives a replica had joined at its last step.
  struct Joined {
    uint64_t gradients = 0;
    uint64_t others = 0;
  };

  const int64_t id_;
  const int first_replica_;
  const CollectiveChannel* const collectives_;
  std::vector<torch::optim::Optimizer*> optimizers_;
  std::vector<std::vector<at::Tensor>> parameters_;  // as at construction
  std::unique_ptr<CollectiveChannel> channel_;
  std::shared_ptr<const ParameterDirectory> directory_;
  std::vector<std::unique_ptr<GradientReducer>> reducers_;
  std::vector<int64_t> finished_steps_;
  std::vector<Joined> joined_at_step_;
  std::vector<char> was_cut_off_;
  std::vector<char> has_scaler_;  // no vector<bool>: each replica's thread writes its own
};

/// The parameters of all groups, in order.
std::vector<at::Tensor> parameters_of(const torch::optim::Optimizer& optimizer);

}  // namespace lockstep
