#pragma once

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/collectives/gradient_kind.h"
#include "lockstep/runtime/replicas/mirrored.h"
#include "lockstep/strategies/communication/cross_device_ops.h"

namespace lockstep {

class GradientReducer;
class ShardedParameters;
class Strategy;

/// An optimizer on one local replica; see StrategyExtended::optimizers_on_replicas().
struct OptimizerOnReplica {
  int sharding_stage = 0;                    ///< 3 if its parameters are shards; see ShardedModule
  int num_parts = 1;                         ///< replicas that hold different parts
  const GradientReducer* reducer = nullptr;  ///< sums its gradients; null if there are no other replicas
  const ShardedParameters* part = nullptr;   ///< the replica's part of its state; null if it has all of it
};

/// The lower-level calls of tf.distribute, for use between runs. Holds a reference to its strategy. With
/// several workers, reduce_to(), batch_reduce_to(), broadcast_to(), gather_tensors() and
/// broadcast_from_chief_() are collectives of the workers, and throw as Strategy::reduce().
///
/// Example:
///
///     auto sums = strategy.extended().reduce_to(ReduceOp::kSum, losses, {"cpu:0", "cpu:1"});
class StrategyExtended {
 public:
  explicit StrategyExtended(Strategy& strategy) : strategy_(strategy) {}

  /// Returns the devices that replicas run on, in their canonical spelling.
  std::vector<std::string> worker_devices() const;
  /// Returns the devices that hold parameters, which are the same.
  std::vector<std::string> parameter_devices() const { return worker_devices(); }

  /// Reduces one value for each replica, and returns the result on each of `destinations` (spelled as for
  /// parse_device()). Throws InvalidArgument for no destination, for an unknown one, and for values of
  /// different shapes.
  std::vector<torch::Tensor> reduce_to(ReduceOp op, const PerReplica<torch::Tensor>& value,
                                       const std::vector<std::string>& destinations) const;
  /// The same for several values at once, packed by the strategy's cross-device op: `result[i][d]` is value i
  /// on destination d.
  std::vector<std::vector<torch::Tensor>> batch_reduce_to(
      ReduceOp op, const std::vector<PerReplica<torch::Tensor>>& values,
      const std::vector<std::string>& destinations) const;
  /// Returns a copy of the value on every replica's device, each in memory of its own. With several workers,
  /// copies worker 0's value, which must have the same shape and dtype on all workers.
  Mirrored<torch::Tensor> broadcast_to(const torch::Tensor& value) const;

  /// Returns the tensors of each worker process, on the CPU, in the order of the workers. Each may bring any
  /// number of tensors of any shapes and dtypes. Without other workers, returns `own` on the CPU.
  std::vector<std::vector<torch::Tensor>> gather_tensors(const std::vector<torch::Tensor>& own) const;

  /// Copies worker 0's values into the tensors. All workers must bring the same number of tensors, of the
  /// same shapes and dtypes.
  void broadcast_from_chief_(const std::vector<torch::Tensor>& tensors) const;

  /// Returns the order in which the optimizer's parameters are packed into buckets for the sums of their
  /// gradients: their indices among the parameters of all groups, in the order in which the first step's
  /// gradients arrived. With three or more workers over a ring, the last bit of a sum depends on this order,
  /// so keep it in order to resume a training bit-identically. Empty if the order is not known yet or nothing
  /// is summed.
  std::vector<int64_t> gradient_order(const torch::optim::Optimizer& optimizer) const;
  /// Makes the next run pack in this order, on every replica. All workers must give the same order. Does
  /// nothing if nothing is summed. Throws InvalidArgument if `order` is not a permutation of the parameters.
  void set_gradient_order(const torch::optim::Optimizer& optimizer, const std::vector<int64_t>& order) const;
  /// Returns for each of the optimizer's parameters, in the order of its groups, kDense if its sum ever was
  /// dense, otherwise kSparse if it was sparse or its layer says so. Gradients that are sparse are in no
  /// bucket, so keep this beside gradient_order(). Empty if that is.
  std::vector<GradientKind> gradient_kinds(const torch::optim::Optimizer& optimizer) const;
  /// Makes the next run pack by these kinds, on every replica; kNone keeps what is known of a parameter. All
  /// workers must give the same kinds. Does nothing if nothing is summed. Throws InvalidArgument unless there
  /// is one kind for each parameter.
  void set_gradient_kinds(const torch::optim::Optimizer& optimizer,
                          const std::vector<GradientKind>& kinds) const;

  /// Returns each local replica's part of an optimizer whose state is sharded. Others may have the same.
  /// Empty if the state is not sharded, and if scope() did not make the optimizer. Use the parts between
  /// runs; they live as long as the optimizer.
  std::vector<const ShardedParameters*> optimizer_parts(const torch::optim::Optimizer& optimizer) const;

  /// Returns the optimizer, which may be any replica's, on each local replica, for those who measure it.
  /// Empty if scope() did not make it. Use the pointers between runs; they live as long as the optimizer.
  std::vector<OptimizerOnReplica> optimizers_on_replicas(const torch::optim::Optimizer& optimizer) const;

  /// Returns the flat tensors in which the gradients of all local replicas are summed for this optimizer,
  /// which may be any replica's. Its gradients are parts of them. Empty if nothing is summed. Call it between
  /// runs, and do not change the tensors.
  std::vector<torch::Tensor> gradient_buckets(const torch::optim::Optimizer& optimizer) const;

  /// Returns the seconds that each local replica has waited for the other replicas since the strategy was
  /// made; see ReplicaContext::seconds_waited(). Does not wait for a device. Call it between runs.
  std::vector<double> seconds_waited() const;

  /// Calls `fn(T&, arguments...)` for each replica's object, one after another in the caller's thread. Each
  /// call gets its replica's part of PerReplica arguments. Use it for changes between runs that must be the
  /// same everywhere.
  ///
  /// Rethrows errors of `fn`. Throws InvalidArgument at the first replica for which a PerReplica argument has
  /// no value; earlier replicas stay changed.
  template <typename T, typename Fn, typename... Args>
  void update(Mirrored<T>& variable, const Fn& fn, const Args&... arguments) const {
    for (size_t replica = 0; replica < variable.local_values().size(); ++replica) {
      fn(variable.local_values()[replica], part(arguments, replica)...);
    }
  }

 private:
  template <typename T>
  static const T& part(const PerReplica<T>& value, size_t replica) {
    if (replica < value.local_values().size()) return value.local_values()[replica];
    throw InvalidArgument("[update] expected an argument with a value for each replica, but got one with " +
                          std::to_string(value.local_values().size()));
  }
  template <typename T>
  static const T& part(const Mirrored<T>& value, size_t replica) {
    return part(static_cast<const PerReplica<T>&>(value), replica);
  }
  template <typename T>
  static const T& part(const T& value, size_t) {
    return value;
  }

  Strategy& strategy_;
};

}  // namespace lockstep
