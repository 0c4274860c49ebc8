#pragma once

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/replicas/mirrored.h"
#include "lockstep/strategies/communication/cross_device_ops.h"

namespace lockstep {

class Strategy;

/// tf.distribute's lower-level calls, between runs. Refers to its strategy. With several workers reduce_to(),
/// batch_reduce_to(), broadcast_to(), gather_tensors() and broadcast_from_chief_() are collectives of theirs,
/// and throw as Strategy::reduce() does.
class StrategyExtended {
 public:
  explicit StrategyExtended(Strategy& strategy) : strategy_(strategy) {}

  /// The devices that replicas run on, in their canonical spelling.
  std::vector<std::string> worker_devices() const;
  /// The devices that hold parameters: the same ones.
  std::vector<std::string> parameter_devices() const { return worker_devices(); }

  /// One value a replica to one tensor on each of `destinations` (spelled as for parse_device). Throws
  /// InvalidArgument for none, for an unknown one and for values of different shapes.
  std::vector<torch::Tensor> reduce_to(ReduceOp op, const PerReplica<torch::Tensor>& value,
                                       const std::vector<std::string>& destinations) const;
  /// The same for several values at once, packed by the strategy's cross-device op: `result[i][d]` is value
  /// i's on destination d.
  std::vector<std::vector<torch::Tensor>> batch_reduce_to(
      ReduceOp op, const std::vector<PerReplica<torch::Tensor>>& values,
      const std::vector<std::string>& destinations) const;
  /// A copy on every replica's device, in memory of its own. With several workers worker 0's value, which the
  /// others must have in the same shape and dtype.
  Mirrored<torch::Tensor> broadcast_to(const torch::Tensor& value) const;

  /// What each worker process brings, on the CPU, in the order of workers: any number of tensors of any
  /// shapes and dtypes. Without other workers `own` itself, on the CPU.
  std::vector<std::vector<torch::Tensor>> gather_tensors(const std::vector<torch::Tensor>& own) const;

  /// Puts worker 0's values into the tensors, which all workers bring in the same number, shapes and dtypes.
  void broadcast_from_chief_(const std::vector<torch::Tensor>& tensors) const;

  /// In which order the optimizer's parameters, by their index among all of its groups', are packed into
  /// buckets for the sums of their gradients: the one in which the first step's gradients came. With three
  /// workers or more over a ring the last bit of a sum depends on it, so that a training which is to go on as
  /// if it had never been interrupted has to keep it. Empty: it is not known yet, or nothing is summed.
  std::vector<int64_t> gradient_order(const torch::optim::Optimizer& optimizer) const;
  /// The next run packs in this order, on every replica of every worker, which all give the same one. Does
  /// nothing where nothing is summed. Throws InvalidArgument for what is no permutation of the parameters.
  void set_gradient_order(const torch::optim::Optimizer& optimizer, const std::vector<int64_t>& order) const;

  /// `fn(T&, arguments...)` on each replica's object, one after another in the caller's thread; PerReplica
  /// arguments give each its own part. For changes between runs that must be the same everywhere.
  ///
  /// Throws what `fn` throws, and InvalidArgument at the first replica for which a PerReplica argument has no
  /// value; the replicas before that one stay changed.
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
