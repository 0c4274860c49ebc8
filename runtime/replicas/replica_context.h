#pragma once

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/runtime/collectives/collective_channel.h"
#include "lockstep/runtime/devices/device.h"
#include "lockstep/runtime/precision/autocast.h"
#include "lockstep/runtime/replicas/per_replica.h"
#include "lockstep/runtime/replicas/rank_random.h"
#include "lockstep/runtime/replicas/replica_axis.h"

namespace lockstep {

class GradScaler;
class ReplicaContext;

struct ApplyOptions {
  /// Scales all gradients so that their common L2 norm is at most this. Infinity only measures the norm.
  /// None: the norm is not computed.
  std::optional<double> clip_norm;
  /// Scaler that scaled the loss. The sums are divided by its scale before their norm is computed. If a sum
  /// is not finite, the step is skipped on every replica. Call its update() at the end of the step.
  GradScaler* scaler = nullptr;
};

/// Processes a replica's finished gradients. This is the one point at which strategies differ under the same
/// training step: mirrored strategies sum and step.
///
/// Example:
///
///     struct LocalHandler : GradientHandler {
///       torch::Tensor apply_gradients(ReplicaContext&, torch::optim::Optimizer& optimizer,
///                                     const ApplyOptions&) override { optimizer.step(); return {}; }
///       void reduce_gradients(ReplicaContext&, torch::optim::Optimizer&) override {}
///     };
class GradientHandler {
 public:
  virtual ~GradientHandler() = default;
  /// See ReplicaContext::apply_gradients.
  virtual torch::Tensor apply_gradients(ReplicaContext& replica, torch::optim::Optimizer& optimizer,
                                        const ApplyOptions& options) = 0;
  /// See ReplicaContext::reduce_gradients.
  virtual void reduce_gradients(ReplicaContext& replica, torch::optim::Optimizer& optimizer) = 0;
};

/// Sizes of the batch that a run was given.
struct BatchInfo {
  std::optional<int64_t> global_size;
  std::optional<int64_t> local_size;
};

/// Keeps gradients local while it lives: backward adds them to grad() as it does without a strategy, and
/// nothing is sent. The first backward after it sums the total.
///
/// Example:
///
///     {
///       const auto hold = replica.accumulate();
///       loss_of(first_half).backward();
///     }
///     loss_of(second_half).backward();
class Accumulation {
 public:
  explicit Accumulation(ReplicaState& state) : state_(state) { ++state_.accumulations; }
  ~Accumulation() { --state_.accumulations; }
  Accumulation(const Accumulation&) = delete;
  Accumulation& operator=(const Accumulation&) = delete;

 private:
  ReplicaState& state_;
};

/// One replica's view of the current run: its id, its device, and collectives with the other replicas. The
/// replica function receives it by reference. Only that replica's thread may use it.
///
/// Example:
///
///     strategy.run([&](ReplicaContext& replica, SimpleCnn& model, torch::optim::SGD& optimizer) {
///       optimizer.zero_grad();
///       model->forward(images.to(replica.device())).sum().backward();
///       replica.apply_gradients(optimizer);
///     }, model, optimizer);
///
/// Its own collectives are those of all replicas; axis() has those along one axis of the mesh. If replicas
/// have several ranks (see Mesh), each rank has a context, and all replicas are the ranks that differ from it
/// on data axes only.
class ReplicaContext : public ReplicaAxis {
 public:
  /// `collectives` is null in a scope's factory, and if the replicas of a step run at different times. `axes`
  /// has the backends for each axis of `state`, or is null as well.
  ReplicaContext(ReplicaState& state, GradientHandler& gradients, const ReplicaBackends* collectives,
                 BatchInfo batch, const std::vector<ReplicaBackends>* axes = nullptr);

  /// Id among all replicas in sync, on all machines. The ranks of a replica share it.
  int replica_id() const { return state_.replica_id; }
  /// Number of this rank among all, on all machines.
  int rank() const { return state_.rank; }
  /// Id among this process's ranks.
  int local_replica_id() const { return state_.local_id; }
  /// Number of replicas in sync.
  int num_replicas() const { return state_.num_replicas; }
  torch::Device device() const { return state_.device.torch_device(); }
  const LogicalDevice& logical_device() const { return state_.device; }
  /// Returns this replica's own random stream. Random operators without a generator draw from it too. If a
  /// replica has several ranks, their streams are equal.
  at::Generator& generator() { return state_.generator; }
  /// Returns the random stream of rank_random().
  at::Generator& rank_generator() { return state_.rank_generator; }
  /// Draws random numbers of this rank's own while the result lives; see RankRandom.
  [[nodiscard]] RankRandom rank_random() const { return RankRandom(state_.rank_generator); }

  /// Number of examples in this step's global batch, over all replicas. Empty unless an argument of run() is
  /// a distributed batch, and if several are and their sizes differ.
  std::optional<int64_t> global_batch_size() const { return batch_.global_size; }
  /// Number of examples in this replica's shard of the global batch.
  std::optional<int64_t> local_batch_size() const { return batch_.local_size; }

  /// Returns the replicas that differ from this one only in their coordinate on an axis of the strategy's
  /// mesh (see StrategyOptions::mesh), in the order of that coordinate. Without a mesh, the only axis is
  /// "data", with all replicas. Throws InvalidArgument, listing the axes, if there is no such axis.
  ReplicaAxis& axis(const std::string& name);
  /// Returns this rank's place on each axis of the mesh, in its order.
  const std::vector<AxisPosition>& axes() const { return state_.axes; }

  /// Returns how long this replica has waited for the others since the strategy was made; see WaitClock.
  double seconds_waited() const { return state_.waits.seconds(); }

  /// Keeps gradients local while the result lives; see Accumulation.
  [[nodiscard]] Accumulation accumulate() { return Accumulation(state_); }

  /// Computes in `dtype`, where that is accurate enough, while the result lives. Use it for forward and
  /// losses; see AutocastGuard.
  [[nodiscard]] AutocastGuard autocast(at::ScalarType dtype) const {
    return AutocastGuard(device().type(), dtype);
  }

  /// Waits for the sums of the gradients over all replicas, unscales and clips them if asked to, and steps
  /// the optimizer. It does not sum again gradients that reduce_gradients() has summed. Returns the
  /// gradients' L2 norm before clipping as a scalar on the device, undefined without clip_norm. A step that
  /// the scaler skips counts as finished. Throws as reduce_gradients() and GradScaler::step() do, and
  /// InvalidArgument for a negative clip_norm.
  torch::Tensor apply_gradients(torch::optim::Optimizer& optimizer, const ApplyOptions& options = {}) {
    return gradients_.apply_gradients(*this, optimizer, options);
  }
  /// Only waits for the sums, so that you can look at them or change them. A collective.
  ///
  /// With several replicas, gradients cannot be used between backward and this call, or apply_gradients():
  /// they are being summed. Code that reads or changes one meanwhile, such as
  /// torch::nn::utils::clip_grad_norm_() or the optimizer's step(), throws an error that names the parameter,
  /// which run() throws as InvalidArgument.
  ///
  /// Throws InvalidArgument if scope() did not make the optimizer, or if its parameters have changed since.
  /// With several replicas it also throws InvalidArgument, naming the parameter, if its gradient still holds
  /// the last step's sum (zero_grad() was not called), was replaced, or zeroed on its own, while it was being
  /// summed, is dense on one replica and sparse on another, or changed its shape or dtype within the step,
  /// and if the parameter began to require a gradient within the run.
  ///
  /// If the gradients of a backward are dropped by zero_grad() or left for a later run, it must still reach
  /// some of the optimizer's parameters on every replica or on none. Otherwise the replicas that it reaches
  /// wait in the sum for the others.
  void reduce_gradients(torch::optim::Optimizer& optimizer) { gradients_.reduce_gradients(*this, optimizer); }

 private:
  ReplicaState& state_;
  GradientHandler& gradients_;
  BatchInfo batch_;
  std::deque<ReplicaAxis> axes_;  // in the order of state_.axes
};

inline int local_index(const ReplicaContext& replica) {
  return replica.local_replica_id();
}

}  // namespace lockstep
