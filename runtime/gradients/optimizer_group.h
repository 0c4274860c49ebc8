#pragma once

#include <torch/optim/optimizer.h>

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/runtime/collectives/collective_channel.h"
#include "lockstep/runtime/gradients/gradient_reducer.h"
#include "lockstep/runtime/gradients/gradient_sharding.h"
#include "lockstep/runtime/gradients/host_optimizer_state.h"
#include "lockstep/runtime/gradients/sharded_parameters.h"
#include "lockstep/runtime/replicas/internal/parameter_directory.h"
#include "lockstep/runtime/replicas/internal/replica_threads.h"

namespace lockstep {

/// One optimizer on all local replicas: the reducers that sum its gradients, and the number of steps each
/// replica has finished. Lives as long as the Mirrored value that `scope` returned.
class OptimizerGroup {
 public:
  struct Options {
    int64_t id = 0;         ///< unique among all optimizers of the strategy's lifetime
    int first_replica = 0;  ///< number of the first local replica among all replicas, used in errors
    /// Channels of the collectives that replica functions call themselves, on which gradients may depend too.
    /// They must outlive the group.
    std::vector<const CollectiveChannel*> collectives = {};
    BucketOptions buckets;
    std::function<bool(int replica)> is_accumulating;
    /// Rethrows a replica's error, in the strategy's wording if it is an error of the replica's device.
    std::function<void(int replica, const std::exception_ptr& error)> rethrow;
    /// If `channel` is null, its `cuts` alone count.
    GradientSharding sharding = {};
    bool keeps_state_on_host = false;  ///< see HostOptimizerState
    /// Returns whether gradients of a table that `owner` holds will be sparse. Null: none is expected to be.
    std::function<bool(const torch::nn::Module& owner)> has_sparse_gradients = nullptr;
  };

  /// Throws InvalidArgument naming the parameter if an optimizer holds another replica's parameter, holds a
  /// parameter twice, shares a tensor with another replica's optimizer, or has other parameters than replica
  /// 0's. If `channel` is null (one replica), nothing is summed and no hook is installed.
  ///
  /// If state is to be sharded, throws InvalidArgument for an unknown stage, for channels that do not fit
  /// `channel`, for an optimizer that is not elementwise, for slices in stage 0 or without their channel, and
  /// as ShardedParameters does. Throws InvalidArgument for parameters that are cut along a dimension without
  /// a channel of the ranks that have the other parts, or if the optimizer is not elementwise.
  OptimizerGroup(std::vector<torch::optim::Optimizer*> optimizers, std::unique_ptr<CollectiveChannel> channel,
                 ReplicaThreads& threads, std::shared_ptr<const ParameterDirectory> directory,
                 Options options);
  OptimizerGroup(const OptimizerGroup&) = delete;  // the reducers hold references to it
  OptimizerGroup& operator=(const OptimizerGroup&) = delete;

  int64_t id() const { return id_; }
  bool holds(const torch::optim::Optimizer& optimizer) const;
  /// Returns the channel over all ranks, or null if there is one replica.
  CollectiveChannel* channel() const { return channel_.get(); }
  /// Returns this and the channels of sharded sums: all in which replicas may wait for each other's
  /// gradients.
  std::vector<CollectiveChannel*> channels() const;
  GradientReducer* reducer(int replica) const {
    return reducers_.empty() ? nullptr : reducers_[static_cast<size_t>(replica)].get();
  }

  /// Returns the replica's part of the optimizer's state, or null if each replica has all of it.
  ShardedParameters* sharded(int replica) const {
    return sharded_.empty() ? nullptr : sharded_[static_cast<size_t>(replica)].get();
  }
  /// Returns null unless the state is kept on the host.
  HostOptimizerState* host_state(int replica) {
    return host_states_.empty() ? nullptr : &host_states_[static_cast<size_t>(replica)];
  }
  /// Returns the number of ranks that own different parts of the same rows.
  int num_parts() const;
  /// Returns 0 if each replica has all of the gradients and the state.
  int sharding_stage() const { return reducers_.empty() ? 0 : sharding_.stage; }
  /// Returns whether ranks have different gradients and state: by sharding, since parameters are cut, or
  /// since they have different stages.
  bool is_divided() const { return sharding_stage() > 0 || has_parts(); }

  /// Clips the replica's gradients as clip_gradients() does, by the norm over all ranks if they are divided.
  /// Then it is a collective, and in stages 1 and 2 to be called within a ShardedParameters::Step.
  at::Tensor clip(int replica, double max_norm) const;
  /// Replaces `found_inf`, a float32 scalar, by the largest of all ranks with different parts. Does not wait
  /// for a device. Call it only if the gradients are divided.
  void agree_on_found_inf(int replica, const at::Tensor& found_inf) const;

  /// Call it at the start of a run, from the replica's thread; see GradientReducer::prepare() and
  /// ShardedParameters::prepare().
  void prepare(int replica);
  /// Throws InvalidArgument naming a parameter that the optimizer has gained, lost or moved since scope
  /// created it.
  void check_parameters(int replica) const;
  /// Notes that the replica begins to change a sharded state. Until count_step(), its parameters are neither
  /// those before the step nor those after it. Call it from the replica's thread.
  void begin_sharded_step(int replica) { is_stepping_[static_cast<size_t>(replica)] = 1; }
  /// Counts a step that the replica made with sums it has joined. Call it from the replica's thread.
  void count_step(int replica);
  /// After a failed run, and after the channel was aborted, finds out which replicas stepped with incomplete
  /// sums. If the state is sharded, no replica is good any more unless all have made the same steps.
  void check_steps();
  /// Records that `replica` steps with a GradScaler.
  void note_scaler(int replica) { has_scaler_[static_cast<size_t>(replica)] = 1; }
  /// Returns true if any replica ever stepped with a GradScaler.
  bool has_scaler() const;
  const std::vector<int64_t>& finished_steps() const { return finished_steps_; }
  /// Returns true if all replicas have finished the same number of steps, all with complete sums.
  bool is_consistent() const;
  /// Describes each replica's number of finished steps, and whose last step used an incomplete sum.
  std::string describe_steps() const;
  /// Returns true if the replica's last step used an incomplete sum.
  bool was_cut_off(size_t replica) const { return was_cut_off_[replica] != 0; }
  /// Copies the optimizer state and step count of replica `source` to the other replicas. Does nothing if the
  /// state is divided: no replica has another one's part.
  void copy_state_from(size_t source);

 private:
  bool has_parts() const { return sharding_.cuts != nullptr || sharding_.stages != nullptr; }
  void check_sharding() const;
  ReplicaBackends parts(int replica) const;
  void make_reducer(int replica, const Options& options);
  std::vector<const CollectiveChannel*> counted_channels() const;

  const int64_t id_;
  const int first_replica_;
  const std::vector<const CollectiveChannel*> collectives_;
  std::vector<torch::optim::Optimizer*> optimizers_;
  std::vector<std::vector<at::Tensor>> parameters_;  // as at construction
  std::unique_ptr<CollectiveChannel> channel_;
  std::shared_ptr<const ParameterDirectory> directory_;
  GradientSharding sharding_;
  std::vector<std::unique_ptr<GradientReducer>> reducers_;
  std::vector<std::unique_ptr<ShardedParameters>> sharded_;  // refer to the reducers
  std::vector<HostOptimizerState> host_states_;
  std::vector<int64_t> finished_steps_;
  // For each replica, how many collectives of each counted channel it had joined at its last step.
  std::vector<std::vector<uint64_t>> joined_at_step_;
  std::vector<char> was_cut_off_;
  std::vector<char> is_stepping_;
  std::vector<char> has_scaler_;  // not vector<bool>: each replica's thread writes its own element
};

/// Returns the parameters of all parameter groups, in order.
std::vector<at::Tensor> parameters_of(const torch::optim::Optimizer& optimizer);

}  // namespace lockstep
