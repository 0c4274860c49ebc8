#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/runtime/collectives/collective_channel.h"
#include "lockstep/runtime/collectives/mesh.h"
#include "lockstep/runtime/collectives/reduce_op.h"
#include "lockstep/runtime/devices/device.h"
#include "lockstep/runtime/replicas/wait_clock.h"

namespace lockstep {

class GraphRecording;

/// An axis of the mesh, as seen by one replica.
struct AxisPosition {
  std::string name;
  int index = 0;  ///< The replica's coordinate on the axis.
  int size = 1;   ///< The number of replicas on the axis.
  AxisRole role = AxisRole::kData;
};

/// Returns the index of `axis` in `axes`. Throws InvalidArgument, starting with `who` and listing the axes,
/// if it is not there.
size_t position_in(const std::vector<AxisPosition>& axes, const std::string& who, const std::string& axis);

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
  std::vector<AxisPosition> axes;  ///< Axes of the strategy's mesh, in its order.
  int rank = 0;                    ///< The thread's number among all; see Mesh.
  at::Generator rank_generator;    ///< See RankRandom.
};

/// One replica's view of a group of replicas that it belongs to: all replicas, or those along one axis of the
/// mesh. Members are numbered from 0. Only the replica's thread may use it.
///
/// Example:
///
///     strategy.run([](ReplicaContext& replica) {  // of a mesh data=2,shard=2
///       ReplicaAxis& shard = replica.axis("shard");
///       return shard.all_reduce(ReduceOp::kSum, torch::ones({}));  // 2
///     });
///
/// Collectives block until every member has called the same one in the same order. They throw
/// CollectiveAborted if that can no longer happen, CollectiveMismatch if calls differ or are missing, and
/// InvalidArgument in a scope's factory and in a ParameterServerStrategy's step of several slots. In a group
/// of one, they return copies.
class ReplicaAxis {
 public:
  /// `collectives` is null in a scope's factory, and if the replicas of a step run at different times.
  ReplicaAxis(ReplicaState& state, AxisPosition position, const ReplicaBackends* collectives);
  ReplicaAxis(const ReplicaAxis&) = delete;
  ReplicaAxis& operator=(const ReplicaAxis&) = delete;

  /// Returns the axis's name; empty for all replicas.
  const std::string& name() const { return position_.name; }
  /// This replica's number in the group.
  int index() const { return position_.index; }
  /// Number of replicas in the group.
  int size() const { return position_.size; }
  AxisRole role() const { return position_.role; }

  // In the following, replicas are those of the group, and have its numbers.

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

 private:
  const ReplicaBackends& collectives() const;
  void refuse_capture(const char* operation) const;

  ReplicaState& state_;
  const AxisPosition position_;
  const ReplicaBackends* const collectives_;
};

}  // namespace lockstep
