#pragma once

#include <torch/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/backends/backend_channel.h"
#include "lockstep/runtime/backends/local_backend.h"
#include "lockstep/runtime/collectives/collective_channel.h"
#include "lockstep/runtime/collectives/reduce_op.h"
#include "lockstep/runtime/devices/device.h"

namespace lockstep {

using Devices = std::vector<LogicalDevice>;

/// How values get from replica to replica: makes the channels that replicas talk over inside a run, and does
/// the reductions that the caller asks for between runs.
class CrossDeviceOps {
 public:
  /// `num_packs` is what batch_reduce packs tensors into: 0 leaves each by itself, else they are concatenated
  /// and cut into that many equal packs, the remainder in the last. Negative: InvalidArgument.
  explicit CrossDeviceOps(int num_packs);
  virtual ~CrossDeviceOps() = default;

  virtual std::string name() const = 0;
  /// Throws InvalidArgument naming the device where this op cannot serve them.
  virtual void check_devices(const Devices& devices) const = 0;
  /// A new channel among replicas on `devices`, with a backend for each in that order; `timeout` ends every
  /// wait in it. Those of BackendAllReduce block until their ranks are connected, and throw InvalidArgument
  /// as check_devices() and BackendError naming the op and the devices where they cannot connect.
  virtual std::unique_ptr<CollectiveChannel> make_channel(const Devices& devices,
                                                          std::chrono::milliseconds timeout) const = 0;
  /// The same for an optimizer's gradients, which may be sent in a shorter form. Default: make_channel().
  virtual std::unique_ptr<CollectiveChannel> make_gradient_channel(const Devices& devices,
                                                                   std::chrono::milliseconds timeout) const {
    return make_channel(devices, timeout);
  }

  /// The sum or mean of one value a replica, in replica order, on each of `destinations`. Values must agree
  /// in shape. A mean of several integers is floating-point; a single value goes to broadcast() as it is.
  /// Throws InvalidArgument for no value, no destination or different shapes.
  std::vector<torch::Tensor> reduce(ReduceOp op, const std::vector<torch::Tensor>& values,
                                    const Devices& destinations) const;
  /// reduce() of several values to the same destinations, packed: `values[i]` is one value a replica. Throws
  /// as reduce().
  std::vector<std::vector<torch::Tensor>> batch_reduce(ReduceOp op,
                                                       const std::vector<std::vector<torch::Tensor>>& values,
                                                       const Devices& destinations) const;
  /// Copies of `value` on each of `destinations`, none of which share memory; the first one on the device
  /// where `value` lies is `value` itself. Throws InvalidArgument for no destination.
  std::vector<torch::Tensor> broadcast(const torch::Tensor& value, const Devices& destinations) const;

 protected:
  /// The sum of the values, which agree in shape and are two or more. Default: on the first destination, in
  /// order.
  virtual torch::Tensor sum(const std::vector<torch::Tensor>& values, const LogicalDevice& destination) const;

 private:
  int num_packs_;
};

struct ReductionToOneDeviceOptions {
  /// Where reductions between runs make their sums; empty: on the first destination. Inside a run the first
  /// replica's device makes them.
  std::string reduce_to_device;
  /// Sums two or more values of one shape on one device; empty: in order. For reductions between runs.
  std::function<torch::Tensor(const std::vector<torch::Tensor>&)> accumulation;
};

/// One device makes the sum and hands it to the others. Works everywhere.
class ReductionToOneDevice : public CrossDeviceOps {
 public:
  explicit ReductionToOneDevice(ReductionToOneDeviceOptions options = {});
  std::string name() const override { return "ReductionToOneDevice"; }
  void check_devices(const Devices&) const override {}
  std::unique_ptr<CollectiveChannel> make_channel(const Devices& devices,
                                                  std::chrono::milliseconds timeout) const override;

 protected:
  torch::Tensor sum(const std::vector<torch::Tensor>& values,
                    const LogicalDevice& destination) const override;

 private:
  ReductionToOneDeviceOptions options_;
};

struct PackingOptions {
  int num_packs = 1;
};

/// Every replica sums its share of the elements and copies it to the others. Works everywhere; on CPUs the
/// shares are done at the same time by the replicas' threads.
class HierarchicalCopyAllReduce : public CrossDeviceOps {
 public:
  explicit HierarchicalCopyAllReduce(PackingOptions options = {}) : CrossDeviceOps(options.num_packs) {}
  std::string name() const override { return "HierarchicalCopyAllReduce"; }
  void check_devices(const Devices&) const override {}
  std::unique_ptr<CollectiveChannel> make_channel(const Devices& devices,
                                                  std::chrono::milliseconds timeout) const override;
};

/// Collectives of any c10d backend, one of its ranks a replica: NCCL is one, a program may hand in others.
/// With MultiWorkerMirroredStrategy the replicas of all workers are ranks of one backend.
class BackendAllReduce : public CrossDeviceOps {
 public:
  /// `name` is what errors and describe() call it. The factory makes a rank's backend, see BackendFactory;
  /// BackendChannel says what is asked of it. It is called again when a failed run needs new connections.
  BackendAllReduce(std::string name, BackendFactory factory, PackingOptions options = {})
      : CrossDeviceOps(options.num_packs), name_(std::move(name)), factory_(std::move(factory)) {}
  std::string name() const override { return name_; }
  /// Accepts all: the factory may refuse devices by throwing InvalidArgument.
  void check_devices(const Devices&) const override {}
  std::unique_ptr<CollectiveChannel> make_channel(const Devices& devices,
                                                  std::chrono::milliseconds timeout) const override;
  /// make_channel() with more said about it; op and factory are this one's.
  std::unique_ptr<CollectiveChannel> open_channel(BackendChannelConfig config) const;
  /// Makes settings of this process, such as environment variables, that a channel needs. Called before one
  /// connects; to be called before that where threads are started that may read them.
  virtual void prepare() const {}

 private:
  std::string name_;
  BackendFactory factory_;
};

/// NCCL, one communicator rank a replica. Needs a build with CUDA, and each replica on a GPU of its own. Its
/// first channel sets those of LibTorch's TORCH_NCCL_* variables that the environment has not, so that a
/// failing collective does not end the process.
class NcclAllReduce : public BackendAllReduce {
 public:
  explicit NcclAllReduce(PackingOptions options = {});
  void check_devices(const Devices& devices) const override;
  void prepare() const override;
};

/// Makes an op by name: nccl, hierarchical_copy or reduction_to_one_device; null for auto, which leaves the
/// choice to the strategy. Throws InvalidArgument listing the names.
std::shared_ptr<CrossDeviceOps> make_cross_device_ops(const std::string& name);

}  // namespace lockstep
