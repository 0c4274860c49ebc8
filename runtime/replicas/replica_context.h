#pragma once

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/runtime/collectives/collective_channel.h"
#include "lockstep/runtime/collectives/reduce_op.h"
#include "lockstep/runtime/devices/device.h"
#include "lockstep/runtime/precision/autocast.h"
#include "lockstep/runtime/replicas/per_replica.h"
#include "lockstep/runtime/replicas/wait_clock.h"

namespace lockstep {

class GradScaler;
class GraphRecording;
class ReplicaContext;

struct ApplyOptions {
  /// Scales all gradients so that their common L2 norm is at most this; infinity only measures. None: no norm
  /// is taken.
  std::optional<double> clip_norm;
  /// Whose scale the loss was multiplied by: the sums are divided by it before their norm is taken, and where
  /// one is not finite the step is skipped, on every replica. Call its update() at the end of the step.
  GradScaler* scaler = nullptr;
};

/// What a strategy does with a replica's finished gradients. The one point where strategies differ under the
/// same training step: mirrored ones sum and step.
class GradientHandler {
 public:
  virtual ~GradientHandler() = default;
  /// See ReplicaContext::apply_gradients.
  virtual torch::Tensor apply_gradients(ReplicaContext& replica, torch::optim::Optimizer& optimizer,
                                        const ApplyOptions& options) = 0;
  /// See ReplicaContext::reduce_gradients.
  virtual void reduce_gradients(ReplicaContext& replica, torch::optim::Optimizer& optimizer) = 0;
};

/// What a replica keeps between runs.
struct ReplicaState {
  int replica_id = 0;
  int local_id = 0;
  int num_replicas = 1;
  LogicalDevice device;
  at::Generator generator;
  int accumulations = 0;                ///< how many Accumulation objects live
  GraphRecording* recording = nullptr;  ///< of the call that the replica is in, if it is captured
  WaitClock waits;
};

/// What a run knows of the batch that it was given.
struct BatchInfo {
  std::optional<int64_t> global_size;
  std::optional<int64_t> local_size;
};

/// Keeps gradients local while it lives: backward adds up in grad() as without a strategy, nothing is sent.
/// The first backward after it sums the whole.
class Accumulation {
 public:
  explicit Accumulation(ReplicaState& state) : state_(state) { ++state_.accumulations; }
  ~Accumulation() { --state_.accumulations; }
  Accumulation(const Accumulation&) = delete;
  Accumulation& operator=(const Accumulation&) = delete;

 private:
  ReplicaState& state_;
};

/// One replica's view of the run that it is in: who it is, where it computes, and what it does together with
/// the others. Handed to the replica function by reference; used by that replica's thread only.
///
/// Collectives block until every replica has called the same one in the same order, and throw
/// CollectiveAborted if that cannot happen any more, CollectiveMismatch where the calls differ. In a scope's
/// factory they throw InvalidArgument, as in a ParameterServerStrategy's step of several slots.
class ReplicaContext {
 public:
  /// `collectives` is null in a scope's factory, and where replicas of a step run at different times.
  ReplicaContext(ReplicaState& state, GradientHandler& gradients, const ReplicaBackends* collectives,
                 BatchInfo batch)
      : state_(state), gradients_(gradients), collectives_(collectives), batch_(batch) {}
  ReplicaContext(const ReplicaContext&) = delete;
  ReplicaContext& operator=(const ReplicaContext&) = delete;

  /// Among all replicas in sync, over all machines.
  int replica_id() const { return state_.replica_id; }
  /// Among this process's replicas.
  int local_replica_id() const { return state_.local_id; }
  /// Replicas in sync.
  int num_replicas() const { return state_.num_replicas; }
  torch::Device device() const { return state_.device.torch_device(); }
  const LogicalDevice& logical_device() const { return state_.device; }
  /// This replica's own random stream. Random operators called without a generator draw from it as well.
  at::Generator& generator() { return state_.generator; }

  /// Examples in this step's global batch over all replicas, where one of run's arguments was a distributed
  /// batch, or several were, all of the same size.
  std::optional<int64_t> global_batch_size() const { return batch_.global_size; }
  /// Examples in this replica's shard of it.
  std::optional<int64_t> local_batch_size() const { return batch_.local_size; }

  /// New tensors with the sum or mean over the replicas. Differentiable: the gradient is an all-reduce with
  /// the same op, so that backward is a collective too. Throws InvalidArgument for a mean of integers.
  torch::Tensor all_reduce(ReduceOp op, const torch::Tensor& value);
  std::vector<torch::Tensor> all_reduce(ReduceOp op, const std::vector<torch::Tensor>& values);
  /// The same in place and without gradient. Where a backend of its own sums (BackendAllReduce), tensors must
  /// be on the replica's device; else InvalidArgument is thrown where two replicas bring the same memory.
  void all_reduce_(ReduceOp op, const torch::Tensor& value);
  void all_reduce_(ReduceOp op, const std::vector<torch::Tensor>& values);
  /// Concatenates the replicas' tensors along `axis` (negative: from the end) in replica order; sizes may
  /// differ on that axis only. Differentiable, as all_reduce. Throws InvalidArgument for an axis that `value`
  /// does not have.
  torch::Tensor all_gather(const torch::Tensor& value, int64_t axis = 0);
  /// The sum of the replicas' numbers. The host waits for the other replicas, but for no device. A captured
  /// function (CudaGraph) goes on with the sum of its capture.
  int64_t sum_on_host(int64_t number);
  /// Overwrites `value` with replica `source`'s, without gradient. Throws InvalidArgument for a source that
  /// is no replica.
  void broadcast_(const torch::Tensor& value, int source = 0);

  /// How long this replica has waited for the others since the strategy was made; see WaitClock.
  double seconds_waited() const { return state_.waits.seconds(); }

  /// Keeps gradients local while the result lives: `auto hold = replica.accumulate();`
  [[nodiscard]] Accumulation accumulate() { return Accumulation(state_); }

  /// Computes in `dtype` where that is accurate enough while the result lives, for forward and losses; see
  /// AutocastGuard. `const auto cast = replica.autocast(torch::kBFloat16);`
  [[nodiscard]] AutocastGuard autocast(at::ScalarType dtype) const {
    return AutocastGuard(device().type(), dtype);
  }

  /// Waits for the sums of the gradients over all replicas, unscales and clips them if asked to, and steps
  /// the optimizer. Gradients that reduce_gradients has summed are not summed again. Returns the gradients'
  /// L2 norm before clipping as a scalar on the device, undefined without clip_norm. A step that the scaler
  /// skips counts as finished. Throws as reduce_gradients and GradScaler::step, and InvalidArgument for a
  /// negative clip_norm.
  torch::Tensor apply_gradients(torch::optim::Optimizer& optimizer, const ApplyOptions& options = {}) {
    return gradients_.apply_gradients(*this, optimizer, options);
  }
  /// Only waits for the sums, so that the caller can look at them or change them. A collective.
  ///
  /// Throws InvalidArgument for an optimizer that scope did not make, or whose parameters have changed since;
  /// with several replicas also, naming the parameter, where its gradient still holds the last step's sum
  /// (zero_grad() was left out), was changed or zeroed by itself while it was being summed, is dense on one
  /// replica and sparse on another, or changed its shape or dtype within the step, and where the parameter
  /// began to require a gradient within the run.
  ///
  /// A backward whose gradients are dropped by zero_grad(), or left for a later run, must reach some of the
  /// optimizer's parameters on every replica or on none: whoever has left for the sum waits there for the
  /// others.
  void reduce_gradients(torch::optim::Optimizer& optimizer) { gradients_.reduce_gradients(*this, optimizer); }

 private:
  const ReplicaBackends& collectives() const;

  ReplicaState& state_;
  GradientHandler& gradients_;
  const ReplicaBackends* collectives_;
  BatchInfo batch_;
};

inline int local_index(const ReplicaContext& replica) {
  return replica.local_replica_id();
}

}  // namespace lockstep
