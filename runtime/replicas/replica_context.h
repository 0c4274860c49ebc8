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

/// State that a replica keeps between runs.
struct ReplicaState {
  int replica_id = 0;
  int local_id = 0;
  int num_replicas = 1;
  LogicalDevice device;
  at::Generator generator;
  int accumulations = 0;  ///< Number of Accumulation objects that live.
  /// Recording of the replica's current call, if it is captured.
  GraphRecording* recording = nullptr;
  WaitClock waits;
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
/// Collectives block until every replica has called the same one in the same order. They throw
/// CollectiveAborted if that can no longer happen, CollectiveMismatch if calls differ or are missing, and
/// InvalidArgument in a scope's factory and in a ParameterServerStrategy's step of several slots.
class ReplicaContext {
 public:
  /// `collectives` is null in a scope's factory, and if the replicas of a step run at different times.
  ReplicaContext(ReplicaState& state, GradientHandler& gradients, const ReplicaBackends* collectives,
                 BatchInfo batch)
      : state_(state), gradients_(gradients), collectives_(collectives), batch_(batch) {}
  ReplicaContext(const ReplicaContext&) = delete;
  ReplicaContext& operator=(const ReplicaContext&) = delete;

  /// Id among all replicas in sync, on all machines.
  int replica_id() const { return state_.replica_id; }
  /// Id among this process's replicas.
  int local_replica_id() const { return state_.local_id; }
  /// Number of replicas in sync.
  int num_replicas() const { return state_.num_replicas; }
  torch::Device device() const { return state_.device.torch_device(); }
  const LogicalDevice& logical_device() const { return state_.device; }
  /// Returns this replica's own random stream. Random operators without a generator draw from it too.
  at::Generator& generator() { return state_.generator; }

  /// Number of examples in this step's global batch, over all replicas. Empty unless an argument of run() is
  /// a distributed batch, and if several are and their sizes differ.
  std::optional<int64_t> global_batch_size() const { return batch_.global_size; }
  /// Number of examples in this replica's shard of the global batch.
  std::optional<int64_t> local_batch_size() const { return batch_.local_size; }

  /// Returns new tensors with the sum or mean over the replicas. Differentiable: the gradient is an
  /// all-reduce with the same op, so backward is a collective too. Sparse values have the same shape on all
  /// replicas, and are summed to a coalesced sparse tensor without gradients. Throws InvalidArgument for a
  /// mean of integers, and for a sparse value that requires a gradient.
  torch::Tensor all_reduce(ReduceOp op, const torch::Tensor& value);
  std::vector<torch::Tensor> all_reduce(ReduceOp op, const std::vector<torch::Tensor>& values);
  /// The same in place and without gradients. With BackendAllReduce, tensors must be on the replica's device;
  /// with other ops, throws InvalidArgument if two replicas pass the same memory.
  void all_reduce_(ReduceOp op, const torch::Tensor& value);
  void all_reduce_(ReduceOp op, const std::vector<torch::Tensor>& values);
  /// Concatenates the replicas' tensors along `axis` (negative: from the end) in replica order. Sizes may
  /// differ along that axis only. Differentiable, as all_reduce() is. Throws InvalidArgument if `value` does
  /// not have the axis.
  torch::Tensor all_gather(const torch::Tensor& value, int64_t axis = 0);
  /// Copies replica r's `value` into part number r of `output` on all replicas, without gradients. Throws
  /// InvalidArgument if `output` is not contiguous or does not have one part like `value` for each replica,
  /// and if `value` overlaps with it other than by being this replica's part.
  void all_gather_(const torch::Tensor& output, const torch::Tensor& value);
  /// Sums or averages `value` over the replicas, and returns this replica's part along `axis` (negative: from
  /// the end). The parts are those of torch::tensor_split(): if they cannot be equal, the first replicas get
  /// one row more. Differentiable: the gradient is an all_gather(), so backward is a collective too. The
  /// values are those that all_reduce() would have, at less cost. Throws InvalidArgument for a mean of
  /// integers.
  torch::Tensor reduce_scatter(ReduceOp op, const torch::Tensor& value, int64_t axis = 0);
  /// The same into `output`, without gradients. `value` is contiguous, and has an equal part for each
  /// replica, one after another. `output` may be this replica's part of it, and then needs no memory of its
  /// own.
  void reduce_scatter_(ReduceOp op, const torch::Tensor& output, const torch::Tensor& value);
  /// Sends values[r] to replica r, and returns what the replicas have sent, in their order. Shapes may differ
  /// in the first dimension only, and tensors may be empty. Differentiable: the gradient is an all_to_all(),
  /// so backward is a collective too. Waits on the host for the sizes. Throws InvalidArgument if there is not
  /// one value for each replica.
  std::vector<torch::Tensor> all_to_all(const std::vector<torch::Tensor>& values);
  /// Cuts `value` into equal parts along `split_axis`, sends one to each replica, and concatenates those that
  /// it gets along `concat_axis`. All replicas' values have one shape. Differentiable. Throws InvalidArgument
  /// if the parts cannot be equal.
  torch::Tensor all_to_all(const torch::Tensor& value, int64_t split_axis = 0, int64_t concat_axis = 0);
  /// Copies values[r] into outputs[s] of replica r, if this is replica s, without gradients and without
  /// waiting for sizes. Throws InvalidArgument if outputs overlap with values, and CollectiveMismatch if
  /// shapes do not fit. NCCL does not compare shapes, so there they must fit.
  void all_to_all_(const std::vector<torch::Tensor>& outputs, const std::vector<torch::Tensor>& values);
  /// Sends a copy of `value` to another replica, which calls receive() for it within the timeout. Does not
  /// wait for that. Messages from one replica to another are received in the order in which they were sent,
  /// within the same run. Other replicas take no part. Throws InvalidArgument if `destination` is not another
  /// replica, in a CudaGraph, and between worker processes over Gloo.
  ///
  /// Returns a zero. If `value` has history, run backward through the zero, with backward() or by adding it
  /// to the loss: it waits for the gradient that the other replica sends back. Run one backward through all
  /// that a replica has sent and received, so that replicas do not wait for each other in a circle.
  torch::Tensor send(const torch::Tensor& value, int destination);
  /// Returns what replica `source` sends, which has this shape, and the dtype of `options`. Blocks until it
  /// is there. The result is on this replica's device. If `options` require a gradient, backward sends it to
  /// `source`, which must have sent a value with history. Can be differentiated once.
  ///
  /// Throws CollectiveMismatch if the message is another one, and if `source` has returned without sending
  /// one. If `source` is in another worker process, the latter is only noticed at the timeout, or when its
  /// program ends. Throws InvalidArgument as send() does.
  torch::Tensor receive(int source, at::IntArrayRef sizes, const torch::TensorOptions& options = {});
  /// Receives into `value`, without gradients.
  void receive_(const torch::Tensor& value, int source);
  /// Returns the sum of the replicas' numbers. The host waits for the other replicas, but not for any device.
  /// A replay of a captured function (CudaGraph) uses the sum of its capture.
  int64_t sum_on_host(int64_t number);
  /// Overwrites `value` with replica `source`'s, without gradients. Throws InvalidArgument if `source` is not
  /// a replica.
  void broadcast_(const torch::Tensor& value, int source = 0);

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
  const ReplicaBackends& collectives() const;
  void refuse_capture(const char* operation) const;

  ReplicaState& state_;
  GradientHandler& gradients_;
  const ReplicaBackends* collectives_;
  BatchInfo batch_;
};

inline int local_index(const ReplicaContext& replica) {
  return replica.local_replica_id();
}

}  // namespace lockstep
